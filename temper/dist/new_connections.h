// Notices the loss of other ranks' hosts (base/liveness.h).
#pragma once

#include <set>

namespace temper::dist {

// The TCP connections that this process makes while one lives, to other ranks.
class NewConnections {
 public:
  NewConnections();
  // From now on each collective fails as notice_silence() says.
  void notice_loss() const;

 private:
  std::set<int> before_;
};

}  // namespace temper::dist
