#include "temper/models/gguf_form.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/decoder.h"

namespace temper::models {
namespace {

using Rope = nn::RotaryConfig;

const GgufArchitecture& architecture_of(const HfConfig& config) {
  const Family& family = family_of(config);
  if (family.gguf) return *family.gguf;
  std::string names;
  for (const auto& known : families().list())
    if (known.value.gguf) names += (names.empty() ? "" : ", ") + known.name;
  config.fail("model_type",
              "`" + config.model_type() +
                  "` has no form in GGUF that Temper knows; these families have one: " + names +
                  "; export the model with --format hf");
}

class Mapping {
 public:
  explicit Mapping(const HfConfig& config)
      : source_(config),
        architecture_(architecture_of(config)),
        c_(family_of(config).config(config)) {}

  GgufForm form() {
    refuse_what_differs();
    out_.architecture = architecture_.name;
    out_.vocab_size = c_.vocab_size;
    out_.interleaved = architecture_.interleaved;
    out_.num_heads = c_.attention.num_heads;
    out_.num_kv_heads = c_.attention.num_kv_heads;
    out_.norm_plus_one = c_.attention.norm_one_plus;
    out_.sandwich = architecture_.windows;
    add_sizes();
    if (architecture_.windows) add_windows();
    add_caps();
    add_rope(c_.rotary);
    set_query_scale();
    return std::move(out_);
  }

 private:
  void add(const std::string& key, GgufValue value) {
    out_.keys.emplace_back(std::string(architecture_.name) + "." + key, std::move(value));
  }
  void number(const std::string& key, int64_t value) { add(key, static_cast<uint32_t>(value)); }
  void real(const std::string& key, double value) { add(key, static_cast<float>(value)); }
  [[noreturn]] void refuse(const char* key, const std::string& found) const {
    source_.fail(key, str(found, ": llama.cpp's `", architecture_.name,
                          "` has no form for it; export the model with --format hf"));
  }

  bool has_windows() const {
    // One that is as long as any text changes nothing.
    for (const int64_t window : c_.window)
      if (window > 0 && (architecture_.windows || window < c_.max_position_embeddings)) return true;
    return false;
  }

  void refuse_what_differs() const {
    const auto& a = c_.attention;
    if (a.o_bias && !architecture_.output_bias)
      refuse("attention_bias", "a bias of attention's output");
    if (c_.mlp_bias && !architecture_.mlp_bias) refuse("mlp_bias", "a bias in the MLP");
    const auto wanted = architecture_.gelu ? ops::Activation::kGeluTanh : ops::Activation::kSilu;
    if (c_.activation != wanted)
      refuse(source_.has("hidden_activation") ? "hidden_activation" : "hidden_act",
             str("another activation than ", architecture_.gelu ? "tanh's gelu" : "silu"));
    if (!c_.tie_word_embeddings && !architecture_.own_head)
      refuse("tie_word_embeddings", "a head of its own");
    if (!architecture_.own_head_size && a.head_dim * a.num_heads != c_.hidden_size)
      refuse("head_dim",
             str(a.num_heads, " heads of ", a.head_dim, " with a hidden size of ", c_.hidden_size));
    if (!architecture_.windows && has_windows())
      refuse(source_.has("use_sliding_window") ? "use_sliding_window" : "sliding_window",
             "layers that attend to a window");
  }

  void add_sizes() {
    const auto& a = c_.attention;
    number("context_length", c_.max_position_embeddings);
    number("embedding_length", c_.hidden_size);
    number("block_count", c_.num_hidden_layers);
    number("feed_forward_length", c_.intermediate_size);
    number("attention.head_count", a.num_heads);
    number("attention.head_count_kv", a.num_kv_heads);
    number("attention.key_length", a.head_dim);
    number("attention.value_length", a.head_dim);
    real("attention.layer_norm_rms_epsilon", a.norm_eps);
    number("vocab_size", c_.vocab_size);
    number("rope.dimension_count", a.head_dim);
  }

  void add_windows() {
    int64_t window = 0;
    bool usual = true;
    std::vector<uint32_t> windowed;
    for (int64_t i = 0; i < c_.num_hidden_layers; ++i) {
      const int64_t of_layer = c_.window[static_cast<size_t>(i)];
      window = std::max(window, of_layer);
      windowed.push_back(of_layer > 0);
      const bool expected = i % architecture_.window_period < architecture_.window_period - 1;
      usual = usual && expected == (of_layer > 0);
    }
    // Without any, gemma3 reads a missing window as none, gemma2 as one of 4096.
    number("attention.sliding_window", window > 0 ? window : c_.max_position_embeddings);
    if (!usual) add("attention.sliding_window_pattern", GgufArray(std::move(windowed)));
  }

  void add_caps() {
    const bool capped = architecture_.soft_caps;
    const double attention = c_.attention.soft_cap, last = c_.final_soft_cap;
    if (capped && (attention == 0 || last == 0))
      refuse(attention == 0 ? "attn_logit_softcapping" : "final_logit_softcapping", "no soft cap");
    if (!capped && attention != 0) refuse("attn_logit_softcapping", str(attention));
    if (attention != 0) real("attn_logit_softcapping", attention);
    if (last != 0) real("final_logit_softcapping", last);
  }

  void add_rope(const Rope& rope) {
    real("rope.freq_base", rope.theta);
    if (c_.local_rotary) {
      if (c_.local_rotary->kind != Rope::Kind::kDefault)
        refuse("rope_parameters", "scaled positions in layers with a window");
      real("rope.freq_base_swa", c_.local_rotary->theta);
    }
    switch (rope.kind) {
      case Rope::Kind::kDefault:
      case Rope::Kind::kDynamic:  // up to max_position_embeddings the same
        return;
      case Rope::Kind::kLinear:
        add("rope.scaling.type", std::string("linear"));
        real("rope.scaling.factor", rope.factor);
        return;
      case Rope::Kind::kLlama3:
        return set_rope_factors(rope);
      case Rope::Kind::kYarn:
        return add_yarn(rope);
      case Rope::Kind::kLongRope:
      case Rope::Kind::kProportional:
        refuse(rope_key(), "`rope_type` longrope or proportional");
    }
  }

  void set_rope_factors(const Rope& rope) {
    if (!architecture_.rope_factors) refuse(rope_key(), "`rope_type` llama3");
    Rope plain;
    plain.theta = rope.theta;
    const nn::Rotary scaled(rope, c_.attention.head_dim), without(plain, c_.attention.head_dim);
    for (size_t i = 0; i < without.inverse_frequency().size(); ++i)
      out_.rope_factors.push_back(without.inverse_frequency()[i] / scaled.inverse_frequency()[i]);
  }

  // llama.cpp's factor of cosines and sines is the usual one times `attn_factor`.
  void add_yarn(const Rope& rope) {
    if (c_.local_rotary) refuse(rope_key(), "`rope_type` yarn");
    if (rope.beta_fast != 32 || rope.beta_slow != 1 || !rope.truncate)
      refuse(rope_key(), "yarn with other values than beta_fast 32, beta_slow 1, truncate true");
    add("rope.scaling.type", std::string("yarn"));
    real("rope.scaling.factor", rope.factor);
    number("rope.scaling.original_context_length",
           std::llround(rope.original_max_position_embeddings));
    const double factor = rope.attention_factor / nn::yarn_attention_factor(rope.factor);
    if (std::abs(factor - 1) > 1e-6) real("rope.scaling.attn_factor", factor);
  }
  const char* rope_key() const {
    return source_.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  }

  void set_query_scale() {
    const auto& a = c_.attention;
    const bool exception = c_.num_hidden_layers == architecture_.exception_layers;
    const int64_t size = exception ? c_.hidden_size / a.num_heads : a.head_dim;
    const double own = 1 / std::sqrt(static_cast<double>(size));
    if (std::abs(a.scale / own - 1) > 1e-9) out_.query_scale = a.scale / own;
    out_.scale_query_norm = a.qk_norm;
  }

  const HfConfig& source_;
  const GgufArchitecture& architecture_;
  const DecoderConfig c_;
  GgufForm out_;
};

}  // namespace

GgufForm gguf_form(const HfConfig& config) { return Mapping(config).form(); }

}  // namespace temper::models
