// The experts of a mixture: as many gated MLPs, of which each token goes through a few.
#pragma once

#include <memory>
#include <string>

#include "temper/nn/linear.h"
#include "temper/ops/layers/grouped_linear.h"
#include "temper/ops/layers/routing.h"

namespace temper::nn {

struct ExpertsConfig {
  int64_t count = 0, hidden = 0, width = 0;  // width: of an expert's inner layer
  ops::GatedUnit unit{};
  bool bias = false;
  double init_std = 0.02;
};

// down(act(gate) * up). gate_up_proj gives both, as transformers keeps them.
class Expert : public Module {
 public:
  Expert(Module& parent, std::string name, const ExpertsConfig& config);
  Linear gate_up_proj;  // [2 width, hidden]; ops::GatedUnit says in which order
  Linear down_proj;     // [hidden, width]
};

// Named "experts.0.gate_up_proj", ...: each expert has layers of its own, so that what is done to
// linear layers (formats, adapters, sharding) is done to them. Either all experts have an adapter
// for a projection or none, without dropout and magnitudes, as PEFT has it.
class Experts : public ModuleList<Expert> {
 public:
  Experts(Module& parent, std::string name, const ExpertsConfig& config);

  // Before they have values: each rank of the group has as many of them, the first rank the first
  // ones. All ranks run the same rows, and get the bits of one rank with all experts. Throws
  // ConfigError where the ranks do not divide them.
  void divide(std::shared_ptr<dist::Group> group);

  // x [N, hidden] to the same: Σ over a token's experts of weight · expert(x), by ascending expert.
  // `rows` are those of all experts.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& weight, const ops::ExpertRows& rows,
                     const Context& context);

 protected:
  void accept(const std::string& path, const LayerVisitor& visitor) override;

 private:
  ops::GatedUnit unit_;
  std::shared_ptr<dist::Group> group_;  // whose ranks have some of the experts each; null: none
};

}  // namespace temper::nn
