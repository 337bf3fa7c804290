#include "temper/distill/strategy.h"

#include <numeric>

namespace temper::distill {

std::vector<LayerPair> StrategyContext::pairs() const {
  return layer_pairs(config.distill.layers, student.num_layers, teacher->num_layers,
                     config.where("distill.layers"));
}

std::vector<LayerPair> StrategyContext::attention_pairs() const {
  const auto require_attention = [this](const char* of, models::CausalLM& model, int64_t layer) {
    const std::string hidden = model.body().why_no_attention_maps(layer);
    config.require(hidden.empty(), "distill.layers", "found layer ", layer, " of the ", of,
                   ", which ", hidden, ": ", config.distill.strategy,
                   " cannot compute its attention maps; expected layers with attention and keys of "
                   "their own");
  };
  std::vector<LayerPair> found = pairs();
  for (const LayerPair& pair : found) {
    require_attention("student", student, pair.student);
    require_attention("teacher", *teacher, pair.teacher);
  }
  return found;
}

void StrategyContext::require_whole_head() const {
  config.require(!student.adapts_head(), "adapter.target_modules",
                 "lm_head is not adapted where whole distributions are compared; leave it out, or "
                 "add it to adapter.modules_to_save instead");
}

const std::vector<std::string>& strategy_keys() {
  static const std::vector<std::string> keys{"alpha",
                                             "temperature",
                                             "divergence",
                                             "jsd_beta",
                                             "top_k",
                                             "cross_tokenizer",
                                             "layers",
                                             "projection_learning_rate",
                                             "off_policy_fraction",
                                             "lambda",
                                             "seq_kd"};
  return keys;
}

Strategy::Places Strategy::places(const train::ForwardPass& pass) const {
  std::vector<int64_t> all(static_cast<size_t>(pass.forest->num_tokens()));
  std::iota(all.begin(), all.end(), 0);
  return {std::move(all)};
}

Registry<StrategyEntry>& strategies() {
  static const std::vector<std::string> logits{"alpha",    "temperature", "divergence",
                                               "jsd_beta", "top_k",       "cross_tokenizer"};
  static const std::vector<std::string> layers{"alpha", "layers"};
  static const std::vector<std::string> maps{"alpha", "layers", "projection_learning_rate"};
  static const std::vector<std::string> sampled{
      "temperature",     "divergence",          "jsd_beta", "top_k",
      "cross_tokenizer", "off_policy_fraction", "lambda",   "seq_kd"};
  static Registry<StrategyEntry> table(
      "distillation strategy",
      {{"logit",
        {&make_logit, logits},
        "divergence of the next-token distributions of student and teacher",
        "Hinton et al., arXiv 1503.02531, section 2"},
       {"attention_transfer",
        {&make_attention_transfer, layers},
        "cosine distance of attention maps, the teacher's heads averaged in groups",
        "after Zagoruyko and Komodakis, arXiv 1612.03928; Wang et al. (MiniLM), arXiv 2002.10957, "
        "section 3.1"},
       {"attention_projection",
        {&make_attention_projection, maps},
        "squared error of attention maps through a learned projection of heads",
        "after Jiao et al. (TinyBERT), arXiv 1909.10351, equation 7; the map of heads is an "
        "extension"},
       {"feature_pooling",
        {&make_feature_pooling, layers},
        "cosine distance of hidden states, the teacher's average-pooled to the student's width",
        "after Romero et al. (FitNets), arXiv 1412.6550"},
       {"feature_projection",
        {&make_feature_projection, maps},
        "squared error of hidden states through a learned projection to the teacher's width",
        "Romero et al., arXiv 1412.6550, equation 3; Jiao et al., arXiv 1909.10351, equation 8"},
       {"on_policy",
        {&make_on_policy, sampled, true},
        "divergence of the next-token distributions on the student's own samples",
        "Agarwal et al. (GKD), arXiv 2306.13649, algorithm 1; Thinking Machines, 2025"}});
  return table;
}

}  // namespace temper::distill
