#include "temper/serve/sessions.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/rewards/reward.h"
#include "temper/serve/asked.h"
#include "temper/serve/body.h"
#include "temper/serve/http_text.h"

namespace temper::serve {

std::shared_ptr<Session> Sessions::open(const std::string& name, SessionRules rules) {
  auto session = std::make_shared<Session>(name, std::move(rules));
  const std::lock_guard lock(mutex_);
  return sessions_[name] = std::move(session);
}

// Called with the mutex held.
void Sessions::forget_idle() {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(sessions_, [&](const auto& one) {
    const Session::Record state = one.second->state();
    const std::chrono::duration<double> idle = now - state.changed;
    return state.open_requests == 0 && idle.count() > limits_.idle_seconds;
  });
}

std::shared_ptr<Session> Sessions::for_completions(const std::string& name) {
  if (name.empty() && required())
    throw Refusal(401, "expected an API key sk-temper-SESSION, or the header X-Temper-Session");
  if (!is_safe_name(name))
    throw Refusal(400, temper::str("the session's name: found ", for_log(name), ", expected 1 to ",
                                   kLongestSafeName,
                                   " letters, digits, '-', '_' and '.', which is not the first"));
  const std::lock_guard lock(mutex_);
  auto found = sessions_.find(name);
  if (found == sessions_.end() && !opens_)
    throw Refusal(401, "there is no session of this name; it may have ended");
  if (found == sessions_.end()) {
    forget_idle();
    if (std::ssize(sessions_) >= limits_.sessions)
      throw Refusal(429, temper::str("there are ", sessions_.size(),
                                     " sessions, as many as the server keeps; DELETE "
                                     "/v1/sessions/NAME forgets one"));
    found = sessions_.emplace(name, std::make_shared<Session>(name, rules_)).first;
  }
  int64_t tokens = 0;
  if (opens_)
    for (const auto& [other, session] : sessions_) tokens += session->num_tokens();
  if (tokens > limits_.tokens)
    throw Refusal(429, temper::str("the sessions hold ", tokens, " tokens, of at most ",
                                   limits_.tokens, "; DELETE /v1/sessions/NAME forgets one"));
  return found->second;
}

std::shared_ptr<Session> Sessions::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(name);
  if (found == sessions_.end()) throw Refusal(404, "there is no session of this name");
  return found->second;
}

void Sessions::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (const auto found = sessions_.find(name); found != sessions_.end()) {
    found->second->close();
    sessions_.erase(found);
  }
}

std::string session_name(const AccessRules& rules, const RequestHead& head) {
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
