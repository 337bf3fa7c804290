// Models that quantizing tools wrote (tests/golden/make_checkpoint_goldens.py): their matrices have
// the values that the tool reads, to the bit or nearly, and damaged files are refused by name.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/file.h"
#include "temper/base/sha256.h"
#include "temper/generate/score.h"
#include "temper/io/weight_files.h"
#include "temper/models/files/checkpoint_format.h"
#include "temper/models/files/load.h"
#include "tests/models/golden.h"

namespace temper {

// Matrices of a golden model whose values are the tool's, and all that it has.
struct GoldenMatrices {
  int64_t equal = 0, all = 0;
};
inline GoldenMatrices golden_matrices(const std::string& name) {
  const std::string directory = golden_model(name);
  TensorMap tensors = read_weights(directory);
  models::open_formats(tensors, models::HfConfig::load(directory), directory);
  GoldenMatrices found;
  const Json expected = read_json_file(directory + "/expected.json");
  for (const auto& [matrix, sha256] : expected["sha256"].items()) {
    CAPTURE(matrix);
    ++found.all;
    const models::CodedMatrix* coded = models::coded_matrix(tensors.at(matrix));
    REQUIRE(coded);
    const TensorView values = coded->values();
    CHECK(values.shape == tensors.at(matrix).shape);
    found.equal += sha256_hex(bytes_of(values)) == sha256;
  }
  return found;
}

// The largest difference of log-probabilities from the tool's model.
inline double golden_difference(const std::string& name, const models::Storage& storage) {
  const at::NoGradGuard no_grad;
  const std::string directory = golden_model(name);
  const auto model = models::load_model(directory, storage, false);
  std::vector<float> found;
  const Json sequences = read_json_file(directory + "/expected.json")["sequences"];
  for (const auto& tokens : sequences.get<Sequences>()) {
    const auto scores = generate::score(*model, {{tokens, 1}});
    found.insert(found.end(), scores[0].logprobs.begin(), scores[0].logprobs.end());
  }
  const at::Tensor expected = models::to_tensor(
      read_safetensors(directory + "/expected.safetensors").at("logp"), at::kFloat);
  return difference(at::tensor(found), expected);
}

// How many matrices of the model are kept in quantized formats.
inline int64_t kept_matrices(const std::string& name) {
  const auto model = models::load_model(golden_model(name), {.file = true}, false);
  int64_t kept = 0;
  model->each_parameter(
      [&](const std::string&, nn::Parameter& p) { kept += p.stored().quantized != nullptr; });
  return kept;
}

// A golden model that a test damages.
class DamagedModel {
 public:
  explicit DamagedModel(const std::string& name)
      : config(read_json_file(golden_model(name) + "/config.json")),
        folder_("damaged_" + name),
        whole_(read_weights(golden_model(name))),
        whole_config_(config) {}

  // Changes tensors or `config`, and expects that reading then fails with an error that holds all
  // of the texts.
  template <class Kind>
  void refused(const std::vector<std::string>& texts,
               const std::function<void(TensorMap& tensors, Json& quantization)>& damage) {
    TensorMap tensors = whole_;
    config = whole_config_;
    damage(tensors, config["quantization_config"]);
    write_safetensors(folder_.path + "/model.safetensors", tensors);
    write_file_atomic(folder_.path + "/config.json", config.dump());
    CAPTURE(texts[0]);
    std::string message = "nothing";
    try {
      models::load_model(folder_.path, {.file = true}, false);
    } catch (const Kind& e) {
      message = e.what();
    }
    CAPTURE(message);
    CHECK(message.find(folder_.path) != message.npos);
    for (const std::string& text : texts) CHECK(message.find(text) != message.npos);
  }

  Json config;

 private:
  Directory folder_;
  TensorMap whole_;
  Json whole_config_;
};

// Replaces a tensor.
inline void put(TensorMap& tensors, const std::string& name, const at::Tensor& value) {
  tensors.at(name) = models::to_view(value);
}
inline at::Tensor tensor_of(const TensorMap& tensors, const std::string& name,
                            at::ScalarType type) {
  return models::to_tensor(tensors.at(name), type).clone();
}

}  // namespace temper
