// Parts of a model that are run as one: their parameters may be shared out among ranks (FSDP), and
// their activations may be computed again in the backward pass instead of being kept (Chen et al.,
// arXiv 1604.06174). The same arithmetic runs in any case, so the numbers are those of the plain
// pass, bit for bit.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "temper/nn/context.h"
#include "temper/nn/module.h"

namespace temper::nn {

// Parameters that ranks share out among them, and that are whole on each rank only while they are
// used: gathered before, released after.
class ShardUnit {
 public:
  virtual ~ShardUnit() = default;
  bool gathered() const { return users_ > 0; }
  // All ranks that share the unit call these in the same order. The values are whole from the first
  // gather() on until as many release().
  void gather() {
    if (users_++ == 0) fetch();
  }
  void release() {
    if (--users_ == 0) drop();
  }
  // From gradients of whole values (undefined: zeros) those of what this rank keeps, summed over
  // the ranks. Gradients of parameters that are not the unit's own stay as they are.
  virtual void reduce(std::vector<std::pair<Parameter*, at::Tensor>>& gradients) = 0;

 private:
  virtual void fetch() = 0;
  virtual void drop() = 0;
  int users_ = 0;
};

// While one lives, all parameters of the model are whole on every rank: for what runs a different
// number of passes on each of them, as sampling does. All ranks that share the model make one at
// the same place; of a model that is not shared out it does nothing.
class Gathered {
 public:
  explicit Gathered(Module& model);
  ~Gathered();
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;

 private:
  std::vector<ShardUnit*> units_;
};

using Tensors = std::vector<at::Tensor>;
using UnitFunction = std::function<Tensors(const Tensors& inputs)>;
using BlockFunction = std::function<at::Tensor(const at::Tensor& x)>;

// forward(inputs) under adapters (nn::Context::adapter), with the module's parameters whole while
// it runs and while its gradient is taken. `module` owns every parameter that forward reads. With
// `recompute`, what forward refers to must outlive the backward pass, and `kept` has the inputs
// until then (null: they stay in memory).
Tensors run_unit(Module& module, const Tensors& inputs, const std::vector<int>& adapters,
                 bool recompute, const UnitFunction& forward, BlockInputs* kept = nullptr);

// A block of a body: seen by context.observe, and computed again in the backward pass where the
// context asks for it.
at::Tensor run_block(Module& block, const at::Tensor& x, const Context& context,
                     const BlockFunction& forward);

}  // namespace temper::nn
