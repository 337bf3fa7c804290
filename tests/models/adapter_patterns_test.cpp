// Ranks, scales and layers of fresh adapters by patterns, as PEFT reads them.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/load.h"
#include "tests/models/golden.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

// "PATH rank scale" of every layer that has an adapter.
std::set<std::string> sizes(nn::Module& model) {
  std::set<std::string> found;
  model.visit({.linear = [&](const std::string& path, nn::Linear& layer) {
    if (nn::Lora* lora = layer.lora())
      found.insert(str(path, " ", lora->lora_A.weight.whole_shape()[0], " ", lora->scale));
  }});
  return found;
}

std::string refusal(const models::LoraConfig& config) {
  const auto model = models::load_model(golden_model("llama"));
  try {
    models::add_lora(*model, config, 0);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("one text of target modules is a regular expression that matches whole paths") {
  const auto model = models::load_model(golden_model("llama"));
  models::LoraConfig config{.rank = 2, .alpha = 4};
  // re.fullmatch: the end of a path alone does not match.
  config.target_modules = {R"(model\.layers\.[1-9]\.(self_attn\.[qv]_proj|mlp\.down_proj))"};
  models::add_lora(*model, config, 0);
  CHECK(sizes(*model) == std::set<std::string>{"model.layers.1.self_attn.q_proj 2 2",
                                               "model.layers.1.self_attn.v_proj 2 2",
                                               "model.layers.1.mlp.down_proj 2 2"});
  config.target_modules = {"layers.*q_proj"};
  CHECK(refusal(config).starts_with(
      "adapter.target_modules: no linear layer's path is matched whole by `layers.*q_proj`; there "
      "is model.layers.0."));
  config.target_modules = {"(q_proj"};
  CHECK(refusal(config).starts_with("adapter.target_modules: "));
  config.target_modules = {".*q_proj", "down_proj"};  // a list has names
  CHECK(refusal(config).find("`.*q_proj` names no linear layer") != std::string::npos);
}

TEST_CASE("the first pattern that fits the end of a path says its rank and its alpha") {
  const auto model = models::load_model(golden_model("llama"));
  models::LoraConfig config{.rank = 2, .alpha = 4};
  config.target_modules = {"q_proj", "down_proj"};
  config.rank_pattern = {{"layers.1.self_attn.q_proj", 4}, {".*q_proj", 3}};
  config.alpha_pattern = {{"down_proj", 1}, {"q_proj", 6}};
  models::add_lora(*model, config, 0);
  const std::set<std::string> expected{
      "model.layers.0.self_attn.q_proj 3 2", "model.layers.1.self_attn.q_proj 4 1.5",
      "model.layers.0.mlp.down_proj 2 0.5", "model.layers.1.mlp.down_proj 2 0.5"};
  CHECK(sizes(*model) == expected);

  const fs::path directory = fs::temp_directory_path() / "temper_adapter_patterns_test";
  models::save_adapter(*model, config, golden_model("llama"), directory.string());
  const Json written = read_json_file((directory / "adapter_config.json").string());
  CHECK(written["rank_pattern"].dump() == R"({"layers.1.self_attn.q_proj":4,".*q_proj":3})");
  CHECK(written["alpha_pattern"].dump() == R"({"down_proj":1.0,"q_proj":6.0})");
  const auto again = models::load_model(golden_model("llama"));
  const models::LoraConfig read = models::load_adapter(*again, directory.string());
  CHECK((read.rank_pattern == config.rank_pattern));
  CHECK((read.alpha_pattern == config.alpha_pattern));
  CHECK(sizes(*again) == expected);
  fs::remove_all(directory);

  config.rank_pattern = {{"o_proj", 4}};
  CHECK(refusal(config).starts_with(
      "adapter.rank_pattern: `o_proj` fits no layer that has an adapter; expected the end of"));
  config.rank_pattern = {{"*", 4}};
  CHECK(refusal(config).starts_with("adapter.rank_pattern: "));
}
