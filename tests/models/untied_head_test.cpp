// A checkpoint's head that differs from its embeddings, under a config that ties the two.
#include "temper/models/files/untied_head.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "temper/base/json.h"
#include "temper/io/safetensors.h"
#include "temper/models/files/load.h"
#include "tests/models/golden.h"

using namespace temper;
namespace fs = std::filesystem;
using models::untied_head;

namespace {

const Sequences kUntiedTexts = {{3, 1, 4, 1, 5, 9, 2, 6}};

// A copy of a golden model whose embeddings are tied, with `head` times them as a head of its own
// and what `tied` says of it; null: nothing.
void copy_with_head(const std::string& name, double head, const Json& tied, const Directory& to) {
  const std::string from = golden_model(name);
  TensorMap tensors = read_safetensors(from + "/model.safetensors");
  const at::Tensor own =
      models::to_tensor(tensors.at("model.embed_tokens.weight"), at::kFloat).mul(head).contiguous();
  TensorView view = tensors.at("model.embed_tokens.weight");
  view.data = static_cast<const std::byte*>(own.const_data_ptr());
  tensors["lm_head.weight"] = view;
  write_safetensors(to.path + "/model.safetensors", tensors);
  Json config = read_json_file(from + "/config.json");
  config.erase("tie_word_embeddings");
  if (!tied.is_null()) config["tie_word_embeddings"] = tied;
  std::ofstream(to.path + "/config.json") << config.dump();
}

at::Tensor logp_of(const std::string& directory) {
  return log_probabilities(*models::load_model(directory), kUntiedTexts).detach();
}

}  // namespace

TEST_CASE(
    "a head that differs from the embeddings is kept, whatever the config says or leaves out") {
  for (const auto& [name, says] : {std::pair<std::string, Json>{"llama_linear", true},
                                   {"gemma", true},
                                   {"gemma", nullptr},  // whose class ties
                                   {"lfm2", true}}) {
    CAPTURE(name);
    const Directory another("another"), plain("plain"), equal("equal");
    copy_with_head(name, 1.5, says, another);
    copy_with_head(name, 1.5, false, plain);
    copy_with_head(name, 1, says, equal);
    CHECK(at::equal(logp_of(another.path), logp_of(plain.path)));
    CHECK(difference(logp_of(another.path), logp_of(golden_model(name))) > 0.01);
    CHECK(untied_head(another.path).find("config.json: `tie_word_embeddings`") !=
          std::string::npos);
    CHECK(untied_head(plain.path) == "");

    CHECK(at::equal(logp_of(equal.path), logp_of(golden_model(name))));
    CHECK(untied_head(equal.path) == "");
    CHECK(untied_head(golden_model(name)) == "");

    // What is saved says so.
    const Directory saved("saved");
    models::save_weights(*models::load_model(another.path), saved.path, at::kFloat);
    models::write_model_files({another.path, another.path}, saved.path, at::kFloat);
    CHECK(read_json_file(saved.path + "/config.json")["tie_word_embeddings"] == false);
    CHECK(at::equal(logp_of(saved.path), logp_of(plain.path)));
  }
}

TEST_CASE("a head of another dtype is compared by its values") {
  const Directory to("dtype");
  TensorMap tensors = read_safetensors(golden_model("qwen2") + "/model.safetensors");  // bfloat16
  const at::Tensor same = models::to_tensor(tensors.at("model.embed_tokens.weight"), at::kFloat);
  TensorView view = tensors.at("model.embed_tokens.weight");
  view.dtype = DType::kFloat32;
  view.data = static_cast<const std::byte*>(same.const_data_ptr());
  view.num_bytes *= 2;
  tensors["lm_head.weight"] = view;
  write_safetensors(to.path + "/model.safetensors", tensors);
  fs::copy_file(golden_model("qwen2") + "/config.json", to.path + "/config.json");
  CHECK(untied_head(to.path) == "");
  same.mul_(2);
  write_safetensors(to.path + "/model.safetensors", tensors);
  CHECK(untied_head(to.path) != "");
}

TEST_CASE("weights that are missing or no model's are left to who loads them") {
  const Directory empty("empty");
  fs::copy_file(golden_model("gemma") + "/config.json", empty.path + "/config.json");
  CHECK(untied_head(empty.path) == "");
  std::ofstream(empty.path + "/model.safetensors") << "no weights";
  CHECK(untied_head(empty.path) == "");
}
