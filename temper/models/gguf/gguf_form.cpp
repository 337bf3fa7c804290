#include "temper/models/gguf/gguf_form.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/decoder.h"

namespace temper::models {

void GgufForm::set(std::string_view key, GgufValue value) {
  const std::string full = str(architecture, ".", key);
  const auto found = std::find_if(keys.begin(), keys.end(),
                                  [&](const auto& known) { return known.first == full; });
  if (found == keys.end())
    keys.emplace_back(full, std::move(value));
  else
    found->second = std::move(value);
}
void GgufForm::set_number(std::string_view key, int64_t value) {
  set(key, static_cast<uint32_t>(value));
}
void GgufForm::set_real(std::string_view key, double value) { set(key, static_cast<float>(value)); }
void GgufForm::refuse(const HfConfig& source, const char* key, const std::string& found) const {
  source.fail(key, str(found, ": llama.cpp's `", architecture,
                       "` has no form for it; export the model with --format hf"));
}

namespace {

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
    out_.architecture = architecture_.name;
    refuse_what_differs();
    refuse_positions();
    out_.vocab_size = c_.vocab_size;
    out_.character_model = architecture_.character_model;
    // Where the checkpoint's rows lie in pairs, they stay.
    out_.interleaved = architecture_.interleaved && !c_.rotary.interleaved;
    out_.num_heads = c_.attention.num_heads;
    out_.num_kv_heads = c_.attention.num_kv_heads;
    out_.post_norm = architecture_.post_norm;
    out_.names = architecture_.names;
    out_.repeats_embedding = architecture_.needs_head && c_.tie_word_embeddings;
    add_sizes();
    if (architecture_.windows && (architecture_.window_layers == 0 || has_windows())) add_windows();
    add_caps();
    add_gguf_rope(source_, architecture_, c_, out_);
    set_query_scale();
    if (c_.sparse) add_gguf_experts(source_, architecture_, c_, out_);
    if (architecture_.add) architecture_.add(source_, c_, out_);
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const char* key, const std::string& found) const {
    out_.refuse(source_, key, found);
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
      refuse(source_.has("attention_out_bias") ? "attention_out_bias" : "attention_bias",
             "a bias of attention's output");
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
    if (!architecture_.fewer_kv_heads && a.num_kv_heads != a.num_heads)
      refuse("num_key_value_heads", str(a.num_kv_heads, " of ", a.num_heads, " heads"));
    if (!architecture_.windows && has_windows())
      refuse(source_.has("use_sliding_window") ? "use_sliding_window" : "sliding_window",
             "layers that attend to a window");
  }

  void refuse_positions() const {
    const int64_t of_windows = architecture_.window_layers, period = architecture_.rotation_period;
    if (of_windows > 0 && has_windows() != (c_.num_hidden_layers == of_windows))
      refuse("sliding_window", str(has_windows() ? "windows" : "no windows", " in a model of ",
                                   c_.num_hidden_layers, " layers"));
    const bool by_window = architecture_.window_rotates && (of_windows == 0 || has_windows());
    for (int64_t i = 0; i < c_.num_hidden_layers; ++i) {
      const auto layer = static_cast<size_t>(i);
      const bool rotates = by_window ? c_.window[layer] > 0 : period == 0 || (i + 1) % period != 0;
      if (c_.rotates[layer] != rotates)
        refuse(source_.has("no_rope_layers") ? "no_rope_layers" : "sliding_window",
               str("layer ", i, rotates ? " without positions" : " with positions"));
    }
  }

  void add_sizes() {
    const auto& a = c_.attention;
    out_.set_number("context_length", c_.max_position_embeddings);
    out_.set_number("embedding_length", c_.hidden_size);
    out_.set_number("block_count", c_.num_hidden_layers);
    out_.set_number("feed_forward_length", c_.intermediate_size);
    out_.set_number("attention.head_count", a.num_heads);
    out_.set_number("attention.head_count_kv", a.num_kv_heads);
    out_.set_number("attention.key_length", a.head_dim);
    out_.set_number("attention.value_length", a.head_dim);
    out_.set_real(
        c_.norm_centered ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
        a.norm_eps);
    out_.set_number("vocab_size", c_.vocab_size);
  }

  void add_windows() {
    int64_t window = 0;
    bool usual = architecture_.window_period > 0;
    std::vector<uint32_t> windowed;
    for (int64_t i = 0; i < c_.num_hidden_layers; ++i) {
      const int64_t of_layer = c_.window[static_cast<size_t>(i)];
      window = std::max(window, of_layer);
      windowed.push_back(of_layer > 0);
      const int64_t period = architecture_.window_period;
      const bool expected = period > 0 && i % period < period - 1;
      usual = usual && expected == (of_layer > 0);
    }
    if (window == 0) return add_no_window();
    out_.set_number("attention.sliding_window", window);
    if (!usual) out_.set("attention.sliding_window_pattern", GgufArray(std::move(windowed)));
  }

  // llama.cpp does not load a pattern without any layer that has a window.
  void add_no_window() {
    if (architecture_.window_rotates)
      refuse(source_.has("layer_types") ? "layer_types" : "sliding_window",
             "no layer with a window");
    if (!architecture_.window_optional)
      out_.set_number("attention.sliding_window", c_.max_position_embeddings);
  }

  void add_caps() {
    const bool capped = architecture_.soft_caps;
    const double attention = c_.attention.soft_cap, last = c_.final_soft_cap;
    if (capped && (attention == 0 || last == 0))
      refuse(attention == 0 ? "attn_logit_softcapping" : "final_logit_softcapping", "no soft cap");
    if (!capped && attention != 0) refuse("attn_logit_softcapping", str(attention));
    if (attention != 0) out_.set_real("attn_logit_softcapping", attention);
    if (last != 0) out_.set_real("final_logit_softcapping", last);
  }

  void set_query_scale() {
    if (architecture_.own_scale) return;
    const auto& a = c_.attention;
    const bool exception = c_.num_hidden_layers == architecture_.exception_layers;
    const int64_t size = exception ? c_.hidden_size / a.num_heads : a.head_dim;
    const double own = 1 / std::sqrt(static_cast<double>(size));
    if (architecture_.scale_key) return out_.set_real("attention.scale", a.scale);
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
