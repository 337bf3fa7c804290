#include "temper/serve/sessions/sessions.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/http/text.h"
#include "temper/rewards/reward.h"
#include "temper/serve/asked.h"
#include "temper/serve/body.h"

namespace temper::serve {
namespace {

constexpr const char *kSessions = " sessions", *kTokens = " tokens in the sessions";

void check_limit(int64_t found, int64_t most, const char* of, const char* what,
                 const char* option = "") {
  if (found > most)
    throw Refusal(429, temper::str("found ", found, what, of, ", expected at most ", most, option,
                                   "; DELETE /v1/sessions/NAME forgets a session"));
}

}  // namespace

std::shared_ptr<Session> Sessions::open(const std::string& name, SessionRules rules) {
  const auto session = std::make_shared<Session>(name, std::move(rules));
  const std::lock_guard lock(mutex_);
  sessions_[{0, name}] = {session, {}};
  return session;
}

// Called with the mutex held.
void Sessions::forget_idle() {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(sessions_, [&](const auto& one) {
    const Session::Record state = one.second.session->state();
    const std::chrono::duration<double> idle = now - state.changed;
    return state.open_requests == 0 && idle.count() > limits_.idle_seconds;
  });
}

std::shared_ptr<Session> Sessions::for_completions(const std::string& name, size_t owner,
                                                   const std::string& address) {
  if (name.empty() && required())
    throw Refusal(401, "expected an API key sk-temper-SESSION, or the header X-Temper-Session");
  if (!is_safe_name(name))
    throw Refusal(400, temper::str("the session's name: found ", http::for_log(name),
                                   ", expected 1 to ", kLongestSafeName,
                                   " letters, digits, '-', '_' and '.', which is not the first"));
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find({owner, name});
  const bool is_new = found == sessions_.end();
  if (is_new && !opens_) throw Refusal(401, "there is no session of this name; it may have ended");
  if (is_new) forget_idle();
  if (opens_) check_share(owner, address, is_new);
  if (!is_new) return found->second.session;
  const auto session = std::make_shared<Session>(name, rules_);
  sessions_[{owner, name}] = {session, address};
  return session;
}

// Called with the mutex held.
void Sessions::check_share(size_t owner, const std::string& address, bool opens) const {
  int64_t sessions = 0, of_address = 0, tokens = 0, tokens_of_address = 0;
  for (const auto& [key, kept] : sessions_) {
    if (key.first != owner) continue;
    const int64_t its = kept.session->num_tokens();
    const bool same = !address.empty() && kept.address == address;
    ++sessions;
    tokens += its;
    of_address += same;
    tokens_of_address += same ? its : 0;
  }
  sessions += opens;  // with the one that it opens
  of_address += opens;
  const char* const of_owner = limits_.owners > 1 ? " of this API key" : "";
  const int64_t most = std::max<int64_t>(limits_.sessions / limits_.owners, 1),
                most_tokens = limits_.tokens / limits_.owners;
  check_limit(sessions, most, of_owner, kSessions,
              limits_.owners > 1 ? " (--max-sessions, divided by the number of API keys)"
                                 : " (--max-sessions)");
  check_limit(of_address, most - most / 4, " of one address", kSessions,
              " (three quarters of --max-sessions)");
  check_limit(tokens, most_tokens, of_owner, kTokens);
  check_limit(tokens_of_address, most_tokens - most_tokens / 4, " of one address", kTokens);
}

std::shared_ptr<Session> Sessions::find(const std::string& name, size_t owner) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find({owner, name});
  if (found == sessions_.end()) throw Refusal(404, "there is no session of this name");
  return found->second.session;
}

void Sessions::remove(const std::string& name, size_t owner) {
  const std::lock_guard lock(mutex_);
  if (const auto found = sessions_.find({owner, name}); found != sessions_.end()) {
    found->second.session->close();
    sessions_.erase(found);
  }
}

std::string session_name(const http::AccessRules& rules, const http::RequestHead& head) {
  if (const auto name = head.header("x-temper-session"); !name.empty()) return std::string(name);
  if (!rules.api_key.empty()) return {};
  const std::string_view key = head.header("authorization");
  const std::string begin = std::string("Bearer ") + kSessionKey;
  return std::string(key.starts_with(begin) ? key.substr(begin.size()) : "");
}

double parse_reward(std::string_view body) {
  const Json json = parse_json(body, "the request's body");
  check<DataError>(json.is_object(), "the request's body: found ", quoted(json),
                   R"(, expected {"reward": number})");
  Members members(json);
  const Json* reward = members.find("reward");
  check<DataError>(reward, "`reward`: missing, expected a number");
  if (!reward->is_number() || !rewards::is_reward(reward->get<double>()))
    wrong("reward", *reward, "a finite number of at most 1e30");
  members.check_no_rest();
  return reward->get<double>();
}

}  // namespace temper::serve
