// A family whose files name and divide tensors in another way than the model does: what is read is
// written back the same.
#include "temper/models/family.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "temper/base/file.h"
#include "temper/io/safetensors.h"
#include "temper/models/decoder.h"
#include "temper/models/files/load.h"
#include "temper/models/files/save.h"
#include "temper/models/files/stream.h"
#include "temper/models/files/tensors.h"
#include "temper/models/gguf/gguf_form.h"
#include "tests/models/golden.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

// As Phi 3's files have it: gate and up projection are one matrix, gate first.
constexpr const char* kJoined = "gate_up_proj.weight";

void divide(TensorMap& tensors, const models::HfConfig&) {
  TensorMap out;
  for (const auto& [name, view] : tensors) {
    const size_t at = name.find(kJoined);
    if (at == name.npos) {
      out[name] = view;
      continue;
    }
    const at::Tensor both = models::to_tensor(view, at::kFloat).clone();
    const int64_t rows = both.size(0) / 2;
    for (const auto& [part, first] :
         {std::pair{"gate_proj.weight", int64_t{0}}, {"up_proj.weight", rows}})
      out[name.substr(0, at) + part] =
          models::to_view(both.narrow(0, first, rows).contiguous().clone());
  }
  tensors = std::move(out);
}

void join(models::NamedTensors& tensors) {
  models::NamedTensors out;
  for (const auto& [name, view] : tensors) {
    const size_t gate = name.find("gate_proj.weight"), up = name.find("up_proj.weight");
    if (gate != name.npos) {
      out.emplace_back(name.substr(0, gate) + kJoined, view);
    } else if (up != name.npos) {
      const TensorView first = out.back().second, second = view;
      const std::vector<int64_t> shape{2 * view.shape[0], view.shape[1]};
      out.back().second = models::view_of(shape, at::kFloat, [first, second] {
        const auto value = [](const TensorView& x) {
          return models::to_tensor(x.make ? x.make() : x, at::kFloat);
        };
        return at::cat({value(first), value(second)});
      });
    } else {
      out.emplace_back(name, view);
    }
  }
  tensors = std::move(out);
}

const models::RegisteredFamily kJoinedFamily({
    .model_type = "test_joined_llama",
    .help = "Llama whose files join gate and up projection",
    .config =
        [](const models::HfConfig& config) {
          return models::families().find("llama").config(config);
        },
    .sanitize = &divide,
    .restore = &join,
});

const char* const kConfig =
    R"({"model_type": "test_joined_llama", "vocab_size": 31, "hidden_size": 8,
  "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2})";

std::map<std::string, std::vector<std::byte>> bytes_of(const std::string& directory) {
  std::map<std::string, std::vector<std::byte>> out;
  for (const auto& [name, view] : read_safetensors(directory + "/model.safetensors")) {
    const auto* data = static_cast<const std::byte*>(static_cast<const void*>(view.data));
    out[name].assign(data, data + view.num_bytes);
  }
  return out;
}

}  // namespace

TEST_CASE("every way to write a model gives the files' own tensors, which read back the same") {
  const Directory first("joined"), second("joined_again"), third("joined_streamed");
  for (const Directory* directory : {&first, &second, &third})
    write_file_atomic(directory->path + "/config.json", kConfig);
  const models::HfConfig config = models::HfConfig::load(first.path);
  const auto model = models::init_model(config, 5);
  models::save_weights(*model, first.path, at::kFloat);
  const auto written = bytes_of(first.path);
  CHECK(written.contains("model.layers.1.mlp.gate_up_proj.weight"));
  CHECK(!written.contains("model.layers.1.mlp.up_proj.weight"));

  const auto read = models::load_model(first.path);
  const Sequences sequences{{3, 4, 5, 6, 7}};
  CHECK(at::equal(log_probabilities(*read, sequences), log_probabilities(*model, sequences)));
  models::save_weights(*read, second.path, at::kFloat);
  CHECK((bytes_of(second.path) == written));

  const auto streamed = models::stream_model(first.path, "", {});
  write_safetensors_model(third.path, streamed.weights->merged_tensors(at::kFloat));
  CHECK((bytes_of(third.path) == written));

  const auto empty = models::make_model(config);
  const auto fresh = models::init_tensors(*empty, config, 5, at::kFloat);
  CHECK(fresh.size() == written.size());
  write_safetensors_model(third.path, fresh);
  CHECK((bytes_of(third.path) == written));
}

TEST_CASE("families are listed by name, and one that llama.cpp does not have says so") {
  const std::vector<std::string> names = models::families().names();
  CHECK(std::is_sorted(names.begin(), names.end()));
  const models::Family family = models::families().find("test_joined_llama");
  CHECK_THROWS_WITH_AS(models::register_family(family),
                       "model family `test_joined_llama` exists already", ConfigError);
  const models::HfConfig config = models::HfConfig::parse(
      {{"model_type", "test_joined_llama"}, {"vocab_size", 31}}, "config.json");
  try {
    models::gguf_form(config);
    FAIL("a family without an architecture was taken");
  } catch (const ConfigError& e) {
    const std::string said = e.what();
    CHECK(said.find("`test_joined_llama` has no form in GGUF") != said.npos);
    std::string known;
    for (const std::string& name : names)
      if (models::families().find(name).gguf) known += (known.empty() ? "" : ", ") + name;
    CHECK(said.find(known) != said.npos);
    CHECK(known.find("llama") != known.npos);
  }
}
