// Servers sample (rollout.server). The weights of each version are written once to a directory that
// servers see, too, and each server is told to load them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "temper/generate/remote/remote_engine.h"
#include "temper/rl/weights/behavior_policy.h"
#include "temper/rl/weights/shared_servers.h"

namespace temper::rl {

// Throws ConfigError where the adapter to go on from (adapter.path) has what the config does not
// say and servers do not get: rows of embeddings, or new tokens.
void check_server_takes(const RlConfig& config, const train::Policy& policy);

class ServerPolicy : public BehaviorPolicy {
 public:
  ServerPolicy(const RlConfig& config, train::Policy& policy, const dist::Mesh& mesh,
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
  const std::shared_ptr<dist::Group> world_;
  const bool syncs_, shared_out_;  // other ranks hold parts of the model
  std::string weights_dir_;        // absolute
  std::atomic<int64_t> kept_{-1};
  train::Messages& messages_;
  SharedServers servers_;
  generate::RemoteEngine engine_;
};

}  // namespace temper::rl
