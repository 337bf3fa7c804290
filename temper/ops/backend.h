// Backend: one virtual function per numerical primitive of temper/ops. The public functions in the
// other headers check shapes, record gradients and communicate with other ranks; for the numbers
// they call the backend of their tensors' device (backend_of):
//
//   native   the kernels of temper/ops/native/kernels, on CPUs. Exact: no number depends on the
//   batch. aten     compositions of ATen calls on whatever device the tensors are on
//   (docs/devices.md).
//
// The tensors of one call are on one device, contiguous unless said otherwise, and float32, or
// float64 for gradient checks. Indices are int64 tensors on that device, made by indices(). N and M
// are rows of the batch, V is the vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "temper/ops/kv_store.h"
#include "temper/ops/layers/attention.h"
#include "temper/ops/layers/linear.h"
#include "temper/ops/layers/recurrent.h"
#include "temper/ops/layers/routing.h"
#include "temper/ops/logits/divergence.h"
#include "temper/ops/product.h"
#include "temper/ops/specs.h"
#include "temper/ops/weight.h"

namespace temper::ops {

struct AttentionResult {
  at::Tensor out;          // [N, num_heads * head_dim]
  at::Tensor log_sum_exp;  // [N, num_heads], of the scaled, capped scores and the sink
};
struct AttentionGradients {
  at::Tensor q, k, v, q_norm, k_norm;  // the norms' undefined where the spec has none
};

// Queries and keys as scores read them: normalized and rotated, keys rounded to the cache's dtype.
struct HeadVectors {
  at::Tensor q, k;  // [N, num_heads, head_dim], [N, num_kv_heads, head_dim]
};

// A pass of N rows, of which the longest path from a root has so many.
struct PassSize {
  int64_t rows, longest;
};

// Query rows [first, first + rows) of one segment. `keys` [n] int64: indices of the forest's tokens
// that they may attend to, ancestors first; row r is token keys[before + r] and sees
// keys[0, before + r], or those of them within the window.
struct MapTile {
  int64_t first, rows, before;
  at::Tensor keys;
  int64_t num_keys() const { return keys.numel(); }
};
struct TileMaps {
  at::Tensor probability;  // [heads, rows, keys]; 0 for keys that a row does not see
  at::Tensor capped;       // the soft-capped scores, of the same shape; undefined without a cap or
                           // without with_capped
};

// Of rows of logits, each [M].
struct SoftmaxSums {
  at::Tensor log_sum_exp, entropy;
};
struct DivergenceSums {
  at::Tensor lse_student, lse_teacher, value;
  at::Tensor mixture;  // KL(student || mixture), of jsd
};

// The largest tile of logits [rows of the batch, columns of the vocabulary] that is in memory at
// once.
struct HeadTileSize {
  int64_t rows, columns;  // columns: a multiple of kLogitsBlock
};

// The key of dropout's random numbers: element (n, i) of x depends on (seed, step, module, row[n],
// i) alone.
struct DropoutKey {
  double p;         // probability that an element is zeroed; the others are divided by 1 - p
  uint64_t seed;    // of the run
  uint64_t step;    // of training, so that each step draws other numbers
  uint64_t module;  // of the layer, so that each layer draws other numbers
  at::Tensor row;   // [N] int64: the bits of each row's uint64 key, which names its token
};

// One step of SGD as torch.optim.SGD.
struct SgdStep {
  double learning_rate, momentum, weight_decay;
  double grad_scale;  // the gradient is multiplied by it first: gradient clipping
  bool first_step;    // the momentum buffer is set to the gradient
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  // Whether results are batch-invariant: no number depends on the other rows of the batch, so that
  // sampling and training agree bit for bit (docs/numerics.md).
  virtual bool batch_invariant() const = 0;

  // -- Products (weight.h, product.h): the functions of the same names.
  // The values of w in the layout that multiply(), or with `transposed` multiply_transposed(),
  // reads: a 1-D tensor. Undefined if this backend, or the weight's format, needs no packing.
  virtual at::Tensor pack(const Weight& w, bool transposed) const = 0;
  // The same of x [N, in], for weight_gradient().
  virtual at::Tensor pack_input(const Weight& w, const at::Tensor& x) const = 0;
  // The same of the right operand of product(), [k, n].
  virtual at::Tensor pack(Operand b) const = 0;
  virtual void multiply(const at::Tensor& x, const Weight& w, at::Tensor& y,
                        const at::Tensor& bias) const = 0;
  virtual void multiply_transposed(const at::Tensor& dy, const Weight& w, at::Tensor& dx,
                                   bool accumulate, const at::Tensor& panels) const = 0;
  virtual void weight_gradient(const Weight& w, const at::Tensor& dy, const at::Tensor& x,
                               at::Tensor& dw, bool accumulate,
                               const at::Tensor& x_panels) const = 0;
  virtual at::Tensor read(const Weight& w) const = 0;
  // Codes in the layout that this backend's products read; `row_major`, one code a byte, and
  // `scale` lie on the host.
  virtual std::shared_ptr<const QuantizedWeight> from_codes(WeightFormat format, int64_t out,
                                                            int64_t in, const uint8_t* row_major,
                                                            const float* scale,
                                                            at::Device device) const = 0;
  virtual void product(Operand a, Operand b, at::Tensor& c, bool accumulate, const at::Tensor& bias,
                       const at::Tensor& panels) const = 0;

  // -- Experts (grouped_linear.h, routing.h)
  // multiply(), multiply_transposed() and weight_gradient() of layer[g] and rows [offsets[g],
  // offsets[g + 1]). One after the other, unless the backend has something better.
  virtual void grouped_multiply(const at::Tensor& x, const std::vector<int64_t>& offsets,
                                const std::vector<LinearOperand>& layer, at::Tensor& y) const;
  virtual void grouped_multiply_transposed(const at::Tensor& dy,
                                           const std::vector<int64_t>& offsets,
                                           const std::vector<LinearOperand>& layer, at::Tensor& dx,
                                           bool accumulate) const;
  // dw[g] is written where it is defined.
  virtual void grouped_weight_gradients(const std::vector<LinearOperand>& layer,
                                        const at::Tensor& dy, const at::Tensor& x,
                                        const std::vector<int64_t>& offsets,
                                        std::vector<at::Tensor>& dw) const;
  virtual Routing route(const RouterSpec& spec, const at::Tensor& logits,
                        const at::Tensor& bias) const = 0;
  // dlogits.
  virtual at::Tensor route_backward(const RouterSpec& spec, const at::Tensor& logits,
                                    const at::Tensor& expert, const at::Tensor& dweight) const = 0;
  virtual at::Tensor router_probabilities(const at::Tensor& logits) const = 0;
  // dlogits, from the gradient g [N, experts] of the probabilities.
  virtual at::Tensor router_probabilities_backward(const at::Tensor& logits,
                                                   const at::Tensor& g) const = 0;
  // combine() of routing.h, written to y or added to what it holds; places below 0 are passed over.
  virtual void combine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& place,
                       at::Tensor& y, bool accumulate) const = 0;
  // dx, dweight.
  virtual std::pair<at::Tensor, at::Tensor> combine_backward(const at::Tensor& x,
                                                             const at::Tensor& weight,
                                                             const at::Tensor& place,
                                                             const at::Tensor& dy) const = 0;

  // -- Rows (linear.h, embedding.h, dropout.h, dora.h, row_distance.h)
  // x [..., width] normalized by its root mean square, times the weight [width].
  virtual at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps,
                              bool add_unit_offset) const = 0;
  // Returns dx, of x's shape; adds to dweight [width], if it is defined.
  virtual at::Tensor rms_norm_backward(const at::Tensor& x, const at::Tensor& weight, double eps,
                                       bool add_unit_offset, const at::Tensor& dy,
                                       at::Tensor& dweight) const = 0;
  // x [..., width] less the mean of each row: with rms_norm() a layer norm.
  virtual at::Tensor center(const at::Tensor& x) const = 0;
  // activation(gate) * up; both, and the result, of the same shape.
  virtual at::Tensor gated(Activation activation, const at::Tensor& gate,
                           const at::Tensor& up) const = 0;
  // Gradients of gate and up.
  virtual std::pair<at::Tensor, at::Tensor> gated_backward(Activation activation,
                                                           const at::Tensor& gate,
                                                           const at::Tensor& up,
                                                           const at::Tensor& dy) const = 0;
  // scale * (x + offset) with x kept within [low, high], which may be infinite.
  virtual at::Tensor clamp_scaled(const at::Tensor& x, double low, double high, double offset,
                                  double scale) const = 0;
  // a + scale * b of the same shape.
  virtual at::Tensor add_scaled(const at::Tensor& a, const at::Tensor& b, double scale) const = 0;
  // Rows ids[i] of the table, as products see them, times scale.
  virtual at::Tensor gather_rows(const Weight& table, const at::Tensor& ids,
                                 double scale) const = 0;
  // to[ids[i]] += scale * x[i], i ascending.
  virtual void scatter_rows(const at::Tensor& x, const at::Tensor& ids, double scale,
                            at::Tensor& to) const = 0;
  // x [N, H] -> [N, H].
  virtual at::Tensor dropout(const DropoutKey& key, const at::Tensor& x) const = 0;
  // The norm of each row of x [R, width], [R]; squares are added in double.
  virtual at::Tensor row_norms(const at::Tensor& x) const = 0;
  // x[n, j] * factor[j] + bias[j]; bias may be undefined.
  virtual at::Tensor scale_columns(const at::Tensor& x, const at::Tensor& factor,
                                   const at::Tensor& bias) const = 0;
  // Σ_n a[n, j] b[n, j], or Σ_n a[n, j] where b is undefined: n ascending.
  virtual at::Tensor column_sums(const at::Tensor& a, const at::Tensor& b) const = 0;
  // a, b [N, D] -> [N]: 1 - cosine of the rows.
  virtual at::Tensor cosine_distance(const at::Tensor& a, const at::Tensor& b) const = 0;
  // The gradient of Σ_r g[r] distance[r] with respect to a.
  virtual at::Tensor cosine_distance_backward(const at::Tensor& a, const at::Tensor& b,
                                              const at::Tensor& g) const = 0;
  // a, b [N, D] -> [N]: Σ (a - b)².
  virtual at::Tensor squared_distance(const at::Tensor& a, const at::Tensor& b) const = 0;
  // x [N, D] -> [N, width] (row_distance.h).
  virtual at::Tensor pool_features(const at::Tensor& x, int64_t width) const = 0;

  // -- Attention (attention.h, kv_store.h). Roots of the forest start at position 0.
  // q [N, num_heads * head_dim], k and v [N, num_kv_heads * head_dim], before norm and rotary
  // embedding.
  virtual AttentionResult attention(const AttentionSpec& spec, const RotaryTable& rotary,
                                    const Forest& forest, const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& v) const = 0;
  virtual AttentionGradients attention_backward(const AttentionSpec& spec,
                                                const RotaryTable& rotary, const Forest& forest,
                                                const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v, const AttentionResult& result,
                                                const at::Tensor& dout) const = 0;
  // Most bytes that attention() and attention_backward() of such a pass hold at once, besides what
  // they are given and give. An upper bound for devices; 0 where it is small.
  virtual int64_t attention_scratch(const AttentionSpec& spec, const PassSize& pass,
                                    at::Device device) const = 0;
  // An empty store for keys and values of layers with these specs, at least one, of which it reads
  // key and value heads, head_dim and cache_dtype. A layer without key and value heads takes no
  // memory.
  virtual std::unique_ptr<KvStore> make_store(std::span<const AttentionSpec> layers,
                                              at::Device device) const = 0;
  // The pages of such a store.
  virtual CachePage cache_page(std::span<const AttentionSpec> layers, at::Device device) const = 0;

  // -- Layers with a state (recurrent.h)
  virtual at::Tensor short_convolution(const ConvolutionWeights& weights, bool silu,
                                       const Forest& forest, const at::Tensor& x,
                                       const CarriedStates& carried) const = 0;
  // dx, and gradients of the weights.
  virtual std::pair<at::Tensor, ConvolutionWeights> short_convolution_backward(
      const ConvolutionWeights& weights, bool silu, const Forest& forest, const at::Tensor& x,
      const at::Tensor& dy) const = 0;
  virtual at::Tensor gated_delta_rule(const DeltaRuleSpec& spec, const Forest& forest,
                                      const DeltaRuleInputs& inputs,
                                      const CarriedStates& carried) const = 0;
  // Gradients of the inputs.
  virtual DeltaRuleInputs gated_delta_rule_backward(const DeltaRuleSpec& spec, const Forest& forest,
                                                    const DeltaRuleInputs& inputs,
                                                    const at::Tensor& dout) const = 0;

  // -- Attention maps (attention_maps.h)
  virtual HeadVectors head_vectors(const AttentionSpec& spec, const RotaryTable& rotary,
                                   const Forest& forest, const at::Tensor& q,
                                   const at::Tensor& k) const = 0;
  // From gradients of the head vectors to those of q, k (before norm and rotary embedding) and the
  // norms; `v` stays undefined. Overwrites the given gradients.
  virtual AttentionGradients head_vectors_backward(const AttentionSpec& spec,
                                                   const RotaryTable& rotary, const Forest& forest,
                                                   const at::Tensor& q, const at::Tensor& k,
                                                   HeadVectors gradients) const = 0;
  virtual TileMaps maps(const AttentionSpec& spec, const HeadVectors& heads, const MapTile& tile,
                        bool with_capped) const = 0;
  // Adds to `gradients` those that follow from dp [heads, rows, keys], the gradient of the
  // probabilities. Overwrites dp.
  virtual void maps_backward(const AttentionSpec& spec, const HeadVectors& heads,
                             const MapTile& tile, const TileMaps& maps, at::Tensor dp,
                             HeadVectors& gradients) const = 0;
  // a, b: the student's and the teacher's probabilities [heads of each, rows, keys] -> [rows], the
  // distance of attention_cosine_distance(). All four functions may overwrite b.
  virtual at::Tensor map_cosine(const MapTile& tile, const at::Tensor& a,
                                const at::Tensor& b) const = 0;
  // The gradient of Σ_r g[r] value[r] with respect to a.
  virtual at::Tensor map_cosine_backward(const MapTile& tile, const at::Tensor& a,
                                         const at::Tensor& b, const at::Tensor& g) const = 0;
  // As above, of attention_squared_error(); map [teacher's heads, student's heads].
  virtual at::Tensor map_squared_error(const MapTile& tile, const at::Tensor& a, at::Tensor b,
                                       const at::Tensor& map) const = 0;
  // The gradient of Σ_r g[r] value[r] with respect to a; adds the one with respect to map to dmap.
  virtual at::Tensor map_squared_error_backward(const MapTile& tile, const at::Tensor& a,
                                                at::Tensor b, const at::Tensor& map,
                                                const at::Tensor& g, at::Tensor& dmap) const = 0;

  // -- Sweeps over the vocabulary (token_logp.h, divergence.h, top_tokens.h), a tile of logits
  // x [rows, columns] at a time. Each tile writes the partial sums of its rows and blocks of
  // kLogitsBlock columns into its part of a tensor [M, blocks, n]; join_... adds up the blocks.
  virtual HeadTileSize head_tile() const = 0;
  // In place: the scale, the soft cap, the division by the temperature.
  virtual void finish_logits(const HeadSpec& spec, at::Tensor& x) const = 0;
  // parts [rows, blocks of x, 3], a view: largest logit, Σ exp(x - max), Σ exp(x - max) (x - max).
  virtual void softmax_parts(const at::Tensor& x, at::Tensor parts) const = 0;
  virtual SoftmaxSums join_softmax_parts(const at::Tensor& parts) const = 0;
  // In place: the logits x of vocabulary entries [first, first + columns) become
  // d(Σ_r g[r] logp(target[r]) + h[r] entropy[r]) / dx. target [rows] int64; g, h [rows]; h may be
  // undefined.
  virtual void softmax_gradient(at::Tensor& x, int64_t first, const at::Tensor& target,
                                const SoftmaxSums& sums, const at::Tensor& g,
                                const at::Tensor& h) const = 0;
  // to[r, i] = x[r, id[r, i] - first] where that is a column of x; id and to are [rows, k].
  virtual void take_entries(const at::Tensor& x, int64_t first, const at::Tensor& id,
                            at::Tensor to) const = 0;
  // x[r, id[r, i] - first] += value[r, i] where that is a column of x.
  virtual void add_to_entries(at::Tensor& x, int64_t first, const at::Tensor& id,
                              const at::Tensor& value) const = 0;
  // `top` [rows, up to k], likeliest first (of equals the lower id), is joined with a tile's logits
  // whose ids begin at `first`.
  virtual void join_top(TopTokens& top, const at::Tensor& x, int64_t first, int64_t k) const = 0;
  // parts [rows, blocks of x, 6], a view (kernels::DivergencePart).
  virtual void divergence_parts(const at::Tensor& student, const at::Tensor& teacher,
                                at::Tensor parts) const = 0;
  virtual DivergenceSums join_divergence_parts(const at::Tensor& parts,
                                               DivergenceKind kind) const = 0;
  // parts [rows, blocks of x, 2], a view (kernels::MixturePart); the sums are of these rows.
  virtual void mixture_parts(const at::Tensor& student, const at::Tensor& teacher,
                             const DivergenceSums& sums, double jsd_beta,
                             at::Tensor parts) const = 0;
  // Sets sums.value and sums.mixture.
  virtual void join_mixture_parts(const at::Tensor& parts, double jsd_beta,
                                  DivergenceSums& sums) const = 0;
  // g times the gradient of the divergence with respect to the student's logits.
  virtual at::Tensor divergence_gradient(const DivergenceSpec& spec, const at::Tensor& student,
                                         const at::Tensor& teacher, const DivergenceSums& sums,
                                         const at::Tensor& g) const = 0;

  // -- Updates of one parameter `value`, in place; float32, all tensors of its shape
  // `first`, `second`: the moments.
  virtual void adamw(const AdamWStep& step, const at::Tensor& grad, const at::Tensor& value,
                     const at::Tensor& first, const at::Tensor& second) const = 0;
  // `buffer`: the momentum's; undefined without momentum.
  virtual void sgd(const SgdStep& step, const at::Tensor& grad, const at::Tensor& value,
                   const at::Tensor& buffer) const = 0;
  // Σ x² over all of the tensors, in double, one tensor after the other; the device is waited for
  // once.
  virtual double sum_of_squares(at::TensorList tensors) const = 0;
};

const Backend& native_backend();
const Backend& aten_backend();
// "native" or "aten". Throws ConfigError for another name.
const Backend& backend_named(std::string_view name);

// The backend of tensors on the CPU: default_cpu_backend() until
// choose_cpu_backend() says otherwise. On other devices it is aten.
const Backend& cpu_backend();
// What TEMPER_BACKEND (auto, native or aten) names, else native. Throws ConfigError for another
// name.
const Backend& default_cpu_backend();
void choose_cpu_backend(const Backend& backend);
const Backend& backend_of(const at::Tensor& x);
const Backend& backend_of(at::Device device);

// A vector's numbers as an int64 tensor on the device of `like`.
at::Tensor indices(const std::vector<int64_t>& numbers, const at::Tensor& like);
at::Tensor indices(const std::vector<uint64_t>& bits, const at::Tensor& like);

}  // namespace temper::ops
