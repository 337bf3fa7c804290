// Samplers: fixed weights that clients sample from.
#include <algorithm>

#include "temper/base/error.h"
#include "temper/serve/asked.h"
#include "temper/serve/reply_json.h"
#include "temper/tinker/digest.h"
#include "temper/tinker/service/service.h"
#include "temper/tinker/service/service_fields.h"

namespace temper::tinker {
Service::SamplerPointer Service::add_sampler(Session& session, const std::string& id,
                                             const std::string& digest) {
  check<DataError>(!samplers_.contains(id), "sampling_session_seq_id: `", id,
                   "` exists already; expected the next number");
  const auto most = static_cast<int64_t>(options_.most_samplers);
  if (std::ssize(samplers_) >= most)
    std::erase_if(samplers_, [](const auto& one) { return one.second->gone; });
  Share share;
  for (const auto& [other, one] : samplers_)
    share.add(one->owner, one->session, {session.owner, session.id}, one->gone ? 0 : 1);
  check<ConfigError>(!share.is_beyond(1, most), "the server takes at most ", most, " samplers",
                     kShares, "; there are ", share.all, ", of this session ", share.session,
                     "; finish a session");
  auto sampler = std::make_shared<Sampler>();
  sampler->id = id;
  sampler->owner = session.owner;
  sampler->beside = session.sampling;
  sampler->session = session.id;
  sampler->digest = digest;
  samplers_[id] = sampler;
  session.samplers.push_back(id);
  return sampler;
}

Json Service::create_sampling_session(const std::string& owner, const Json& body) {
  check_open();
  serve::Members members(body);
  const std::string session_id = members.text("session_id"), base = members.text("base_model"),
                    path = members.text("model_path"), digest = digest_of("sampler", body);
  const int64_t number = members.integer("sampling_session_seq_id", 0, INT64_MAX).value_or(0);
  if (base.empty() && path.empty())
    throw DataError("create_sampling_session: expected base_model or model_path");
  std::string served = base;
  if (!path.empty()) served = store_.run_of(owner, path).base_model;
  if (!base.empty()) check_base(base);
  const std::string id = session_id + ":sample:" + std::to_string(number);
  SamplerPointer sampler;
  {
    const std::lock_guard lock(mutex_);
    Session& session = session_of(owner, session_id);
    if (const auto found = samplers_.find(id);
        found != samplers_.end() && found->second->digest == digest)
      return {{"type", "create_sampling_session"}, {"sampling_session_id", id}};
    sampler = add_sampler(session, id, digest);
    sampler->base_model = served;
    sampler->model_path = path;
    sampler->is_base = sampler->ready = path.empty();
  }
  if (!path.empty()) later([this, sampler] { load_sampler(sampler); });
  return {{"type", "create_sampling_session"}, {"sampling_session_id", id}};
}

// On the thread that owns the model, as the next two.
void Service::load_sampler(const SamplerPointer& sampler) {
  std::shared_ptr<AdapterPlace> place;
  try {
    const Checkpoint saved = store_.checkpoint(sampler->owner, sampler->model_path);
    // What was written over is not what was loaded.
    const std::string key = saved.path() + "@" + time_text(saved.created);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = loaded_.find(key); found != loaded_.end())
        place = found->second.lock();
    }
    if (!place) place = load_place(places_, store_.directory_of(saved));
    const std::lock_guard lock(mutex_);
    loaded_[key] = place;
  } catch (const std::exception& e) {
    const std::lock_guard lock(mutex_);
    sampler->failure = e.what();
  }
  set_place(sampler, place);
}

void Service::set_place(const SamplerPointer& sampler, std::shared_ptr<AdapterPlace> place) {
  std::vector<std::function<void()>> waiting;
  {
    const std::lock_guard lock(mutex_);
    sampler->ready = true;
    if (!sampler->gone) sampler->place = std::move(place);
    waiting.swap(sampler->waiting);
  }
  for (const auto& one : waiting) one();
}

void Service::snapshot(const ModelPointer& model, const SamplerPointer& sampler) {
  const std::shared_ptr<AdapterPlace> place = model->adapter->snapshot();
  set_place(sampler, place);
  const std::lock_guard lock(mutex_);
  model->snapshots.push_back(sampler->id);
  for (const std::string& id : model->snapshots) {
    const auto found = samplers_.find(id);
    if (sampler->is_inflight && found != samplers_.end() && found->second->is_inflight)
      found->second->place = place;
  }
  while (model->snapshots.size() > options_.most_snapshots) {
    const auto oldest = samplers_.find(model->snapshots.front());
    model->snapshots.pop_front();
    if (oldest == samplers_.end()) continue;
    oldest->second->gone = true;
    oldest->second->place.reset();
  }
}

Service::SamplerPointer Service::sampler_of(const std::string& owner, const std::string& id) {
  const auto found = samplers_.find(id);
  if (found == samplers_.end() || found->second->owner != owner)
    throw serve::Refusal(404, "sampling_session_id: unknown `" + id.substr(0, 200) +
                                  "`: its session has finished, or the server was started again");
  if (found->second->gone)
    throw serve::Refusal(404,
                         str("sampling_session_id: the weights of `", id,
                             "` are not kept any more: of "
                             "samplers that are not saved the last ",
                             options_.most_snapshots,
                             " of a model are; save_weights_for_sampler with a name saves them"));
  session_of(owner, found->second->session);
  return found->second;
}

Json Service::sampler(const std::string& owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const SamplerPointer sampler = sampler_of(owner, id);
  Json answer{{"sampler_id", id}, {"base_model", sampler->base_model}};
  if (!sampler->model_path.empty()) answer["model_path"] = sampler->model_path;
  return answer;
}

}  // namespace temper::tinker
