#include <algorithm>

#include "temper/base/error.h"
#include "temper/models/gguf/gguf_form.h"
#include "temper/models/sparse_mlp.h"

namespace temper::models {
namespace {

constexpr int64_t kGgufSigmoid = 2;  // llama.cpp's number of the function of a router's logits

void refuse_dense_layers(const HfConfig& source, const GgufArchitecture& architecture,
                         const SparseConfig& sparse, GgufForm& form) {
  const auto first = std::find(sparse.layers.begin(), sparse.layers.end(), true);
  const bool all_later = std::find(first, sparse.layers.end(), false) == sparse.layers.end();
  if (!all_later || (first != sparse.layers.begin() && !architecture.dense_first))
    form.refuse(source, source.has("mlp_only_layers") ? "mlp_only_layers" : "decoder_sparse_step",
                "layers with an MLP in place of experts");
  if (architecture.dense_first)
    form.set_number("leading_dense_block_count", first - sparse.layers.begin());
}

void add_weights(const HfConfig& source, const GgufArchitecture& architecture,
                 const ops::RouterSpec& router, GgufForm& form) {
  using Weights = GgufArchitecture::Weights;
  if (architecture.weights == Weights::kByKey)
    form.set("expert_weights_norm", router.normalize);
  else if (router.normalize != (architecture.weights == Weights::kNormalized))
    form.refuse(source, "norm_topk_prob",
                router.normalize ? "weights of experts that are normalized"
                                 : "weights of experts that are not normalized");
  if (!architecture.sigmoids) return;
  form.set_number("expert_gating_func", kGgufSigmoid);
  form.set_real("expert_weights_scale", router.scale);
  if (router.groups == 1) return;
  form.set_number("expert_group_count", router.groups);
  form.set_number("expert_group_used_count", router.chosen_groups);
}

}  // namespace

void add_gguf_experts(const HfConfig& source, const GgufArchitecture& architecture,
                      const DecoderConfig& c, GgufForm& form) {
  const SparseConfig& sparse = *c.sparse;
  refuse_dense_layers(source, architecture, sparse, form);
  form.set_number("expert_count", sparse.router.experts);
  form.set_number("expert_used_count", sparse.router.chosen);
  form.set_number("expert_feed_forward_length", sparse.width);
  if (sparse.shared_gate)
    form.set_number("expert_shared_feed_forward_length", sparse.shared_width);
  else if (sparse.shared_width > 0)
    form.set_number("expert_shared_count", sparse.shared_width / sparse.width);
  add_weights(source, architecture, sparse.router, form);
  form.interleaved_unit = sparse.unit.interleaved;
}

}  // namespace temper::models
