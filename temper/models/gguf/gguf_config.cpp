#include "temper/models/gguf/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/io/gguf_vocabulary.h"
#include "temper/models/family.h"
#include "temper/models/gguf/gguf_form.h"

namespace temper::models {
namespace {

// Keys that are read, or that change no number: the form need not have them.
constexpr const char* kReadKeys[] = {"vocab_size",
                                     "block_count",
                                     "nextn_predict_layers",
                                     "attention.sliding_window_pattern",
                                     "rope.scaling.finetuned",
                                     "tensor_data_layout"};
// Values that ask for nothing, of keys that the form has only where they ask for something.
constexpr std::pair<const char*, double> kNeutral[] = {{"attention.causal", 1},
                                                       {"attention.sliding_window", 0},
                                                       {"attn_logit_softcapping", 0},
                                                       {"final_logit_softcapping", 0},
                                                       {"expert_count", 0},
                                                       {"expert_used_count", 0},
                                                       {"expert_shared_count", 0},
                                                       {"expert_group_count", 1},
                                                       {"expert_group_used_count", 1},
                                                       {"expert_weights_scale", 1},
                                                       {"leading_dense_block_count", 0},
                                                       {"rope.scaling.factor", 1},
                                                       {"rope.scaling.attn_factor", 1},
                                                       {"rope.scaling.yarn_attn_factor", 1},
                                                       {"rope.scaling.yarn_ext_factor", 1},
                                                       {"rope.scaling.yarn_beta_fast", 32},
                                                       {"rope.scaling.yarn_beta_slow", 1}};

struct Candidate {
  std::string model_type;
  const Family* family;
};

// The family whose architecture it is: one whose own key the file has goes first.
Candidate family_of_file(const GgufSource& source) {
  Candidate plain{"", nullptr};
  std::string names;
  for (const auto& entry : families().list()) {
    if (!entry.value.gguf) continue;
    const GgufArchitecture& own = *entry.value.gguf;
    if (names.find(std::string("`") + own.name + "`") == names.npos)
      names += str(names.empty() ? "" : ", ", "`", own.name, "`");
    if (own.name != source.architecture() || !own.reads) continue;
    if (own.given && source.has(own.given) && source.number(own.given, 0) > 0)
      return {entry.name, &entry.value};
    if (!own.given) plain = {entry.name, &entry.value};
  }
  check<ConfigError>(plain.family, source.where(), ": `general.architecture`: found `",
                     source.architecture(), "`, expected one of ", names);
  return plain;
}

bool same_number(double a, double b) {
  return a == b || std::abs(a - b) <= 2e-6 * std::max(std::abs(a), std::abs(b));
}
// A number stands for a list of that number.
bool same_value(const GgufValue& a, const GgufValue& b) {
  const auto x = gguf_numbers(a), y = gguf_numbers(b);
  if (!x || !y) return a == b;
  if (x->empty() || y->empty()) return x->size() == y->size();
  const bool lists = std::holds_alternative<GgufArray>(a) && std::holds_alternative<GgufArray>(b);
  const size_t count = lists ? std::min(x->size(), y->size()) : std::max(x->size(), y->size());
  for (size_t i = 0; i < count; ++i)
    if (!same_number((*x)[x->size() == 1 ? 0 : i], (*y)[y->size() == 1 ? 0 : i])) return false;
  return true;
}

class ConfigOfFile {
 public:
  ConfigOfFile(const GgufFile& file, const std::string& where)
      : source_(file, where),
        found_(family_of_file(source_)),
        architecture_(*found_.family->gguf) {}

  Json make() {
    set_sizes();
    set_tokens();
    set_flags();
    if (architecture_.windows) set_windows();
    set_caps();
    read_gguf_rope(source_, !architecture_.proportional, config_);
    if (architecture_.exception_layers > 0) {
      const bool exception = layers_ == architecture_.exception_layers;
      config_["query_pre_attn_scalar"] =
          exception ? Json(source_.number("embedding_length") / heads_) : config_["head_dim"];
    }
    if (architecture_.read) architecture_.read(source_, config_);
    check_form();
    return std::move(config_);
  }

 private:
  void set_sizes() {
    if (found_.family->causal_lm) config_["architectures"] = {found_.family->causal_lm};
    config_["model_type"] = found_.model_type;
    const std::vector<int64_t>& embeddings = source_.shape_of("token_embd.weight");
    check<ConfigError>(embeddings.size() == 2, source_.where(), ": tensor `token_embd.weight`: is ",
                       shape_text(embeddings), ", expected two dimensions");
    config_["vocab_size"] = embeddings[0];
    config_["hidden_size"] = source_.number("embedding_length");
    const std::vector<double> widths = source_.by_layer("feed_forward_length", 1);
    if (!widths.empty()) config_["intermediate_size"] = static_cast<int64_t>(widths[0]);
    layers_ = source_.number("block_count") - source_.number("nextn_predict_layers", 0);
    heads_ = source_.number("attention.head_count");
    if (layers_ < 1 || layers_ > kMostLayersOfFile)
      source_.fail("block_count", str("found ", layers_, " layers"));
    if (heads_ < 1) source_.fail("attention.head_count", "found 0, expected at least 1");
    config_["num_hidden_layers"] = layers_;
    config_["num_attention_heads"] = heads_;
    std::vector<double> kv = source_.by_layer("attention.head_count_kv", layers_);
    const auto most = std::max_element(kv.begin(), kv.end());
    config_["num_key_value_heads"] = kv.empty() ? heads_ : static_cast<int64_t>(*most);
    config_["head_dim"] =
        source_.number("attention.key_length", source_.number("embedding_length") / heads_);
    config_["max_position_embeddings"] = source_.number("context_length");
    config_["rms_norm_eps"] = source_.real("attention.layer_norm_rms_epsilon", 1e-5);
  }

  void set_tokens() {
    const std::vector<int32_t> ends = gguf_end_ids(source_.file());
    const auto bos = gguf_token_id(source_.file(), "bos"),
               pad = gguf_token_id(source_.file(), "padding");
    config_["bos_token_id"] = bos ? Json(*bos) : Json();
    config_["eos_token_id"] = ends.empty() ? Json() : Json(ends[0]);
    if (pad) config_["pad_token_id"] = *pad;
  }

  void set_flags() {
    config_["tie_word_embeddings"] = !source_.has_tensor("output.weight") || repeats_embedding();
    config_["attention_bias"] =
        source_.any_block_has("attn_q.bias") || source_.any_block_has("attn_output.bias");
    if (source_.any_block_has("ffn_up.bias")) config_["mlp_bias"] = true;
  }

  // A head that llama.cpp must have even where it is the embedding.
  bool repeats_embedding() const {
    if (!architecture_.needs_head) return false;
    const auto same = [](const TensorView& a, const TensorView& b) {
      return a.dtype == b.dtype && a.num_bytes == b.num_bytes &&
             std::memcmp(a.data, b.data, a.num_bytes) == 0;
    };
    const GgufFile& file = source_.file();
    const auto plain = file.tensors.find("output.weight"),
               of = file.tensors.find("token_embd.weight");
    if (plain != file.tensors.end() && of != file.tensors.end())
      return same(plain->second, of->second);
    const auto blocks = file.blocks.find("output.weight"),
               by = file.blocks.find("token_embd.weight");
    return blocks != file.blocks.end() && by != file.blocks.end() &&
           blocks->second.type.type == by->second.type.type &&
           same(blocks->second.bytes, by->second.bytes);
  }

  void set_windows() {
    const int64_t window = source_.number("attention.sliding_window", 0);
    const bool apply =
        window > 0 && (architecture_.window_layers == 0 || layers_ == architecture_.window_layers);
    config_["sliding_window"] = apply ? Json(window) : Json();
    std::vector<bool> windowed(static_cast<size_t>(layers_), false);
    if (apply) windowed = gguf_windows(source_, layers_, architecture_.window_period);
    config_["layer_types"] = gguf_layer_types(windowed);
    if (!apply && architecture_.window_optional)  // a number is asked for, which no layer has
      config_["sliding_window"] = config_["max_position_embeddings"];
  }

  void set_caps() {
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
      if (const double cap = source_.real(key, 0); cap != 0) config_[key] = cap;
  }

  GgufForm form() const {
    try {
      return gguf_form(HfConfig::parse(config_, source_.where()));
    } catch (const ConfigError& e) {
      throw ConfigError(str(e.what(), " (of the configuration that its keys give)"));
    }
  }

  // What the configuration is written as must be what the file says.
  void check_form() {
    GgufForm made = form();
    const auto value_of = [&](const std::string& key) -> const GgufValue* {
      for (const auto& [name, value] : made.keys)
        if (name == key) return &value;
      return nullptr;
    };
    const std::string rotated = "rope.dimension_count";
    const GgufValue* usual = value_of(source_.full(rotated));
    const int64_t part = source_.number(rotated, -1);
    if (part > 0 && usual && !same_value(*usual, GgufValue(static_cast<uint32_t>(part)))) {
      config_["partial_rotary_factor"] =
          static_cast<double>(part) / config_["head_dim"].get<double>();
      made = form();
    }
    for (const auto& [name, value] : source_.file().keys) {
      if (!name.starts_with(source_.architecture() + ".")) continue;
      const std::string key = name.substr(source_.architecture().size() + 1);
      const GgufValue* own = value_of(name);
      if (own ? same_value(value, *own) : is_neutral(key, value)) continue;
      if (std::find(std::begin(kReadKeys), std::end(kReadKeys), key) != std::end(kReadKeys))
        continue;
      source_.fail(key,
                   str("found ", gguf_shown(value), own ? ", expected " + gguf_shown(*own) : "",
                       "; this is not supported in a `", found_.model_type, "`"));
    }
    check_factors("rope_freqs.weight", made.rope_factors);
    check_factors("rope_factors_long.weight", made.long_factors);
    check_factors("rope_factors_short.weight", made.short_factors);
  }

  bool is_neutral(const std::string& key, const GgufValue& value) const {
    const auto numbers = gguf_numbers(value);
    if (!numbers) return key == "rope.scaling.type" && value == GgufValue(std::string("none"));
    if (numbers->size() != 1) return false;
    const double number = (*numbers)[0];
    using Weights = GgufArchitecture::Weights;
    if (key == "expert_weights_norm")
      return (number != 0) == (architecture_.weights == Weights::kNormalized);
    if (key == "expert_gating_func") return number == 1 && !architecture_.sigmoids;  // softmax
    if (key == "attention.sliding_window" &&
        number >= config_["max_position_embeddings"].get<double>())
      return true;
    for (const auto& [name, neutral] : kNeutral)
      if (key == name && number == neutral) return true;
    return false;
  }

  void check_factors(const char* name, const std::vector<float>& expected) const {
    const std::vector<float> found = source_.values_of(name);
    bool same = found.size() == expected.size();
    for (size_t i = 0; same && i < found.size(); ++i) same = same_number(found[i], expected[i]);
    check<ConfigError>(same, source_.where(), ": tensor `", name, "`: its ", found.size(),
                       " values are not those of the rotary scaling of a `", found_.model_type,
                       "`");
  }

  static constexpr int64_t kMostLayersOfFile = 10000;

  const GgufSource source_;
  const Candidate found_;
  const GgufArchitecture& architecture_;
  int64_t layers_ = 0, heads_ = 0;
  Json config_ = Json::object();
};

}  // namespace

Json gguf_layer_types(const std::vector<bool>& windowed) {
  Json types = Json::array();
  for (const bool window : windowed)
    types.push_back(window ? "sliding_attention" : "full_attention");
  return types;
}

std::vector<bool> gguf_windows(const GgufSource& source, int64_t layers, int64_t period) {
  const char* const key = "attention.sliding_window_pattern";
  std::vector<bool> windowed;
  const GgufValue* value = source.file().find(source.full(key));
  const bool list = value && std::holds_alternative<GgufArray>(*value);
  if (value && !list) period = source.number(key);
  const std::vector<double> listed = list ? source.by_layer(key, layers) : std::vector<double>();
  for (int64_t i = 0; i < layers; ++i)
    windowed.push_back(list ? listed[static_cast<size_t>(i)] != 0
                            : period == 0 || i % period < period - 1);
  return windowed;
}

void read_gguf_experts(const GgufSource& source, const char* count_key, const char* width_key,
                       Json& config) {
  config[count_key] = source.number("expert_count");
  config["num_experts_per_tok"] = source.number("expert_used_count");
  const Json usual = config.value("intermediate_size", Json(0));
  config[width_key] = source.number("expert_feed_forward_length", usual.get<int64_t>());
  if (!config.contains("intermediate_size")) config["intermediate_size"] = config[width_key];
}

void read_gguf_sigmoids(const GgufSource& source, Json& config) {
  read_gguf_experts(source, "n_routed_experts", "moe_intermediate_size", config);
  config["n_shared_experts"] = source.number("expert_shared_count");
  config["routed_scaling_factor"] = source.real("expert_weights_scale", 1);
  config["norm_topk_prob"] = source.flag("expert_weights_norm", false);
  config["n_group"] = source.number("expert_group_count", 1);
  config["topk_group"] = source.number("expert_group_used_count", 1);
  config["first_k_dense_replace"] = source.number("leading_dense_block_count", 0);
}

Json gguf_config(const GgufFile& file, const std::string& where) {
  return ConfigOfFile(file, where).make();
}

}  // namespace temper::models
