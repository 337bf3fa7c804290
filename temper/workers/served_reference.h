// The role `reference` on ranks of its own: both sides, the ranks that ask and those that answer.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "temper/dist/group.h"
#include "temper/train/roles.h"
#include "temper/workers/role_ranks.h"

namespace temper::workers {

// Log-probabilities that ranks with the role compute: bit for bit those of this process, where
// roles.tensor is mesh.tensor. When the last of the ranks is gone this process computes them.
class ServedReference : public train::Frozen {
 public:
  using Make = std::function<std::unique_ptr<train::Frozen>()>;
  // group: the data-parallel ranks; of tensor-parallel ones only one asks. local: makes the model
  // that computes them in this process. All outlive it.
  ServedReference(RoleRanks& role_ranks, dist::Group& group, train::Messages& messages, Make local);

  at::Tensor token_logp(const train::ForwardPass& pass, double temperature) override;
  std::string describe() const override;

  // As token_logp(), from any thread, and by the ranks with the role alone. Throws NoServer where
  // none of them is left.
  at::Tensor ask(const train::ForwardPass& pass, double temperature);

 private:
  RoleRanks& role_ranks_;
  dist::Group& group_;
  train::Messages& messages_;
  Make make_local_;
  std::unique_ptr<train::Frozen> local_;  // null until it is needed
  std::shared_ptr<generate::remote::ServerPool> pool_;
  std::atomic<size_t> turn_{0};
};

// The role on the rank that has it.
class Scoring {
 public:
  explicit Scoring(std::unique_ptr<train::Frozen> reference) : reference_(std::move(reference)) {}
  // Answers a request (wire.h). Throws DataError.
  std::string score(const std::string& text);

 private:
  std::unique_ptr<train::Frozen> reference_;
};

}  // namespace temper::workers
