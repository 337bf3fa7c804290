#include "temper/models/adapter.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/models/load.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

// What load_adapter says of a good adapter whose config has `change` merged into it.
std::string refusal(const Json& change) {
  const char* source = std::getenv("TEMPER_SOURCE_DIR");
  const std::string base = std::string(source ? source : ".") + "/tests/golden/models/qwen3";
  const fs::path copy = fs::temp_directory_path() / "temper_adapter_test";
  fs::remove_all(copy);
  fs::copy(base + "/adapter", copy);
  Json config = read_json_file(base + "/adapter/adapter_config.json");
  config.merge_patch(change);  // null removes a key
  write_file_atomic((copy / "adapter_config.json").string(), config.dump());
  const auto model = models::load_model(base);
  std::string said;
  try {
    models::load_adapter(*model, copy.string());
  } catch (const ConfigError& error) {
    said = error.what();
  }
  fs::remove_all(copy);
  return said;
}

}  // namespace

TEST_CASE("what an adapter's config asks for and the program does not do is refused by its key") {
  CHECK(refusal({{"peft_type", nullptr}}) == "");  // older files leave it out
  CHECK(refusal({{"alpha_pattern", Json::object()}}) == "");
  for (const auto& [key, value] : {std::pair<const char*, Json>{"peft_type", "IA3"},
                                   {"peft_type", 3},
                                   {"alpha_pattern", {{"q_proj", 32}}},
                                   {"rank_pattern", {{"q_proj", 2}}},
                                   {"use_dora", true},
                                   {"bias", "all"},
                                   {"r", 0}}) {
    const std::string said = refusal({{key, value}});
    CAPTURE(said);
    CHECK(said.find("adapter_config.json") != std::string::npos);
    CHECK(said.find("`" + std::string(key) + "`") != std::string::npos);
  }
}

TEST_CASE("a merged adapter is gone, and another can be added") {
  const char* source = std::getenv("TEMPER_SOURCE_DIR");
  const std::string base = std::string(source ? source : ".") + "/tests/golden/models/qwen3";
  const auto model = models::load_model(base), plain = models::load_model(base);
  const auto names = [](models::CausalLM& m) {
    std::vector<std::string> out;
    m.each_parameter([&](const std::string& name, nn::Parameter&) { out.push_back(name); });
    return out;
  };
  models::load_adapter(*model, base + "/adapter");
  const auto with_adapter = names(*model);
  CHECK(with_adapter.size() > names(*plain).size());
  models::merge_adapters(*model);
  CHECK(names(*model) == names(*plain));
  models::load_adapter(*model, base + "/adapter");
  CHECK(names(*model) == with_adapter);
}
