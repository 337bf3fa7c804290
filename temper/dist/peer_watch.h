// Notices ranks that end while nothing is exchanged with them: a rank that computes for minutes, or
// waits for rewards, is in no collective that could fail.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "temper/dist/group.h"

namespace temper::dist {

// Ranks are connected in a ring, each to the next, by connections that carry nothing. One that ends
// without a word closes its connections: its neighbours see that and tell the others around the
// ring.
class PeerWatch {
 public:
  // On all ranks of the group. address: where this rank listens, a host name or an IP address.
  // `lost` is called once at most, from another thread, with the number of the rank that is gone.
  // Throws RunError.
  PeerWatch(Group& group, const std::string& address, std::function<void(int rank)> lost);
  // This rank ends in order. The others may go on.
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  const std::string& address() const { return address_; }

 private:
  void watch();
  void tell(int fd, int rank) const;

  int rank_, size_;
  std::string address_;
  std::function<void(int)> lost_;
  int next_ = -1, previous_ = -1, wake_ = -1;
  std::thread thread_;  // last: it uses the others
};

// What a run does about it: gives its own thread some seconds to fail in a collective and say so,
// then ends this process with exit status 1 and a message. What is saved is whole at any time.
std::function<void(int)> end_process(int rank);

}  // namespace temper::dist
