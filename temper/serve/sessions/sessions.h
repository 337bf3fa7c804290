// The sessions of a server, by name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "temper/http/access.h"
#include "temper/serve/sessions/session.h"

namespace temper::serve {

struct SessionLimits {
  int64_t sessions = 1024;            // of all owners, of whom each has an equal share
  int64_t tokens = int64_t{1} << 24;  // of all sessions together (SessionRules::most_tokens); the
                                      // same
  double idle_seconds = 3600;         // after so long without a request a session is forgotten
  int64_t owners = 1;                 // API keys of the server
};

class Sessions {
 public:
  // opens: a request with an unknown name opens a session by these rules. Without it sessions are
  // those that open() opens, and requests need one.
  Sessions(SessionLimits limits, SessionRules rules, bool opens)
      : limits_(limits), rules_(std::move(rules)), opens_(opens) {}

  // Opens a session by rules of its own, of the owner 0.
  std::shared_ptr<Session> open(const std::string& name, SessionRules rules);
  // The session of a request for completions, opened where that is allowed. Throws Refusal: 400 for
  // something that is no name, 401 for an unknown one, 429 where there are too many. owner: the
  // number of the client's API key (http::owner_of()); sessions of one name and two owners are two.
  // address: the client's; one address opens at most three quarters of its owner's share.
  std::shared_ptr<Session> for_completions(const std::string& name, size_t owner = 0,
                                           const std::string& address = {});
  // Throws Refusal (404) where there is none of this name.
  std::shared_ptr<Session> find(const std::string& name, size_t owner = 0) const;
  void remove(const std::string& name, size_t owner = 0);
  bool required() const { return !opens_; }

 private:
  void forget_idle();

  using Key = std::pair<size_t, std::string>;  // owner, name
  const SessionLimits limits_;
  const SessionRules rules_;
  const bool opens_;
  mutable std::mutex mutex_;
  struct Kept {
    std::shared_ptr<Session> session;
    std::string address;  // of the client that opened it; empty: the program itself
  };
  void check_share(size_t owner, const std::string& address, bool opens) const;
  std::map<Key, Kept> sessions_;
};

// What API keys that name a session begin with.
inline constexpr const char* kSessionKey = "sk-temper-";

// The session that a request names: by the header X-Temper-Session, or, on a server without an API
// key, by the key sk-temper-NAME. Empty: none.
std::string session_name(const http::AccessRules& rules, const http::RequestHead& head);

// Parses {"reward": number}. Throws DataError.
double parse_reward(std::string_view body);

}  // namespace temper::serve
