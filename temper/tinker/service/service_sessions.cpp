// Sessions: who is there, and what goes with them.
#include <algorithm>
#include <tuple>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/base/sha256.h"
#include "temper/serve/asked.h"
#include "temper/serve/reply_json.h"
#include "temper/tinker/service/service.h"
#include "temper/tinker/service/service_fields.h"

namespace temper::tinker {
namespace {

constexpr size_t kMostKeys = 4096;
constexpr size_t kLongestMetadata = size_t{64} << 10;

}  // namespace

Json Service::capabilities() const {
  Json models = Json::array();
  for (const std::string& name : options_.names)
    models.push_back({{"model_name", name},
                      {"max_context_length", options_.most_positions},
                      {"trainable", true},
                      {"sampleable", true}});
  return {{"supported_models", models}};
}

void Service::check_base(const std::string& name) const {
  for (const auto* list : {&options_.names, &options_.paths})
    if (std::find(list->begin(), list->end(), name) != list->end()) return;
  std::string names;
  for (const std::string& known : options_.names) names += (names.empty() ? "" : ", ") + known;
  throw serve::Refusal(400, str("base_model: found `", name.substr(0, 200), "`, expected one of ",
                                names, "; --model-name gives the server's model further names"));
}

Json Service::create_session(const std::string& owner, const Json& body,
                             const std::string& idempotency_key) {
  check_open();
  const std::string key = idempotency_key.empty() ? "" : owner + sha256_hex(idempotency_key);
  const std::lock_guard lock(mutex_);
  const auto answer = [](const std::string& id) {
    return Json{{"type", "create_session"}, {"session_id", id}};
  };
  if (!key.empty())
    if (const auto found = session_keys_.find(key); found != session_keys_.end())
      return answer(found->second.id);
  if (!make_room(owner))
    throw serve::Refusal(429,
                         str("too many sessions: the server takes at most ", options_.most_sessions,
                             ", of which a key may have fifteen sixteenths; finish a session, "
                             "or retry later"));
  Session session;
  session.id = serve::new_id("");
  session.owner = owner;
  session.created = seconds_now();
  session.seen = steady_seconds();
  for (const char* key : {"user_metadata", "display_name"}) {
    session.body[key] = body.value(key, Json());
    check<DataError>(dump_json(session.body[key]).size() <= kLongestMetadata, "`", key,
                     "`: more than ", kLongestMetadata, " bytes");
  }
  // Of those that have finished the server knows as many again.
  if (sessions_.size() >= 2 * options_.most_sessions)
    std::erase_if(sessions_, [](const auto& one) { return one.second.finished; });
  const std::string id = session.id;
  sessions_[id] = std::move(session);
  if (!key.empty()) {
    if (session_keys_.size() >= kMostKeys) forget_keys();
    session_keys_[key] = {owner, id, ++made_};
  }
  return answer(id);
}

// The oldest one, of the owner that has most.
void Service::forget_keys() {
  std::map<std::string, int64_t> of_owner;
  for (const auto& [key, made] : session_keys_) ++of_owner[made.owner];
  session_keys_.erase(std::ranges::min_element(session_keys_, {}, [&](const auto& one) {
    return std::pair(-of_owner[one.second.owner], one.second.number);
  }));
}

// Where all places are taken, a session without a model ends: one of the new one's owner where that
// has its share of them, else of the owner that has the most
// sessions, one that was never used before one that was, and of these the one that was longest
// without a request. Those that have samplers must have been quiet for a while: a client says every
// ten seconds that it is there.
bool Service::make_room(const std::string& owner) {
  constexpr double kQuietSeconds = 60;
  Share active;
  std::map<std::string, int64_t> of_owner;
  for (const auto& [id, session] : sessions_) {
    if (session.finished) continue;
    active.add(session.owner, id, {owner, ""}, 1);
    ++of_owner[session.owner];
  }
  const auto most = static_cast<int64_t>(options_.most_sessions);
  if (!active.is_beyond(1, most)) return true;
  const bool of_others = active.owner + 1 <= most - most / 16;
  const double now = steady_seconds();
  Session* chosen = nullptr;
  const auto rank = [&](const Session& session) {
    return std::tuple(-of_owner[session.owner], session.used, session.seen);
  };
  for (auto& [id, session] : sessions_) {
    const auto has_model = [this](const std::string& model) { return models_.contains(model); };
    if (session.finished || std::ranges::any_of(session.models, has_model)) continue;
    if (!of_others && session.owner != owner) continue;
    if (!session.samplers.empty() && now - session.seen < kQuietSeconds) continue;
    if (!chosen || rank(session) < rank(*chosen)) chosen = &session;
  }
  if (chosen) end_session(*chosen);
  return chosen != nullptr;
}

Service::Session& Service::session_of(const std::string& owner, const std::string& id) {
  check_named("session_id", id, "create_session");
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.owner != owner)
    throw serve::Refusal(404,
                         "session_id: unknown; create_session gives one, and a server that "
                         "was started again knows none from before");
  if (found->second.finished)
    throw serve::Refusal(410,
                         "session_id: the session has finished, was idle for too long, or had no "
                         "model when the server was full");
  found->second.seen = steady_seconds();
  found->second.used = true;
  return found->second;
}

Json Service::heartbeat(const std::string& owner, const Json& body) {
  serve::Members members(body);
  const std::lock_guard lock(mutex_);
  const std::string id = members.text("session_id");
  check_named("session_id", id, "create_session");
  // The client's loop ends with 410 alone.
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.owner != owner)
    throw serve::Refusal(410, "session_id: unknown");
  session_of(owner, id);
  return {{"type", "session_heartbeat"}};
}

Json Service::finish_session(const std::string& owner, const std::string& id, const Json&) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.owner != owner)
    throw serve::Refusal(404, "session_id: unknown");
  if (!found->second.finished) end_session(found->second);
  return Json::object();
}

void Service::end_session(Session& session) {
  session.finished = true;
  session.seen = steady_seconds();
  for (const std::string& id : session.models)
    if (const auto found = models_.find(id); found != models_.end())
      controls_.push_back([this, model = found->second] {
        end_model(model, "the session has finished; load the model's saved weights in another one");
      });
  for (const std::string& id : session.samplers) {
    const auto found = samplers_.find(id);
    if (found == samplers_.end()) continue;
    found->second->gone = true;
    found->second->place.reset();
    samplers_.erase(found);
  }
  for (auto running = samplings_.begin(); running != samplings_.end();) {
    const auto next = std::next(running);
    if (running->second.session == session.id) {
      controls_.push_back([this, future = running->first, sampling = running->second.sampling] {
        if (sampling) sampling->cancel();
        futures_.fail(future, "the session has finished", FailureCategory::kUser);
      });
      samplings_.erase(running);
    }
    running = next;
  }
  sampling_.wake();
}

Json Service::sessions(const std::string& owner, int64_t limit, int64_t offset) {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<double, std::string>> all;
  for (const auto& [id, session] : sessions_)
    if (session.owner == owner) all.emplace_back(-session.created, id);
  std::sort(all.begin(), all.end());
  Json ids = Json::array();
  for (int64_t i = offset; i < std::min(offset + limit, std::ssize(all)); ++i)
    ids.push_back(all[static_cast<size_t>(i)].second);
  return {{"sessions", ids}};
}

Json Service::session(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second.owner != owner)
    throw serve::Refusal(404, "session: not found");
  const Session& session = found->second;
  Json answer{{"training_run_ids", session.models}, {"sampler_ids", session.samplers}};
  for (const char* key : {"user_metadata", "display_name"})
    answer[key] = session.body.value(key, Json());
  return answer;
}

}  // namespace temper::tinker
