// Episodes of an environment in this process (environment.h).
#pragma once

#include <map>
#include <memory>

#include "temper/env/host.h"

namespace temper::env {

class NativeHost : public Host {
 public:
  explicit NativeHost(MakeEnvironment make) : make_(make) {}

  // Throws DataError where the environment says that the row lacks something.
  void reset(int64_t episode, const Json& row) override;
  void step(int64_t episode, const Turn& turn) override;
  void close(int64_t episode) override { episodes_.erase(episode); }
  void add_awaited(std::vector<pollfd>& fds, process::Clock::time_point& until) const override;
  void advance(std::vector<Reply>& replies) override;

 private:
  MakeEnvironment make_;
  std::map<int64_t, std::unique_ptr<Environment>> episodes_;
  std::vector<Reply> answered_;
};

}  // namespace temper::env
