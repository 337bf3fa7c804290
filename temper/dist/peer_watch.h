// Notices ranks that end, or are frozen, while nothing is exchanged with them: a rank that computes
// for minutes, or waits for rewards, is in no collective that could fail.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "temper/dist/group.h"

namespace temper::dist {

struct LostPeer {
  // The rank's process has ended; it sent no heartbeat; its host does not answer.
  enum class How { kEnded, kSilent, kUnreachable };

  int rank = 0;      // in the group
  std::string host;  // its machine's name
  How how = How::kEnded;
  // "rank 1 on host-b has exited"
  std::string text() const;
};

// Ranks are connected in a ring, each to the next, by connections that carry heartbeats. One that
// ends without a word closes its connections, one whose process is stopped falls silent: its
// neighbours see that and tell the others around the ring. Heartbeats have a thread of their own,
// so a rank that is busy sends them.
class PeerWatch {
 public:
  // On all ranks of the group. address: where this rank listens, a host name or an IP address.
  // heartbeat_timeout_seconds: after so long without a heartbeat a neighbour counts as lost. `lost`
  // is called once at most, from another thread. Throws RunError, also where a neighbour's host
  // takes no connection in that time (3 to 60 s).
  PeerWatch(Group& group, const std::string& address, double heartbeat_timeout_seconds,
            std::function<void(const LostPeer&)> lost);
  // This rank ends in order. The others may go on.
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  const std::string& address() const { return address_; }

 private:
  struct Neighbour;
  void watch();
  bool hear(Neighbour& from, Neighbour& other);
  void lose(int32_t word, Neighbour& tell_on);

  int rank_, size_;
  std::string address_;
  std::chrono::milliseconds timeout_;
  std::vector<std::string> hosts_;  // by rank
  std::function<void(const LostPeer&)> lost_;
  int next_ = -1, previous_ = -1, wake_ = -1;
  std::thread thread_;  // last: it uses the others
};

// While an object lives, this process writes files that must not be lost: end_process waits for it,
// for ten minutes at most.
class Saving {
 public:
  Saving();
  ~Saving();
  Saving(const Saving&) = delete;
  Saving& operator=(const Saving&) = delete;
};

// Throws RunError that names the lost rank once end_process() was told of one. A thread that
// computes, or waits for something other than ranks, calls it now and then.
void check_peers();
// Waits for the result of another thread of this process. `check` is called now and then meanwhile;
// its exceptions are passed on.
template <class T>
void wait_for(const std::future<T>& result, const std::function<void()>& check = check_peers) {
  constexpr std::chrono::milliseconds kBetweenChecks{200};
  while (result.wait_for(kBetweenChecks) != std::future_status::ready) check();
}
// Says that this process knows of the loss, by check_peers() or a collective that failed, and is
// about to end: it then gets less time than one that has not noticed.
void note_heard();

// The callback that a run gives to PeerWatch: it gives the run's thread some seconds to notice the
// loss (above), save what can be saved and report it, then ends this process with exit status 1 and
// a message. Checkpoints are complete at any time.
std::function<void(const LostPeer&)> end_process(int rank);

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
