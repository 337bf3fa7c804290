// Other weights for a model that is in use: what it computes then is what a model that was loaded
// with them computes.
#include "temper/models/files/reload.h"

#include "temper/base/file.h"
#include "temper/generate/score.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "tests/golden.h"
#include "tests/train/tiny.h"

using namespace temper;
using tiny::Folder;

namespace {

std::vector<float> scores(models::CausalLM& model) {
  return generate::score(model, {{{5, 9, 30, 7, 44, 12}, 1, 0}})[0].logprobs;
}

// A directory with a model of its own weights.
std::string saved(const Folder& folder, const std::string& name, uint64_t seed,
                  const std::string& layers = "2") {
  const std::string directory = folder / name;
  std::filesystem::create_directories(directory);
  const std::string config = R"({"model_type": "qwen3", "vocab_size": 61, "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": )" +
                             layers + R"(, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": true, "eos_token_id": 2})";
  write_file_atomic(directory + "/config.json", config);
  models::save_weights(*models::init_model(models::HfConfig::load(directory), seed), directory,
                       at::kFloat);
  return directory;
}

// An adapter that does something.
std::string saved_adapter(const Folder& folder, const std::string& base, uint64_t seed,
                          std::vector<std::string> whole = {}) {
  const auto model = models::load_model(base);
  models::LoraConfig lora;
  lora.rank = 3;
  lora.modules_to_save = std::move(whole);
  models::add_lora(*model, lora, seed);
  uint64_t n = 0;
  model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (!p.trainable() || name.find("lora_A") != std::string::npos) return;
    p.set_value(p.value().detach() + 0.05 * at::ones(p.shape()) * static_cast<double>(++n % 5));
  });
  const std::string directory = folder / str("adapter-", seed);
  models::save_adapter(*model, lora, base, directory);
  return directory;
}

std::vector<float> scores_of(const std::string& base, const std::string& adapter = "") {
  const auto model = models::load_model(base);
  if (!adapter.empty()) models::load_adapter(*model, adapter);
  return scores(*model);
}

}  // namespace

TEST_CASE("a model computes with the weights that were loaded last") {
  const Folder folder;
  const std::string base = saved(folder, "base", 1), other = saved(folder, "other", 2),
                    plain = saved_adapter(folder, base, 3),
                    whole = saved_adapter(folder, base, 4, {"embed_tokens"});
  CHECK(scores_of(base) != scores_of(base, plain));
  for (const models::Storage& storage :
       {models::Storage{}, models::Storage{ops::WeightFormat::kBFloat16, {}}}) {
    const auto expected = [&](const std::string& of, const std::string& adapter) {
      const auto model = models::load_model(of, storage);
      if (!adapter.empty()) models::load_adapter(*model, adapter);
      return scores(*model);
    };
    const auto model = models::load_model(base, storage);
    models::Reloader reloader(*model, base, storage);
    reloader.load(other);
    CHECK(scores(*model) == expected(other, ""));
    reloader.load(plain);  // on the model that the server was started with
    CHECK(scores(*model) == expected(base, plain));
    reloader.load(whole);
    CHECK(scores(*model) == expected(base, whole));
    reloader.load(plain);
    CHECK(scores(*model) == expected(base, plain));
    reloader.load(base);
    CHECK(scores(*model) == expected(base, ""));
  }
}

TEST_CASE("weights in their files' format come back after floats") {
  const Folder folder;
  const std::string base = golden_path("models/gptq"), floats = folder / "floats";
  models::save_weights(*models::load_model(base), floats, at::kFloat);
  models::write_model_files({base, ""}, floats, at::kFloat);
  models::Storage storage;
  storage.file = true;
  const auto model = models::load_model(base, storage);
  const std::vector<float> before = scores(*model);
  models::Reloader reloader(*model, base, storage);
  reloader.load(floats);
  CHECK(scores(*model) == scores(*models::load_model(floats)));
  reloader.load(base);
  CHECK(scores(*model) == before);
}

TEST_CASE("weights that do not fit change nothing") {
  const Folder folder;
  const std::string base = saved(folder, "base", 1), shorter = saved(folder, "shorter", 2, "1"),
                    plain = saved_adapter(folder, base, 3),
                    longer = saved(folder, "longer", 2, "3"),
                    foreign = saved_adapter(folder, longer, 5);
  const std::string diverged = folder / "diverged";
  {
    std::filesystem::copy(base, diverged);
    const auto broken = models::load_model(base);
    broken->each_parameter([](const std::string&, nn::Parameter& p) {
      p.set_value(at::full_like(p.value(), std::numeric_limits<float>::quiet_NaN()));
    });
    models::save_weights(*broken, diverged, at::kFloat);
  }
  const auto model = models::load_model(base);
  models::Reloader reloader(*model, base, {});
  reloader.load(plain);
  const std::vector<float> before = scores(*model);
  for (const std::string& wrong : {shorter, longer, foreign, diverged, folder / "nothing"})
    CHECK_THROWS_AS(reloader.load(wrong), Error);
  CHECK(scores(*model) == before);
}
