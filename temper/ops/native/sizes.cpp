// Backends for tensors on the device `meta` (ops::SizesOf): what native and aten allocate, and no
// numbers. Where native allocates only its results, so do the members here.
#include "temper/ops/sizes.h"

#include <ATen/ATen.h>
#include <omp.h>

#include <algorithm>
#include <memory>

#include "temper/ops/aten/aten.h"
#include "temper/ops/native/attention_view.h"
#include "temper/ops/native/weight_views.h"

namespace temper::ops {
namespace {

thread_local const Backend* meta_backend = nullptr;

at::Tensor empty_or_none(const at::Tensor& like) {
  return like.defined() ? at::empty_like(like) : at::Tensor();
}

// ATen's own operators on `meta` allocate as on a device. What reads numbers, or chooses by the
// device, is replaced.
class AtenSizes : public AtenBackend {
 public:
  explicit AtenSizes(at::Device device) : device_(device) {}

  AttentionResult attention(const AttentionSpec& spec, const RotaryTable& /*rotary*/,
                            const Forest& forest, int64_t /*first*/, const at::Tensor& q,
                            const at::Tensor& /*k*/, const at::Tensor& /*v*/) const override {
    const at::Tensor scratch = scratch_of(spec, forest, q),
                     of_kernels = kernel_memory(spec, forest, false);
    return {at::empty_like(q), at::empty({q.size(0), spec.num_heads}, q.options())};
  }
  AttentionGradients attention_backward(const AttentionSpec& spec, const RotaryTable& /*rotary*/,
                                        const Forest& forest, int64_t /*first*/,
                                        const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& /*v*/, const AttentionResult& /*result*/,
                                        const at::Tensor& /*dout*/) const override {
    const at::Tensor scratch = scratch_of(spec, forest, q),
                     of_kernels = kernel_memory(spec, forest, true);
    AttentionGradients d{at::empty_like(q), at::empty_like(k), at::empty_like(k),
                         empty_or_none(spec.q_norm), empty_or_none(spec.k_norm)};
    if (spec.values_in_keys) {
      d.k = at::empty_like(k);
      d.v.reset();
    }
    return d;
  }

  void multiply(const at::Tensor& x, const Weight& w, at::Tensor& y,
                const at::Tensor& bias) const override {
    if (!w.in_integers()) AtenBackend::multiply(x, w, y, bias);
  }
  at::Tensor gather_rows(const Weight& table, const at::Tensor& ids, double) const override {
    return at::empty({ids.size(0), table.in()}, table.tensor().options().dtype(at::kFloat));
  }

  // LibTorch has no masks on `meta`. Where entries are, and they.
  void take_entries(const at::Tensor& x, int64_t, const at::Tensor& id, at::Tensor) const override {
    const Entries made = entries_of(x, id);
  }
  void add_to_entries(at::Tensor& x, int64_t, const at::Tensor& id,
                      const at::Tensor&) const override {
    const Entries made = entries_of(x, id);
  }

  // As many rows for each expert; in the host's memory, where rows_by_expert() looks.
  Routing route(const RouterSpec& spec, const at::Tensor& logits,
                const at::Tensor& /*bias*/) const override {
    const at::Tensor expert =
        at::arange(logits.size(0) * spec.chosen).remainder_(spec.experts).view({-1, spec.chosen});
    return {expert, at::empty({logits.size(0), spec.chosen}, logits.options())};
  }
  at::Tensor route_backward(const RouterSpec& /*spec*/, const at::Tensor& logits,
                            const at::Tensor& /*expert*/,
                            const at::Tensor& /*dweight*/) const override {
    return at::empty_like(logits);
  }
  void combine(const at::Tensor& x, const at::Tensor& /*weight*/, const at::Tensor& /*place*/,
               at::Tensor& /*y*/, bool /*accumulate*/) const override {
    const at::Tensor rows = composed(x), products = composed(x);
  }
  std::pair<at::Tensor, at::Tensor> combine_backward(const at::Tensor& x, const at::Tensor& weight,
                                                     const at::Tensor& /*place*/,
                                                     const at::Tensor& /*dy*/) const override {
    const at::Tensor rows = composed(x), products = composed(x);
    return {at::empty_like(x), at::empty_like(weight)};
  }

 protected:
  // What a composition of operators holds besides, of a tensor's size.
  virtual at::Tensor composed(const at::Tensor& x) const { return at::empty_like(x); }
  // What attention's kernels, or those of its backward pass, take themselves.
  virtual at::Tensor kernel_memory(const AttentionSpec& /*spec*/, const Forest& /*forest*/,
                                   bool /*backward*/) const {
    return {};
  }

 private:
  struct Entries {
    at::Tensor column, inside, values;
  };
  static Entries entries_of(const at::Tensor& x, const at::Tensor& id) {
    return {at::empty_like(id), at::empty(id.sizes(), id.options().dtype(at::kBool)),
            at::empty(id.sizes(), x.options())};
  }
  at::Tensor scratch_of(const AttentionSpec& spec, const Forest& forest,
                        const at::Tensor& q) const {
    const auto last = std::max_element(forest.position.begin(), forest.position.end());
    const int64_t bytes =
        backend_of(device_).attention_scratch(spec, {q.size(0), *last + 1}, device_);
    return at::empty({bytes}, q.options().dtype(at::kByte));
  }

  at::Device device_;
};

class NativeSizes : public AtenSizes {
 public:
  NativeSizes() : AtenSizes(at::kCPU) {}

  at::Tensor pack(const Weight& w, bool transposed) const override {
    if (w.quantized) return {};
    return panels(transposed ? w.out() : w.in(), transposed ? w.in() : w.out(), reads_bfloat16(w));
  }
  at::Tensor pack_input(const Weight& w, const at::Tensor& x) const override {
    return panels(x.size(0), x.size(1), rounds_factors(w));
  }
  at::Tensor pack(Operand b) const override { return panels(b.rows(), b.columns(), false); }
  void multiply(const at::Tensor& /*x*/, const Weight& w, at::Tensor& /*y*/,
                const at::Tensor& /*bias*/) const override {
    if (!w.panels.defined()) pack(w, false);
  }
  void multiply_transposed(const at::Tensor& /*dy*/, const Weight& w, at::Tensor& /*dx*/,
                           bool /*accumulate*/, const at::Tensor& packed) const override {
    if (!packed.defined()) pack(w, true);
  }
  void weight_gradient(const Weight& w, const at::Tensor& /*dy*/, const at::Tensor& x,
                       at::Tensor& /*dw*/, bool /*accumulate*/,
                       const at::Tensor& packed) const override {
    if (!packed.defined()) pack_input(w, x);
  }
  at::Tensor read(const Weight& w) const override {
    if (!w.quantized) return AtenSizes::read(w);
    return at::empty({w.out(), w.in()}, w.quantized->scales.options());
  }
  void product(Operand /*a*/, Operand b, at::Tensor& /*c*/, bool /*accumulate*/,
               const at::Tensor& /*bias*/, const at::Tensor& packed) const override {
    if (!packed.defined()) pack(b);
  }
  // Each thread packs a few columns.
  void grouped_multiply(const at::Tensor&, const std::vector<int64_t>&,
                        const std::vector<LinearOperand>&, at::Tensor&) const override {}
  void grouped_multiply_transposed(const at::Tensor&, const std::vector<int64_t>&,
                                   const std::vector<LinearOperand>&, at::Tensor&,
                                   bool) const override {}
  void grouped_weight_gradients(const std::vector<LinearOperand>&, const at::Tensor&,
                                const at::Tensor&, const std::vector<int64_t>&,
                                std::vector<at::Tensor>&) const override {}

  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor&, double, bool) const override {
    return at::empty_like(x);
  }
  at::Tensor rms_norm_backward(const at::Tensor& x, const at::Tensor&, double, bool,
                               const at::Tensor&, at::Tensor&) const override {
    return at::empty_like(x);
  }
  at::Tensor gated(Activation, const at::Tensor& gate, const at::Tensor&) const override {
    return at::empty_like(gate);
  }
  std::pair<at::Tensor, at::Tensor> gated_backward(Activation, const at::Tensor& gate,
                                                   const at::Tensor& up,
                                                   const at::Tensor&) const override {
    return {at::empty_like(gate), at::empty_like(up)};
  }
  void scatter_rows(const at::Tensor&, const at::Tensor&, double, at::Tensor&) const override {}
  at::Tensor dropout(const DropoutKey&, const at::Tensor& x) const override {
    return at::empty_like(x);
  }

  at::Tensor short_convolution(const ConvolutionWeights&, bool, const Forest&, const at::Tensor& x,
                               const CarriedStates&) const override {
    return at::empty_like(x);
  }
  std::pair<at::Tensor, ConvolutionWeights> short_convolution_backward(
      const ConvolutionWeights& weights, bool, const Forest&, const at::Tensor& x,
      const at::Tensor&) const override {
    return {at::empty_like(x), {at::empty_like(weights.weight), empty_or_none(weights.bias)}};
  }
  at::Tensor gated_delta_rule(const DeltaRuleSpec& spec, const Forest&, const DeltaRuleInputs& in,
                              const CarriedStates&) const override {
    const Tensors prepared = prepared_delta(spec, in);
    return at::empty({in.qkv.size(0), spec.value_heads * spec.value_dim}, in.qkv.options());
  }
  DeltaRuleInputs gated_delta_rule_backward(const DeltaRuleSpec& spec, const Forest&,
                                            const DeltaRuleInputs& in,
                                            const at::Tensor&) const override {
    const Tensors prepared = prepared_delta(spec, in), gradients = prepared_delta(spec, in);
    // Each thread has the states at every 32nd token of one head.
    const at::Tensor states =
        at::empty({omp_get_max_threads(), in.qkv.size(0) / 32 + 1, spec.key_dim, spec.value_dim},
                  in.qkv.options());
    return {at::empty_like(in.qkv), at::empty_like(in.a), at::empty_like(in.b),
            at::empty_like(in.a_log), at::empty_like(in.dt_bias)};
  }

  void softmax_parts(const at::Tensor&, at::Tensor) const override {}
  SoftmaxSums join_softmax_parts(const at::Tensor& parts) const override {
    return {at::empty({parts.size(0)}, parts.options()),
            at::empty({parts.size(0)}, parts.options())};
  }
  void softmax_gradient(at::Tensor&, int64_t, const at::Tensor&, const SoftmaxSums&,
                        const at::Tensor&, const at::Tensor&) const override {}
  void take_entries(const at::Tensor&, int64_t, const at::Tensor&, at::Tensor) const override {}
  void add_to_entries(at::Tensor&, int64_t, const at::Tensor&, const at::Tensor&) const override {}
  HeadTileSize head_tile() const override { return native_backend().head_tile(); }

 protected:
  at::Tensor composed(const at::Tensor&) const override { return {}; }
  at::Tensor kernel_memory(const AttentionSpec& spec, const Forest& forest,
                           bool backward) const override {
    const kernels::AttentionMemory bytes =
        kernels::attention_memory(attention_shape(spec), forest_view(spec, forest));
    return at::empty({backward ? bytes.backward : bytes.forward},
                     at::TensorOptions(at::kByte).device(at::kMeta));
  }

 private:
  using Tensors = std::vector<at::Tensor>;
  static at::Tensor panels(int64_t k, int64_t n, bool bfloat16) {
    return at::empty({kernels::packed_size(k, n)},
                     at::TensorOptions(bfloat16 ? at::kBFloat16 : at::kFloat).device(at::kMeta));
  }
  // Queries, keys, decays and rates.
  static Tensors prepared_delta(const DeltaRuleSpec& s, const DeltaRuleInputs& in) {
    const int64_t keys = s.key_heads * s.key_dim;
    Tensors made;
    for (const int64_t width : {keys, keys, s.value_heads, s.value_heads})
      made.push_back(at::empty({in.qkv.size(0), width}, in.qkv.options()));
    return made;
  }
};

}  // namespace

SizesOf::SizesOf(at::Device device) : before_(meta_backend) {
  if (&backend_of(device) == &native_backend())
    own_ = std::make_unique<NativeSizes>();
  else
    own_ = std::make_unique<AtenSizes>(device);
  meta_backend = own_.get();
}
SizesOf::~SizesOf() { meta_backend = before_; }
const Backend* SizesOf::current() { return meta_backend; }

}  // namespace temper::ops
