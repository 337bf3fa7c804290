// The primitives of the class Backend and their contracts. The list exists only here: backend.h
// includes it in its class with PRIMITIVE defined as `= 0`, and each implementation in its own with
// PRIMITIVE defined as `override`.
//
// The tensors of one call are on one device, contiguous unless said otherwise, and float32, or
// float64 for gradient checks. Indices are int64 tensors on that device, made by indices(). N and M
// are rows of the batch, V is the vocabulary.

// -- Products (weight.h, product.h): the functions of the same names. Inputs x and dx are in the
// order of a quantized weight's codes (QuantizedWeight::order).
// The values of w in the layout that multiply(), or with `transposed` multiply_transposed(),
// reads: a 1-D tensor. Undefined if this backend, or the weight's format, needs no packing.
virtual at::Tensor pack(const Weight& w, bool transposed) const PRIMITIVE;
// The same for x [N, in], as weight_gradient() reads it.
virtual at::Tensor pack_input(const Weight& w, const at::Tensor& x) const PRIMITIVE;
// The same for the right operand of product(), [k, n].
virtual at::Tensor pack(Operand b) const PRIMITIVE;
virtual void multiply(const at::Tensor& x, const Weight& w, at::Tensor& y,
                      const at::Tensor& bias) const PRIMITIVE;
virtual void multiply_transposed(const at::Tensor& dy, const Weight& w, at::Tensor& dx,
                                 bool accumulate, const at::Tensor& panels) const PRIMITIVE;
virtual void weight_gradient(const Weight& w, const at::Tensor& dy, const at::Tensor& x,
                             at::Tensor& dw, bool accumulate,
                             const at::Tensor& x_panels) const PRIMITIVE;
virtual at::Tensor read(const Weight& w) const PRIMITIVE;
// Converts codes, which are as Codes says, to the layout that this backend's products read.
virtual std::shared_ptr<const QuantizedWeight> from_codes(const Codes& codes,
                                                          at::Device device) const PRIMITIVE;
virtual void product(Operand a, Operand b, at::Tensor& c, bool accumulate, const at::Tensor& bias,
                     const at::Tensor& panels) const PRIMITIVE;

// -- Experts (grouped_linear.h, routing.h)
virtual Routing route(const RouterSpec& spec, const at::Tensor& logits,
                      const at::Tensor& bias) const PRIMITIVE;
// dlogits.
virtual at::Tensor route_backward(const RouterSpec& spec, const at::Tensor& logits,
                                  const at::Tensor& expert,
                                  const at::Tensor& dweight) const PRIMITIVE;
virtual at::Tensor router_probabilities(const at::Tensor& logits) const PRIMITIVE;
// dlogits, from the gradient g [N, experts] of the probabilities.
virtual at::Tensor router_probabilities_backward(const at::Tensor& logits,
                                                 const at::Tensor& g) const PRIMITIVE;
// combine() of routing.h, written to y or added to it; entries with a place below 0 are skipped.
virtual void combine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& place,
                     at::Tensor& y, bool accumulate) const PRIMITIVE;
// dx, dweight.
virtual std::pair<at::Tensor, at::Tensor> combine_backward(const at::Tensor& x,
                                                           const at::Tensor& weight,
                                                           const at::Tensor& place,
                                                           const at::Tensor& dy) const PRIMITIVE;

// -- Rows (linear.h, embedding.h, dropout.h, dora.h, row_distance.h)
// x [..., width] normalized by its root mean square, times the weight [width].
virtual at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps,
                            bool add_unit_offset) const PRIMITIVE;
// Returns dx, of x's shape; adds to dweight [width], if it is defined.
virtual at::Tensor rms_norm_backward(const at::Tensor& x, const at::Tensor& weight, double eps,
                                     bool add_unit_offset, const at::Tensor& dy,
                                     at::Tensor& dweight) const PRIMITIVE;
// x [..., width] minus the mean of each row; followed by rms_norm() it is a layer norm.
virtual at::Tensor center(const at::Tensor& x) const PRIMITIVE;
// activation(gate) * up; both, and the result, of the same shape.
virtual at::Tensor gated(Activation activation, const at::Tensor& gate,
                         const at::Tensor& up) const PRIMITIVE;
// Gradients of gate and up.
virtual std::pair<at::Tensor, at::Tensor> gated_backward(Activation activation,
                                                         const at::Tensor& gate,
                                                         const at::Tensor& up,
                                                         const at::Tensor& dy) const PRIMITIVE;
// scale * (clamp(x, low, high) + offset); the bounds may be infinite.
virtual at::Tensor clamp_scaled(const at::Tensor& x, double low, double high, double offset,
                                double scale) const PRIMITIVE;
// a + scale * b of the same shape.
virtual at::Tensor add_scaled(const at::Tensor& a, const at::Tensor& b,
                              double scale) const PRIMITIVE;
// Rows ids[i] of the table, rounded as in products or as read() has them, times scale.
virtual at::Tensor gather_rows(const Weight& table, const at::Tensor& ids,
                               double scale) const PRIMITIVE;
// to[ids[i]] += scale * x[i], i ascending.
virtual void scatter_rows(const at::Tensor& x, const at::Tensor& ids, double scale,
                          at::Tensor& to) const PRIMITIVE;
// x [N, H] -> [N, H].
virtual at::Tensor dropout(const DropoutKey& key, const at::Tensor& x) const PRIMITIVE;
// The norm of each row of x [R, width], [R]; squares are added in double.
virtual at::Tensor row_norms(const at::Tensor& x) const PRIMITIVE;
// x[n, j] * factor[j] + bias[j]; bias may be undefined.
virtual at::Tensor scale_columns(const at::Tensor& x, const at::Tensor& factor,
                                 const at::Tensor& bias) const PRIMITIVE;
// Σ_n a[n, j] b[n, j], n ascending.
virtual at::Tensor column_sums(const at::Tensor& a, const at::Tensor& b) const PRIMITIVE;
// a, b [N, D] -> [N]: 1 - cosine of the rows.
virtual at::Tensor cosine_distance(const at::Tensor& a, const at::Tensor& b) const PRIMITIVE;
// The gradient of Σ_r g[r] distance[r] with respect to a.
virtual at::Tensor cosine_distance_backward(const at::Tensor& a, const at::Tensor& b,
                                            const at::Tensor& g) const PRIMITIVE;
// a, b [N, D] -> [N]: Σ (a - b)².
virtual at::Tensor squared_distance(const at::Tensor& a, const at::Tensor& b) const PRIMITIVE;
// x [N, D] -> [N, width] (row_distance.h).
virtual at::Tensor pool_features(const at::Tensor& x, int64_t width) const PRIMITIVE;

// -- Attention (attention.h, kv_store.h). Roots of the forest start at position 0.
// q [n, num_heads * head_dim] of the tokens [first, first + n), and k, v [N, num_kv_heads *
// head_dim] of all tokens, before norm and rotary embedding. The result has n rows. v, and its
// gradient, are undefined where values are in keys.
virtual AttentionResult attention(const AttentionSpec& spec, const RotaryTable& rotary,
                                  const Forest& forest, int64_t first, const at::Tensor& q,
                                  const at::Tensor& k, const at::Tensor& v) const PRIMITIVE;
virtual AttentionGradients attention_backward(const AttentionSpec& spec, const RotaryTable& rotary,
                                              const Forest& forest, int64_t first,
                                              const at::Tensor& q, const at::Tensor& k,
                                              const at::Tensor& v, const AttentionResult& result,
                                              const at::Tensor& dout) const PRIMITIVE;
// Peak bytes of temporary memory in attention() and attention_backward() of such a pass, without
// their arguments and results. An upper bound on devices; 0 where it is negligible.
virtual int64_t attention_scratch(const AttentionSpec& spec, const PassSize& pass,
                                  at::Device device) const PRIMITIVE;
// An empty store for the keys and values of layers with these specs (at least one), of which only
// the key-value heads, head_dim, values_in_keys and cache_dtype matter. A layer without key-value
// heads takes no memory.
virtual std::unique_ptr<KvStore> make_store(std::span<const AttentionSpec> layers,
                                            at::Device device) const PRIMITIVE;
// The layout of the pages of such a store.
virtual CachePage cache_page(std::span<const AttentionSpec> layers,
                             at::Device device) const PRIMITIVE;

// -- Layers with a state (recurrent.h)
virtual at::Tensor short_convolution(const ConvolutionWeights& weights, bool silu,
                                     const Forest& forest, const at::Tensor& x,
                                     const CarriedStates& carried) const PRIMITIVE;
// Returns dx and the gradients of the weights.
virtual std::pair<at::Tensor, ConvolutionWeights> short_convolution_backward(
    const ConvolutionWeights& weights, bool silu, const Forest& forest, const at::Tensor& x,
    const at::Tensor& dy) const PRIMITIVE;
virtual at::Tensor gated_delta_rule(const DeltaRuleSpec& spec, const Forest& forest,
                                    const DeltaRuleInputs& inputs,
                                    const CarriedStates& carried) const PRIMITIVE;
// Gradients of the inputs.
virtual DeltaRuleInputs gated_delta_rule_backward(const DeltaRuleSpec& spec, const Forest& forest,
                                                  const DeltaRuleInputs& inputs,
                                                  const at::Tensor& dout) const PRIMITIVE;

// -- Attention maps (attention_maps.h)
virtual HeadVectors head_vectors(const AttentionSpec& spec, const RotaryTable& rotary,
                                 const Forest& forest, const at::Tensor& q,
                                 const at::Tensor& k) const PRIMITIVE;
// From gradients of the head vectors to those of q, k (before norm and rotary embedding) and the
// norms; `v` stays undefined. Overwrites the given gradients.
virtual AttentionGradients head_vectors_backward(const AttentionSpec& spec,
                                                 const RotaryTable& rotary, const Forest& forest,
                                                 const at::Tensor& q, const at::Tensor& k,
                                                 HeadVectors gradients) const PRIMITIVE;
virtual TileMaps maps(const AttentionSpec& spec, const HeadVectors& heads, const MapTile& tile,
                      bool with_capped) const PRIMITIVE;
// Adds to `gradients` those that follow from dp [heads, rows, keys], the gradient of the
// probabilities. Overwrites dp.
virtual void maps_backward(const AttentionSpec& spec, const HeadVectors& heads, const MapTile& tile,
                           const TileMaps& maps, at::Tensor dp,
                           HeadVectors& gradients) const PRIMITIVE;
// a, b: the student's and the teacher's probabilities [heads of each, rows, keys] -> [rows], the
// distance of attention_cosine_distance(). All four functions may overwrite b.
virtual at::Tensor map_cosine(const MapTile& tile, const at::Tensor& a,
                              const at::Tensor& b) const PRIMITIVE;
// The gradient of Σ_r g[r] value[r] with respect to a.
virtual at::Tensor map_cosine_backward(const MapTile& tile, const at::Tensor& a,
                                       const at::Tensor& b, const at::Tensor& g) const PRIMITIVE;
// The same for attention_squared_error(); map [teacher's heads, student's heads].
virtual at::Tensor map_squared_error(const MapTile& tile, const at::Tensor& a, at::Tensor b,
                                     const at::Tensor& map) const PRIMITIVE;
// The gradient of Σ_r g[r] value[r] with respect to a; adds the one with respect to map to dmap.
virtual at::Tensor map_squared_error_backward(const MapTile& tile, const at::Tensor& a,
                                              at::Tensor b, const at::Tensor& map,
                                              const at::Tensor& g,
                                              at::Tensor& dmap) const PRIMITIVE;

// -- Sweeps over the vocabulary (token_logp.h, divergence.h, top_tokens.h), a tile of logits
// x [rows, columns] at a time. Each tile writes the partial sums of its rows and blocks of
// kLogitsBlock columns into its part of a tensor [M, blocks, n]; join_... adds up the blocks.
virtual HeadTileSize head_tile() const PRIMITIVE;
// In place: applies the scale and the soft cap, and divides by the temperature.
virtual void finish_logits(const HeadSpec& spec, at::Tensor& x) const PRIMITIVE;
// parts [rows, blocks of x, 3], a view: largest logit, Σ exp(x - max), Σ exp(x - max) (x - max).
virtual void softmax_parts(const at::Tensor& x, at::Tensor parts) const PRIMITIVE;
virtual SoftmaxSums join_softmax_parts(const at::Tensor& parts) const PRIMITIVE;
// In place: the logits x of vocabulary entries [first, first + columns) become
// d(Σ_r g[r] logp(target[r]) + h[r] entropy[r]) / dx. target [rows] int64; g, h [rows]; h may be
// undefined.
virtual void softmax_gradient(at::Tensor& x, int64_t first, const at::Tensor& target,
                              const SoftmaxSums& sums, const at::Tensor& g,
                              const at::Tensor& h) const PRIMITIVE;
// to[r, i] = x[r, id[r, i] - first] where that is a column of x; id and to are [rows, k].
virtual void take_entries(const at::Tensor& x, int64_t first, const at::Tensor& id,
                          at::Tensor to) const PRIMITIVE;
// x[r, id[r, i] - first] += value[r, i] where that is a column of x.
virtual void add_to_entries(at::Tensor& x, int64_t first, const at::Tensor& id,
                            const at::Tensor& value) const PRIMITIVE;
// Merges a tile's logits, whose ids begin at `first`, into `top` [rows, up to k], which is ordered
// from the most likely token down (ties: the lower id first).
virtual void join_top(TopTokens& top, const at::Tensor& x, int64_t first,
                      int64_t k) const PRIMITIVE;
// parts [rows, blocks of x, 6], a view (kernels::DivergencePart).
virtual void divergence_parts(const at::Tensor& student, const at::Tensor& teacher,
                              at::Tensor parts) const PRIMITIVE;
virtual DivergenceSums join_divergence_parts(const at::Tensor& parts,
                                             DivergenceKind kind) const PRIMITIVE;
// parts [rows, blocks of x, 2], a view (kernels::MixturePart); the sums are of these rows.
virtual void mixture_parts(const at::Tensor& student, const at::Tensor& teacher,
                           const DivergenceSums& sums, double jsd_beta,
                           at::Tensor parts) const PRIMITIVE;
// Sets sums.value and sums.mixture.
virtual void join_mixture_parts(const at::Tensor& parts, double jsd_beta,
                                DivergenceSums& sums) const PRIMITIVE;
// g times the gradient of the divergence with respect to the student's logits.
virtual at::Tensor divergence_gradient(const DivergenceSpec& spec, const at::Tensor& student,
                                       const at::Tensor& teacher, const DivergenceSums& sums,
                                       const at::Tensor& g) const PRIMITIVE;

// -- Optimizer updates of one parameter `value`, in place; all tensors are float32 of its shape
// `first`, `second`: the moments.
virtual void adamw(const AdamWStep& step, const at::Tensor& grad, const at::Tensor& value,
                   const at::Tensor& first, const at::Tensor& second) const PRIMITIVE;
// `buffer`: the momentum buffer; undefined without momentum.
virtual void sgd(const SgdStep& step, const at::Tensor& grad, const at::Tensor& value,
                 const at::Tensor& buffer) const PRIMITIVE;
// Σ x² over all of the tensors, in double, one tensor after the other, with a single
// synchronization of the device.
virtual double sum_of_squares(at::TensorList tensors) const PRIMITIVE;

#undef PRIMITIVE
