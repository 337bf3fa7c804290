// The role `reference` on ranks of its own: both sides, the ranks that ask and those that answer.
#pragma once

#include <memory>
#include <string>

#include "temper/dist/group.h"
#include "temper/train/roles/roles.h"
#include "temper/workers/role_ranks.h"

namespace temper::workers {

// Log-probabilities that ranks with the role compute: bit for bit those of this process, where
// roles.tensor is mesh.tensor. When the last of the ranks is gone this process computes them.
class ServedReference : public train::Frozen {
 public:
  // group: the data-parallel ranks; of tensor-parallel ones only one asks. source: of the model
  // that computes them in this process; a copy of an adapter is of how it is now. All but it
  // outlive it.
  ServedReference(RoleRanks& role_ranks, dist::Group& group, train::Messages& messages,
                  train::Policy& policy, train::FrozenSource source);

  at::Tensor token_logp(const train::ForwardPass& pass, double temperature) override;
  std::string describe() const override;

  // As token_logp(), from any thread, and by the ranks with the role alone. Throws NoServer where
  // none of them is left.
  at::Tensor ask(const train::ForwardPass& pass, double temperature);

 private:
  RoleRanks& role_ranks_;
  dist::Group& group_;
  train::Messages& messages_;
  train::Policy& policy_;
  train::FrozenSource source_;
  std::unique_ptr<train::Frozen> start_;  // an adapter's, which costs little
  std::unique_ptr<train::Frozen> local_;  // null until it is needed
  std::shared_ptr<generate::remote::ServerPool> pool_;
  std::atomic<size_t> turn_{0};
};

// The role on the rank that has it.
class Scoring {
 public:
  explicit Scoring(std::unique_ptr<train::Frozen> reference,
                   std::shared_ptr<const data::ImageFormat> images = nullptr)
      : reference_(std::move(reference)), images_(std::move(images)) {}
  // Answers a request (wire.h). Throws DataError.
  std::string score(const std::string& text);

 private:
  std::unique_ptr<train::Frozen> reference_;
  std::shared_ptr<const data::ImageFormat> images_;
};

}  // namespace temper::workers
