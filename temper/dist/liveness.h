// Notices hosts that vanish without a word: a cable that is cut, a machine that loses its power.
#pragma once

#include <set>

namespace temper::dist {

// The TCP connections that this process makes while one lives, to other ranks.
class NewConnections {
 public:
  NewConnections();
  // From now on each of them fails when the other end's host is silent for about 30 seconds,
  // whether something is sent to it or not. A process that is stopped or busy does not count: its
  // kernel answers.
  void notice_loss() const;

 private:
  std::set<int> before_;
};

// Makes a connection fail when the other end's host is silent for about 30 seconds while nothing is
// on its way; of a listening socket, the connections that it takes.
void notice_silence(int socket);
// The same while something is on its way, and when the other end takes nothing for so long.
void notice_unanswered(int socket);

}  // namespace temper::dist
