// Models whose weights stay in their files give what models in memory give.
#include "temper/models/files/stream.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "temper/generate/score.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/load.h"
#include "temper/models/files/tensors.h"
#include "temper/ops/weight.h"
#include "tests/models/golden.h"

using namespace temper;
using ops::WeightFormat;
namespace fs = std::filesystem;

namespace {

std::vector<float> streamed_scores(models::CausalLM& model) {
  return generate::score(model, {{{3, 1, 4, 1, 5, 9, 2, 6}, 1}})[0].logprobs;
}

std::string bytes_of_view(const TensorView& view) {
  const TensorView made = view.make ? view.make() : view;
  return {reinterpret_cast<const char*>(made.data), made.num_bytes};
}

// An adapter, with whole modules where the family has a head of its own, written to a directory.
void write_adapter(const std::string& family, bool dora, const std::string& directory) {
  const auto model = models::load_model(golden_model(family));
  models::LoraConfig config{.rank = 3, .alpha = 6, .dora = dora};
  if (!model->config().tie_word_embeddings) config.modules_to_save = {"lm_head", "embed_tokens"};
  models::add_lora(*model, config, 7);
  model->each_parameter([](const std::string& name, nn::Parameter& p) {
    if (name.find("lora_B") != std::string::npos) p.set_value(at::full(p.shape(), 0.03));
    if (p.trainable() && name.find(".lora_") == std::string::npos)
      p.set_value(p.value().detach() * 1.5);
  });
  models::save_adapter(*model, config, "base", directory);
}

}  // namespace

TEST_CASE("a streamed model scores and merges as one in memory, in every storage") {
  for (const char* family : {"qwen3", "qwen3_nf4", "llama", "gemma2"})
    for (const bool adapted : {false, true})
      for (const bool dora : {false, true})
        for (const WeightFormat format : {WeightFormat::kFloat32, WeightFormat::kBFloat16,
                                          WeightFormat::kInt8, WeightFormat::kNf4}) {
          if (dora && !adapted) continue;
          CAPTURE(family);
          CAPTURE(adapted);
          CAPTURE(dora);
          CAPTURE(ops::row_of(format).name);
          const Directory folder("adapter");
          if (adapted) write_adapter(family, dora, folder.path);
          models::Storage storage;
          if (ops::is_quantized(format))
            storage.blocks = format;
          else
            storage.weights = format;
          const auto whole = models::load_model(golden_model(family), storage, false);
          if (adapted) models::load_adapter(*whole, folder.path);
          const auto streamed =
              models::stream_model(golden_model(family), adapted ? folder.path : "", storage);
          CHECK(streamed_scores(*streamed.model) == streamed_scores(*whole));
          models::merge_adapters(*whole);
          for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
            std::map<std::string, std::string> expected;
            whole->each_parameter([&](const std::string& name, nn::Parameter& p) {
              expected[name] = bytes_of_view(models::to_view(p.float_value().detach().to(type)));
            });
            const auto tensors = streamed.weights->merged_tensors(type);
            REQUIRE(tensors.size() == expected.size());
            for (const auto& [name, view] : tensors) {
              CAPTURE(name);
              CHECK(bytes_of_view(view) == expected.at(name));
            }
          }
          CHECK(streamed_scores(*streamed.model).size() == 7);  // it is still there
        }
}

TEST_CASE("a parameter that is converted is made when it is written, one at a time") {
  const auto model = models::load_model(golden_model("qwen3"));
  model->each_parameter([](const std::string&, nn::Parameter& p) {
    CHECK(models::whole_view(p, at::kFloat).data == p.value().const_data_ptr());
    const TensorView converted = models::whole_view(p, at::kBFloat16);
    CHECK(converted.data == nullptr);
    CHECK(bytes_of_view(converted) ==
          bytes_of_view(models::to_view(p.value().detach().to(at::kBFloat16))));
  });
}

TEST_CASE("random weights are made one by one, with the bits of a whole model") {
  const models::HfConfig config = models::HfConfig::load(golden_model("qwen3"));
  const auto whole = models::init_model(config, 5);
  const auto empty = models::make_model(config);
  std::map<std::string, std::string> expected;
  whole->each_parameter([&](const std::string& name, nn::Parameter& p) {
    expected[name] = bytes_of_view(models::to_view(p.value()));
  });
  const auto tensors = models::init_tensors(*empty, config, 5, at::kFloat);
  REQUIRE(tensors.size() == expected.size());
  for (const auto& [name, view] : tensors) CHECK(bytes_of_view(view) == expected.at(name));
}
