// What tests of models share: the golden models, and directories that go with a test.
#pragma once

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "temper/base/error.h"
#include "temper/models/model.h"
#include "tests/golden.h"

namespace temper {

using Sequences = std::vector<std::vector<int32_t>>;

// A directory of tests/golden/models.
inline std::string golden_model(const std::string& name) { return golden_path("models/" + name); }

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
  return model.token_logp(hidden, rows, target, 1, false, false, adapter).logp;
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
