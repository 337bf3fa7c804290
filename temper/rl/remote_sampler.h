// Servers sample (rollout.server). The weights of each version are written to a directory that they
// see, too, and they are told to load it.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "temper/generate/remote/remote_engine.h"
#include "temper/rl/sampler.h"

namespace temper::rl {

class RemoteSampler : public Sampler {
 public:
  RemoteSampler(const RlConfig& config, train::Policy& policy, dist::Group& group,
                train::Messages& messages, std::function<bool()> stop);

  void keep(int64_t version) override;
  void use(int64_t version) override;
  generate::CompletionSource& completions() override { return engine_; }
  bool samples_here() const override { return false; }
  void stop() override { engine_.stop(); }
  int64_t sampling_version(int64_t version) const override { return syncs_ ? version : 0; }

 private:
  std::string directory(int64_t version) const;
  void write(const std::string& path) const;
  void remove_before(int64_t version) const;

  const RlConfig& config_;
  train::Policy& policy_;
  dist::Group& group_;
  const bool syncs_;
  std::string weights_dir_;  // absolute
  std::atomic<int64_t> kept_{-1};
  generate::RemoteEngine engine_;
};

}  // namespace temper::rl
