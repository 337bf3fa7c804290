// What tests of models share: the golden models, and directories that go with a test.
#pragma once

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/models/model.h"
#include "tests/golden.h"

namespace temper {

using Sequences = std::vector<std::vector<int32_t>>;

// A directory of tests/golden/models.
inline std::string golden_model(const std::string& name) { return golden_path("models/" + name); }

// The program's own families: tests register others under names that begin with `test_`.
inline std::vector<std::string> built_in_families() {
  std::vector<std::string> names = models::families().names();
  std::erase_if(names, [](const std::string& name) { return name.starts_with("test_"); });
  return names;
}

// The directories with a language model in float32 or bfloat16: one of every family, named as its
// model_type, and variants of some.
inline std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("models"))) {
    const std::string path = entry.path().string();
    const bool samples = read_json_file(path + "/expected.json").contains("greedy");
    if (samples && !read_json_file(path + "/config.json").contains("quantization_config"))
      names.push_back(entry.path().filename().string());
  }
  for (const std::string& family : built_in_families()) {
    CAPTURE(family);  // tests/golden/make_model_goldens.py makes it
    CHECK(std::find(names.begin(), names.end(), family) != names.end());
  }
  return names;
}

inline void train_all(models::CausalLM& model) {
  model.each_parameter([](const std::string&, nn::Parameter& p) {
    p.own();
    p.set_trainable(true);
  });
}

// log p of every token after a sequence's first, all sequences packed into one forest.
inline at::Tensor log_probabilities(models::CausalLM& model, const Sequences& sequences,
                                    int adapter = 0) {
  auto forest = std::make_shared<Forest>();
  std::vector<int64_t> rows, target;
  for (const std::vector<int32_t>& tokens : sequences) {
    const int64_t start = forest->num_tokens();
    forest->add_root(tokens);
    for (size_t i = 1; i < tokens.size(); ++i) {
      rows.push_back(start + static_cast<int64_t>(i) - 1);
      target.push_back(tokens[i]);
    }
  }
  const at::Tensor hidden = model.forward({.forest = forest, .adapter = adapter});
  return model.token_logp(hidden, rows, target, {.adapter = adapter}).logp;
}

// The largest of all elements.
inline double difference(const at::Tensor& a, const at::Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return (a.detach() - b.detach()).abs().max().item<double>();
}

// An empty directory that goes with the test.
struct Directory {
  explicit Directory(const std::string& name)
      : path((std::filesystem::temp_directory_path() / str("temper_models_", ::getpid(), "_", name))
                 .string()) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Directory() { std::filesystem::remove_all(path); }
  std::string path;
};

}  // namespace temper
