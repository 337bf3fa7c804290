// Models from GGUF files: those that were written come back with the same parameters; matrices in
// block formats have gguf-py's values.
#include "temper/base/file.h"
#include "temper/models/files/checkpoint_format.h"
#include "temper/models/files/checkpoint_tensors.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/file_digests.h"
#include "temper/models/files/load.h"
#include "temper/models/files/save.h"
#include "temper/models/files/tensors.h"
#include "temper/models/gguf/gguf_blocks.h"
#include "temper/models/gguf/gguf_files.h"
#include "tests/models/gguf_tiny.h"
#include "tests/models/golden.h"

using namespace gguf_tiny;
using tiny::Folder;

namespace {

const Sequences kGgufTexts = {{1, 5, 9, 33, 60, 2, 7, 7, 12}, {3, 4, 58, 11, 0, 1, 1, 40}};

std::map<std::string, at::Tensor> parameters_of(models::CausalLM& model) {
  std::map<std::string, at::Tensor> out;
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    out[name] = p.float_value().detach().clone();
  });
  return out;
}

// Written as a GGUF file of floats and read back.
struct Copied {
  std::unique_ptr<models::CausalLM> model;
  models::GgufForm form;
};
Copied copied(models::CausalLM& model, const std::string& directory, const std::string& path) {
  const models::GgufHeader header = models::gguf_header(directory, at::kFloat);
  models::save_gguf(model, header, path, at::kFloat);
  return {models::load_model(path), models::gguf_form(models::HfConfig::load(path))};
}

// Norms that multiply by 1 + weight are written with the 1, and logarithms as what they are of;
// where llama.cpp has another scale of queries, these are.
bool is_exact(const nn::Parameter& parameter, const std::string& name,
              const models::GgufForm& form) {
  const auto* norm = dynamic_cast<const nn::RmsNorm*>(&parameter.owner());
  const bool scaled = name.find(form.scale_query_norm ? "q_norm." : "q_proj.") != name.npos;
  return !(norm && norm->add_unit_offset) && !name.ends_with("A_log") &&
         !(form.query_scale != 1 && scaled);
}

// Those of yarn's scales are computed from one another.
void same_keys(const GgufKeys& found, const GgufKeys& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CAPTURE(expected[i].first);
    CHECK(found[i].first == expected[i].first);
    const float* number = std::get_if<float>(&found[i].second);
    if (number)
      CHECK(*number == doctest::Approx(std::get<float>(expected[i].second)).epsilon(1e-5));
    else
      CHECK((found[i].second == expected[i].second));
  }
}

void same_model(models::CausalLM& model, const models::GgufForm& written, Copied& read,
                bool same_order = true) {
  const auto expected = parameters_of(model), found = parameters_of(*read.model);
  REQUIRE(found.size() == expected.size());
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    CAPTURE(name);
    REQUIRE(found.contains(name));
    const at::Tensor &a = found.at(name), &b = expected.at(name);
    if (same_order && is_exact(parameter, name, written))
      CHECK(at::equal(a, b));
    else if (same_order && written.query_scale == 1)
      CHECK(at::allclose(a, b, 1e-5, 1e-5));
  });
  CHECK(difference(log_probabilities(*read.model, kGgufTexts),
                   log_probabilities(model, kGgufTexts)) < 2e-5);
  same_keys(read.form.keys, written.keys);
}

std::string problem_of(const std::string& path) {
  try {
    models::load_model(path);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// A golden model that is written with other keys and tensors.
struct Changed {
  const Folder folder;
  std::string path = folder / "m.gguf";
  GgufFile file;
  explicit Changed(const std::string& family = "qwen3") {
    const std::string directory = folder / "model";
    std::filesystem::create_directories(directory);
    write_file_atomic(directory + "/config.json",
                      config_of(family, {{"num_hidden_layers", 1}}).dump());
    const auto model = model_of(config_of(family, {{"num_hidden_layers", 1}}));
    models::save_gguf(*model, models::gguf_header(directory, at::kFloat), path, at::kFloat);
    file = read_gguf(path);
  }
  void set(const std::string& key, GgufValue value) {
    for (auto& [name, old] : file.keys)
      if (name == key) {
        old = std::move(value);
        return;
      }
    file.keys.emplace_back(key, std::move(value));
  }
  std::string problem() {
    const std::string other = folder / "other.gguf";
    write_gguf(other, file.keys, {file.tensors.begin(), file.tensors.end()});
    return problem_of(other);
  }
};

bool contains(const std::string& text, const std::string& part) {
  CAPTURE(text);
  const bool found = text.find(part) != text.npos;
  CHECK(found);
  return found;
}

}  // namespace

TEST_CASE("every family's GGUF file comes back as the same model") {
  for (const std::string& family : gguf_families()) {
    CAPTURE(family);
    const Folder folder;
    const std::string directory = folder / "model";
    std::filesystem::create_directories(directory);
    const Json config = config_of(family);
    write_file_atomic(directory + "/config.json", config.dump());
    const auto model = model_of(config);
    Copied read = copied(*model, directory, folder / "m.gguf");
    same_model(*model, form_of(family), read);
    const std::string type = read_json_file(folder / "m.gguf/config.json")["model_type"];
    CHECK(type == (family == "mistral" ? "llama" : family));
  }
}

TEST_CASE("golden models that have a form in GGUF come back from it") {
  int count = 0;
  for (const std::string& name : golden_models()) {
    CAPTURE(name);
    const Folder folder;
    models::GgufForm form;
    try {
      form = models::gguf_form(models::HfConfig::load(golden_model(name)));
    } catch (const ConfigError&) {
      continue;
    }
    ++count;
    const auto model = models::load_model(golden_model(name));
    Copied read = copied(*model, golden_model(name), folder / "m.gguf");
    // Rows of q and k of a DeepSeek lie in pairs in every file.
    const bool pairs = models::HfConfig::load(golden_model(name)).boolean("rope_interleave", true);
    same_model(*model, form, read, pairs);
  }
  CHECK(count >= 20);
}

TEST_CASE("blocks have the codes and the values that gguf-py gives them") {
  const GgufFile file = read_gguf(golden_path("gguf/blocks.gguf"));
  REQUIRE(file.blocks.size() == std::size(gguf::kBlockTypes));
  for (const auto& [name, blocks] : file.blocks) {
    CAPTURE(name);
    CHECK(name == str("codes.", blocks.type.name));
    REQUIRE(blocks.shape == std::vector<int64_t>{2, 512});
    models::GgufRow row;
    std::vector<float> values(512);
    for (size_t i = 0; i < 2; ++i) {
      const size_t bytes = blocks.bytes.num_bytes / 2;
      models::read_gguf_row(blocks.type.type, blocks.bytes.data + i * bytes, 512, row);
      models::gguf_row_values(blocks.type.type, row, 512, values.data());
      const TensorView& expected = file.tensors.at(str("values.", blocks.type.name));
      // Zeros may have another sign.
      CHECK(at::equal(at::tensor(values),
                      models::to_tensor(expected, at::kFloat)[static_cast<int64_t>(i)]));
    }
  }
}

TEST_CASE("a quantized model is kept in the file's formats, or in floats of the same values") {
  const std::string path = golden_path("gguf/quantized.gguf");
  const auto held = models::held_formats(path);
  CHECK(held.size() == 9);
  const auto floats =
      models::load_model(path, models::frozen_storage(false, models::StorageName::kFloat32));
  models::CheckpointTensors from = models::open_checkpoint(path);
  int count = 0;
  floats->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    const TensorView& view = from.tensors.at(name);
    const models::CodedMatrix* matrix = models::coded_matrix(view);
    if (!matrix) return;
    CAPTURE(name);
    ++count;
    const at::Tensor values = models::to_tensor(matrix->values(), at::kFloat);
    CHECK(at::equal(parameter.float_value(), values));
    CHECK(at::equal(ops::read(ops::Weight(matrix->codes(at::kCPU))), values));
  });
  CHECK(count == 9);
}

TEST_CASE("keys that Temper does not compute are named") {
  Changed changed;
  const auto wrong = [&](const std::string& key, GgufValue value, const std::string& part) {
    const GgufFile before = changed.file;
    changed.set(key, std::move(value));
    contains(changed.problem(), part);
    changed.file = before;
  };
  CHECK(changed.problem() == "no error");
  wrong("general.architecture", std::string("bert"),
        "`general.architecture`: found `bert`, expected one of");
  wrong("qwen3.rope.scaling.type", std::string("su"), "`qwen3.rope.scaling.type`: found `su`");
  wrong("qwen3.attention.sliding_window", uint32_t{5},
        "`qwen3.attention.sliding_window`: found 5; this is not supported in a `qwen3`");
  wrong("qwen3.attention.clamp_kqv", 8.0f, "`qwen3.attention.clamp_kqv`: found 8;");
  wrong("qwen3.attention.value_length", uint32_t{4}, "`qwen3.attention.value_length`: found 4");
  wrong("qwen3.attention.head_count", uint32_t{0}, "`qwen3.attention.head_count`: found 0");
  wrong("qwen3.block_count", uint32_t{4000000}, "`qwen3.block_count`: found 4000000");
  wrong("qwen3.block_count", uint32_t{2}, "the weights lack");
  wrong("qwen3.embedding_length", std::string("many"),
        "`qwen3.embedding_length`: found `many`, expected a number");
  wrong("qwen3.embedding_length", uint32_t{64}, "tensor `token_embd.weight`: is [61, 32]");
}

TEST_CASE("tensors that do not fit are named") {
  Changed changed;
  const auto without = [&](const std::string& name) {
    const GgufFile before = changed.file;
    changed.file.tensors.erase(name);
    const std::string problem = changed.problem();
    changed.file = before;
    return problem;
  };
  contains(without("blk.0.ffn_up.weight"), "the weights lack model.layers.0.mlp.up_proj.weight");
  contains(without("token_embd.weight"), "tensor `token_embd.weight` is missing");
  changed.file.tensors["blk.0.odd.weight"] = changed.file.tensors.at("blk.0.ffn_up.weight");
  contains(changed.problem(), "blk.0.odd.weight");
  changed.file.tensors.erase("blk.0.odd.weight");
  // Of a block that the configuration does not count.
  changed.file.tensors["blk.7.ffn_up.weight"] = changed.file.tensors.at("blk.0.ffn_up.weight");
  contains(changed.problem(), "blk.7.ffn_up.weight");
  changed.file.tensors.erase("blk.7.ffn_up.weight");
  TensorView& embeddings = changed.file.tensors.at("token_embd.weight");
  embeddings.shape.clear();
  embeddings.num_bytes = 4;
  contains(changed.problem(), "tensor `token_embd.weight`: is [], expected two dimensions");
}

TEST_CASE("a directory that holds a GGUF file alone is told to name it") {
  const Changed changed;
  CHECK_THROWS_WITH_AS(models::HfConfig::load(changed.folder / ""),
                       doctest::Contains("it holds a GGUF file: name the file, "), ConfigError);
  CHECK_THROWS_WITH_AS(models::load_model(changed.folder / "none.gguf"),
                       doctest::Contains("none.gguf: no such"), ConfigError);
}

TEST_CASE("a file in parts is read whole, and its parts must belong together") {
  const Changed changed;
  const auto name = [&](int part) {
    return changed.folder / str("m-0000", part, "-of-00002.gguf");
  };
  const auto write = [&](int part, int says) {
    GgufKeys keys = part == 1 ? changed.file.keys : GgufKeys();
    keys.emplace_back("split.no", static_cast<uint16_t>(says - 1));
    keys.emplace_back("split.count", uint16_t{2});
    keys.emplace_back("split.tensors.count", static_cast<int32_t>(changed.file.tensors.size()));
    std::vector<std::pair<std::string, TensorView>> tensors;
    int i = 0;
    for (const auto& tensor : changed.file.tensors)
      if (i++ % 2 + 1 == part) tensors.push_back(tensor);
    write_gguf(name(part), keys, tensors);
  };
  write(1, 1);
  contains(problem_of(name(1)), "m-00002-of-00002.gguf is missing");
  write(2, 2);
  const auto whole = models::load_model(changed.path), parts = models::load_model(name(1));
  CHECK(at::equal(log_probabilities(*whole, kGgufTexts), log_probabilities(*parts, kGgufTexts)));
  CHECK(parts->files.files().size() == 2);
  const std::string digests = models::file_digests(name(1));
  CHECK(std::count(digests.begin(), digests.end(), '\n') == 2);
  contains(problem_of(name(2)), "is part 2 of 2; name the first one");
  write(2, 1);
  contains(problem_of(name(1)), "`split.no` and `split.count`: expected 1 and 2");
}
