// The rotary positions of a GGUF file as keys of config.json, in transformers 4's form, which 5
// reads, too.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/gguf/gguf_config.h"
#include "temper/nn/rotary.h"

namespace temper::models {
namespace {

using RopeOfFile = nn::RotaryConfig;

bool gives_factors(const RopeOfFile& rope, int64_t head_dim, const std::vector<float>& factors) {
  RopeOfFile plain;
  plain.theta = rope.theta;
  const nn::Rotary scaled(rope, head_dim), without(plain, head_dim);
  const auto &of_scaled = scaled.inverse_frequency(), &of_plain = without.inverse_frequency();
  if (of_plain.size() != factors.size()) return false;
  for (size_t i = 0; i < factors.size(); ++i)
    if (std::abs(of_plain[i] / of_scaled[i] - factors[i]) > 1e-6 * std::abs(factors[i]))
      return false;
  return true;
}

// Llama 3's scaling that divides frequencies by these factors. Only the ratios of its lengths to
// the original one count; files are made of models that have one of these.
Json llama3_scaling(const GgufSource& source, const Json& config,
                    const std::vector<float>& factors) {
  constexpr std::pair<double, double> kShares[] = {{1, 4}, {1, 2}, {1, 8}, {2, 4}};
  RopeOfFile rope;
  rope.kind = RopeOfFile::Kind::kLlama3;
  rope.theta = config["rope_theta"];
  const auto head_dim = config["head_dim"].get<int64_t>();
  // The size of a head is a file's number, and takes memory from here on.
  if (static_cast<int64_t>(factors.size()) * 2 != head_dim)
    throw ConfigError(str(source.where(), ": tensor `rope_freqs.weight`: ", factors.size(),
                          " values for heads of ", head_dim, " features, expected one a pair"));
  const double most = *std::max_element(factors.begin(), factors.end());
  for (const double factor : {std::round(most), most})
    for (const auto& [low, high] : kShares)
      for (double original = 8; original <= 1 << 24; original *= 2) {
        rope.factor = std::max(1.0, factor);
        rope.low_freq_factor = low;
        rope.high_freq_factor = high;
        rope.original_max_position_embeddings = original;
        if (!gives_factors(rope, head_dim, factors)) continue;
        return {{"rope_type", "llama3"},
                {"factor", rope.factor},
                {"low_freq_factor", low},
                {"high_freq_factor", high},
                {"original_max_position_embeddings", static_cast<int64_t>(original)}};
      }
  throw ConfigError(str(source.where(), ": tensor `rope_freqs.weight`: its ", factors.size(),
                        " values are not those of Llama 3's rotary scaling"));
}

Json yarn_scaling(const GgufSource& source) {
  const double factor = source.real("rope.scaling.factor", 1);
  Json scaling = {
      {"rope_type", "yarn"},
      {"factor", factor},
      {"original_max_position_embeddings", source.number("rope.scaling.original_context_length")}};
  for (const auto& [key, name] : {std::pair("beta_fast", "rope.scaling.yarn_beta_fast"),
                                  std::pair("beta_slow", "rope.scaling.yarn_beta_slow")})
    if (source.has(name)) scaling[key] = source.real(name, 0);
  if (const double own = source.real("rope.scaling.attn_factor", 1); own != 1)
    scaling["attention_factor"] = own * nn::yarn_attention_factor(factor);
  return scaling;
}

Json longrope_scaling(const GgufSource& source, Json& config, const std::vector<float>& shorter) {
  const std::vector<float> longer = source.values_of("rope_factors_long.weight");
  config["original_max_position_embeddings"] =
      source.number("rope.scaling.original_context_length");
  Json scaling = {{"type", "longrope"}, {"rope_type", "longrope"}};
  scaling["short_factor"] = shorter;
  scaling["long_factor"] = longer;
  scaling["attention_factor"] = source.real("rope.scaling.attn_factor", 1);
  return scaling;
}

}  // namespace

void read_gguf_rope(const GgufSource& source, bool llama3, Json& config) {
  config["rope_theta"] = source.real("rope.freq_base", 10000);
  if (!(config["rope_theta"].get<double>() > 0))
    source.fail("rope.freq_base", "expected a number above 0");
  const double factor = source.real("rope.scaling.factor", 0);
  const std::string type =
      source.text("rope.scaling.type", factor != 0 && factor != 1 ? "linear" : "none");
  const std::vector<float> factors = source.values_of("rope_freqs.weight"),
                           shorter = source.values_of("rope_factors_short.weight");
  if (!shorter.empty())
    config["rope_scaling"] = longrope_scaling(source, config, shorter);
  else if (type == "yarn")
    config["rope_scaling"] = yarn_scaling(source);
  else if (type == "linear" && factor != 0)
    config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}};
  else if (!factors.empty() && llama3)
    config["rope_scaling"] = llama3_scaling(source, config, factors);
  else if (type != "none" && type != "linear")
    source.fail("rope.scaling.type", "found `" + type + "`, expected none, linear or yarn");
}

}  // namespace temper::models
