// The sessions of a server, by name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "temper/serve/access.h"
#include "temper/serve/session.h"

namespace temper::serve {

struct SessionLimits {
  int64_t sessions = 1024;
  int64_t tokens = int64_t{1} << 24;  // of all sessions together (SessionRules::most_tokens)
  double idle_seconds = 3600;         // after so long without a request a session is forgotten
};

class Sessions {
 public:
  // opens: a request with an unknown name opens a session by these rules. Without it sessions are
  // those that open() opens, and requests need one.
  Sessions(SessionLimits limits, SessionRules rules, bool opens)
      : limits_(limits), rules_(std::move(rules)), opens_(opens) {}

  // Opens a session by rules of its own.
  std::shared_ptr<Session> open(const std::string& name, SessionRules rules);
  // The session of a request for completions, opened where that is allowed. Throws Refusal: 400 for
  // something that is no name, 401 for an unknown one, 429 where there are too many.
  std::shared_ptr<Session> for_completions(const std::string& name);
  // Throws Refusal (404) where there is none of this name.
  std::shared_ptr<Session> find(const std::string& name) const;
  void remove(const std::string& name);
  bool required() const { return !opens_; }

 private:
  void forget_idle();

  const SessionLimits limits_;
  const SessionRules rules_;
  const bool opens_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Session>, std::less<>> sessions_;
};

// What API keys that name a session begin with.
inline constexpr const char* kSessionKey = "sk-temper-";

// The session that a request names: by the header X-Temper-Session, or, on a server without an API
// key, by the key sk-temper-NAME. Empty: none.
std::string session_name(const AccessRules& rules, const RequestHead& head);

// Parses {"reward": number}. Throws DataError.
double parse_reward(std::string_view body);

}  // namespace temper::serve
