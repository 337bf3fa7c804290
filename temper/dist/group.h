// Ranks of a data-parallel run, launched as torchrun launches them (RANK, WORLD_SIZE, MASTER_ADDR,
// MASTER_PORT). The only place with c10d.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace temper::dist {

class Group {
 public:
  // From the environment; one rank where it says nothing. Ranks listen on the address by which
  // their host reaches MASTER_ADDR, or on GLOO_SOCKET_IFNAME's. Throws ConfigError for an
  // environment that is half set; RunError when the ranks do not find each other within
  // TEMPER_TIMEOUT_SECONDS (120), or when `stop` says that the run shall end while it waits.
  static std::shared_ptr<Group> from_environment(const std::function<bool()>& stop = {});
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Sums over the ranks, in place. The same bits on every rank. A rank that is gone makes this
  // throw RunError.
  virtual void all_reduce_sum(at::Tensor& tensor) = 0;
  virtual void barrier() = 0;
  // The same ranks once more, for a second thread of each: what is summed here and there does not
  // meet. All ranks make it, under the same name.
  virtual std::shared_ptr<Group> another(const std::string& name);

  void all_reduce_sum(std::vector<double>& values);
  // What every rank gave, by rank.
  std::vector<std::string> all_gather(const std::string& bytes);
  double all_reduce_max(double value);
};

}  // namespace temper::dist
