// Low-rank adapters of linear layers: LoRA (Hu et al., arXiv 2106.09685) and its weight-decomposed
// form DoRA (Liu et al., arXiv 2402.09353), with PEFT's semantics and names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "temper/nn/context.h"
#include "temper/nn/module.h"

namespace temper::nn {

// y = W x + scale B(A(dropout(x))) + bias; A [rank, in], B [out, rank]. With a magnitude m [out]
// (DoRA) the layer's weight is m / ||W + scale B A||, row by row, times W + scale B A; the norm is
// a constant in the gradient (section 4.3 of the paper).
class Lora {
 public:
  Lora(Module& owner, int64_t in, int64_t out, int64_t rank, double scale, double dropout,
       uint64_t key, bool dora = false);

  double scale, dropout;
  uint64_t key;                                    // names the module among the random numbers
  std::shared_ptr<dist::Group> inputs_divided_by;  // whose ranks have a part each of A's columns

 private:
  struct Part : Module {
    Part(Module& owner, std::string name, std::vector<int64_t> shape, Init init)
        : Module(owner, std::move(name)), weight(*this, "weight", std::move(shape), init) {}
    Parameter weight;
  };

 public:
  Part lora_A, lora_B;
  std::optional<Part> lora_magnitude_vector;  // DoRA's m
  // A and B are multiplied as the matrix beside them, which is kept so: where products with that
  // one round both factors to bfloat16, theirs do.
  void set_arithmetic(ops::WeightFormat beside, ops::Arithmetic arithmetic);
  // All of them, by the names above.
  void each_parameter(const std::function<void(const char* name, Parameter&)>& visit);

  // ||W + scale B A|| of each row of the frozen weight W as products see it, [out], without a
  // gradient. Computed again only after one of the three has changed; several threads may call it
  // at once.
  at::Tensor row_norms(const Parameter& base) const;

  // What the layer gives, [N, out]. `product` is W x, with the bias unless separate_bias(); `low`
  // is A x. Undefined where the adapter's input is dropped: the layer's input is then `x`.
  at::Tensor adapt(const at::Tensor& product, const at::Tensor& low, const Parameter& base,
                   const at::Tensor& bias);
  at::Tensor adapt_dropped(const at::Tensor& product, const at::Tensor& x, const Parameter& base,
                           const DropoutKeys& keys);
  bool drops(const Context& context) const { return context.dropout && dropout > 0; }
  bool separate_bias(const Context& context) const {
    return lora_magnitude_vector && !drops(context);
  }

  // The weight that computes what W and the adapter do together, in float32.
  at::Tensor merged(const Parameter& base) const;
  // Takes the values of another adapter of these shapes, as copies.
  void copy_values(const Lora& from);

 private:
  mutable std::mutex norms_mutex_;
  mutable at::Tensor norms_;
  mutable uint64_t norms_of_[3] = {0, 0, 0};  // updates of W, A and B
};

}  // namespace temper::nn
