// The native backend: the kernels of temper/ops/native/kernels. Its members stand in the files of
// this folder, by the parts of Backend.
#pragma once

#include "temper/ops/backend.h"

namespace temper::ops {

class NativeBackend : public Backend {
 public:
  const char* name() const override { return "native"; }
  bool batch_invariant() const override { return true; }

  at::Tensor pack(const Weight& w, bool transposed) const override;
  at::Tensor pack_input(const Weight& w, const at::Tensor& x) const override;
  at::Tensor pack(Operand b) const override;
  void multiply(const at::Tensor& x, const Weight& w, at::Tensor& y,
                const at::Tensor& bias) const override;
  void multiply_transposed(const at::Tensor& dy, const Weight& w, at::Tensor& dx, bool accumulate,
                           const at::Tensor& panels) const override;
  void weight_gradient(const Weight& w, const at::Tensor& dy, const at::Tensor& x, at::Tensor& dw,
                       bool accumulate, const at::Tensor& x_panels) const override;
  at::Tensor read(const Weight& w) const override;
  std::shared_ptr<const QuantizedWeight> from_codes(WeightFormat format, int64_t out, int64_t in,
                                                    const uint8_t* row_major, const float* scale,
                                                    at::Device device) const override;
  void product(Operand a, Operand b, at::Tensor& c, bool accumulate, const at::Tensor& bias,
               const at::Tensor& panels) const override;
  void grouped_multiply(const at::Tensor& x, const std::vector<int64_t>& offsets,
                        const std::vector<LinearOperand>& layer, at::Tensor& y) const override;
  void grouped_multiply_transposed(const at::Tensor& dy, const std::vector<int64_t>& offsets,
                                   const std::vector<LinearOperand>& layer, at::Tensor& dx,
                                   bool accumulate) const override;
  void grouped_weight_gradients(const std::vector<LinearOperand>& layer, const at::Tensor& dy,
                                const at::Tensor& x, const std::vector<int64_t>& offsets,
                                std::vector<at::Tensor>& dw) const override;
  Routing route(const RouterSpec& spec, const at::Tensor& logits,
                const at::Tensor& bias) const override;
  at::Tensor route_backward(const RouterSpec& spec, const at::Tensor& logits,
                            const at::Tensor& expert, const at::Tensor& dweight) const override;
  at::Tensor router_probabilities(const at::Tensor& logits) const override;
  at::Tensor router_probabilities_backward(const at::Tensor& logits,
                                           const at::Tensor& g) const override;
  void combine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& place,
               at::Tensor& y, bool accumulate) const override;
  std::pair<at::Tensor, at::Tensor> combine_backward(const at::Tensor& x, const at::Tensor& weight,
                                                     const at::Tensor& place,
                                                     const at::Tensor& dy) const override;
  at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps,
                      bool add_unit_offset) const override;
  at::Tensor rms_norm_backward(const at::Tensor& x, const at::Tensor& weight, double eps,
                               bool add_unit_offset, const at::Tensor& dy,
                               at::Tensor& dweight) const override;
  at::Tensor center(const at::Tensor& x) const override;
  at::Tensor gated(Activation activation, const at::Tensor& gate,
                   const at::Tensor& up) const override;
  std::pair<at::Tensor, at::Tensor> gated_backward(Activation activation, const at::Tensor& gate,
                                                   const at::Tensor& up,
                                                   const at::Tensor& dy) const override;
  at::Tensor clamp_scaled(const at::Tensor& x, double low, double high, double offset,
                          double scale) const override;
  at::Tensor add_scaled(const at::Tensor& a, const at::Tensor& b, double scale) const override;
  at::Tensor gather_rows(const Weight& table, const at::Tensor& ids, double scale) const override;
  void scatter_rows(const at::Tensor& x, const at::Tensor& ids, double scale,
                    at::Tensor& to) const override;
  at::Tensor dropout(const DropoutKey& key, const at::Tensor& x) const override;
  at::Tensor row_norms(const at::Tensor& x) const override;
  at::Tensor scale_columns(const at::Tensor& x, const at::Tensor& factor,
                           const at::Tensor& bias) const override;
  at::Tensor column_sums(const at::Tensor& a, const at::Tensor& b) const override;
  at::Tensor cosine_distance(const at::Tensor& a, const at::Tensor& b) const override;
  at::Tensor cosine_distance_backward(const at::Tensor& a, const at::Tensor& b,
                                      const at::Tensor& g) const override;
  at::Tensor squared_distance(const at::Tensor& a, const at::Tensor& b) const override;
  at::Tensor pool_features(const at::Tensor& x, int64_t width) const override;
  AttentionResult attention(const AttentionSpec& spec, const RotaryTable& rotary,
                            const Forest& forest, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v) const override;
  AttentionGradients attention_backward(const AttentionSpec& spec, const RotaryTable& rotary,
                                        const Forest& forest, const at::Tensor& q,
                                        const at::Tensor& k, const at::Tensor& v,
                                        const AttentionResult& result,
                                        const at::Tensor& dout) const override;
  int64_t attention_scratch(const AttentionSpec& spec, const PassSize& pass,
                            at::Device device) const override;
  std::unique_ptr<KvStore> make_store(std::span<const AttentionSpec> layers,
                                      at::Device device) const override;
  CachePage cache_page(std::span<const AttentionSpec> layers, at::Device device) const override;
  at::Tensor short_convolution(const ConvolutionWeights& weights, bool silu, const Forest& forest,
                               const at::Tensor& x, const CarriedStates& carried) const override;
  std::pair<at::Tensor, ConvolutionWeights> short_convolution_backward(
      const ConvolutionWeights& weights, bool silu, const Forest& forest, const at::Tensor& x,
      const at::Tensor& dy) const override;
  at::Tensor gated_delta_rule(const DeltaRuleSpec& spec, const Forest& forest,
                              const DeltaRuleInputs& inputs,
                              const CarriedStates& carried) const override;
  DeltaRuleInputs gated_delta_rule_backward(const DeltaRuleSpec& spec, const Forest& forest,
                                            const DeltaRuleInputs& inputs,
                                            const at::Tensor& dout) const override;
  HeadVectors head_vectors(const AttentionSpec& spec, const RotaryTable& rotary,
                           const Forest& forest, const at::Tensor& q,
                           const at::Tensor& k) const override;
  AttentionGradients head_vectors_backward(const AttentionSpec& spec, const RotaryTable& rotary,
                                           const Forest& forest, const at::Tensor& q,
                                           const at::Tensor& k,
                                           HeadVectors gradients) const override;
  TileMaps maps(const AttentionSpec& spec, const HeadVectors& heads, const MapTile& tile,
                bool with_capped) const override;
  void maps_backward(const AttentionSpec& spec, const HeadVectors& heads, const MapTile& tile,
                     const TileMaps& maps, at::Tensor dp, HeadVectors& gradients) const override;
  at::Tensor map_cosine(const MapTile& tile, const at::Tensor& a,
                        const at::Tensor& b) const override;
  at::Tensor map_cosine_backward(const MapTile& tile, const at::Tensor& a, const at::Tensor& b,
                                 const at::Tensor& g) const override;
  at::Tensor map_squared_error(const MapTile& tile, const at::Tensor& a, at::Tensor b,
                               const at::Tensor& map) const override;
  at::Tensor map_squared_error_backward(const MapTile& tile, const at::Tensor& a, at::Tensor b,
                                        const at::Tensor& map, const at::Tensor& g,
                                        at::Tensor& dmap) const override;
  HeadTileSize head_tile() const override;
  void finish_logits(const HeadSpec& spec, at::Tensor& x) const override;
  void softmax_parts(const at::Tensor& x, at::Tensor parts) const override;
  SoftmaxSums join_softmax_parts(const at::Tensor& parts) const override;
  void softmax_gradient(at::Tensor& x, int64_t first, const at::Tensor& target,
                        const SoftmaxSums& sums, const at::Tensor& g,
                        const at::Tensor& h) const override;
  void take_entries(const at::Tensor& x, int64_t first, const at::Tensor& id,
                    at::Tensor to) const override;
  void add_to_entries(at::Tensor& x, int64_t first, const at::Tensor& id,
                      const at::Tensor& value) const override;
  void join_top(TopTokens& top, const at::Tensor& x, int64_t first, int64_t k) const override;
  void divergence_parts(const at::Tensor& student, const at::Tensor& teacher,
                        at::Tensor parts) const override;
  DivergenceSums join_divergence_parts(const at::Tensor& parts, DivergenceKind kind) const override;
  void mixture_parts(const at::Tensor& student, const at::Tensor& teacher,
                     const DivergenceSums& sums, double jsd_beta, at::Tensor parts) const override;
  void join_mixture_parts(const at::Tensor& parts, double jsd_beta,
                          DivergenceSums& sums) const override;
  at::Tensor divergence_gradient(const DivergenceSpec& spec, const at::Tensor& student,
                                 const at::Tensor& teacher, const DivergenceSums& sums,
                                 const at::Tensor& g) const override;
  void adamw(const AdamWStep& step, const at::Tensor& grad, const at::Tensor& value,
             const at::Tensor& first, const at::Tensor& second) const override;
  void sgd(const SgdStep& step, const at::Tensor& grad, const at::Tensor& value,
           const at::Tensor& buffer) const override;
  double sum_of_squares(at::TensorList tensors) const override;
};

}  // namespace temper::ops
