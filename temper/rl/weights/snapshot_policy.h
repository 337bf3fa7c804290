// This process samples with the weights of an earlier version while the policy trains. Of a policy
// with an adapter only the adapter is copied.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "temper/generate/engine.h"
#include "temper/models/shared.h"
#include "temper/rl/weights/behavior_policy.h"

namespace temper::rl {

class SnapshotPolicy : public BehaviorPolicy {
 public:
  SnapshotPolicy(const RlConfig& config, train::Policy& policy);
  ~SnapshotPolicy() override;

  void keep(int64_t version) override;
  // Keeps weights of an earlier time (workers::trained_weights). From any thread.
  void keep(int64_t version, const std::shared_ptr<const std::string>& weights);
  void use(int64_t version) override;
  generate::CompletionSource& completions() override;
  void share_processors(bool training) override;

 private:
  class SharingEngine;
  void keep(int64_t version, std::vector<at::Tensor> values);

  std::map<const nn::Parameter*, std::string> names_;  // names of the policy's parameters
  std::unique_ptr<models::CausalLM> copy_;             // null: the adapter is copied
  int adapter_ = 0;  // adapter of the engine's model that holds the snapshot
  std::vector<models::ParameterCopy> parameters_;
  std::unique_ptr<SharingEngine> engine_;
  std::mutex mutex_;
  std::map<int64_t, std::vector<at::Tensor>> kept_;  // [version] values of parameters_
  int64_t kept_last_ = -1, used_ = -1;
};

}  // namespace temper::rl
