// Every option of PEFT that changes an adapter's files: what it computes is what PEFT computes, or
// the error names the option. tests/golden/make_peft_variants.py says what was computed.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/io/safetensors.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/load.h"
#include "temper/models/files/save.h"
#include "temper/models/files/stream.h"
#include "temper/models/files/tensors.h"
#include "tests/differences.h"
#include "tests/models/golden.h"

using namespace temper;
namespace fs = std::filesystem;

namespace {

// The script's values().
at::Tensor values(uint32_t key, const std::vector<int64_t>& shape, double centre) {
  at::Tensor out = at::empty(shape, at::kFloat);
  for (int64_t i = 0; i < out.numel(); ++i) {
    uint32_t x = static_cast<uint32_t>(i + 1) * 2654435761u;
    x ^= (key + 1) * 0x9E3779B9u;
    x ^= x >> 15;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    out.mutable_data_ptr<float>()[i] = static_cast<float>(centre + 0.3 * (x / 2147483648.0 - 1));
  }
  return out;
}

const Json& variants() {
  static const Json json = read_json_file(golden_path("peft_variants.json"));
  return json;
}

struct Variant {
  explicit Variant(const std::string& name)
      : json(variants()["cases"][name]),
        base(golden_model(json["model"].get<std::string>())),
        folder("peft_" + name) {
    Json config = variants()["defaults"];
    config.update(json["config"]);
    write_file_atomic(folder.path + "/adapter_config.json", config.dump());
    std::map<std::string, std::vector<int64_t>> shapes;
    for (const auto& [tensor, shape] : json["tensors"].items())
      shapes[tensor] = shape.get<std::vector<int64_t>>();
    TensorMap tensors;
    uint32_t key = 0;
    for (const auto& [tensor, shape] : shapes) {
      const bool of_base = tensor.ends_with("base_layer.weight");
      tensors[tensor] = models::to_view(
          of_base ? head_of_base()
                  : values(key, shape, tensor.find("magnitude") != tensor.npos ? 1 : 0));
      ++key;
    }
    const std::string head = "base_model.model.lm_head.weight";
    if (config["ensure_weight_tying"] == true && tensors.contains(head) &&
        !json.contains("refused"))
      tensors[head] = tensors.at("base_model.model.model.embed_tokens.weight");
    write_safetensors(folder.path + "/adapter_model.safetensors", tensors);
  }

  // PEFT writes the base's own weights beside some adapters: of the head where it is read.
  at::Tensor head_of_base() const {
    return models::load_model(base)->head_weight().float_value().detach().clone();
  }

  at::Tensor logp(models::CausalLM& model) const {
    const at::NoGradGuard no_grad;
    return log_probabilities(model, variants()["sequences"].get<Sequences>());
  }
  at::Tensor expected() const {
    const auto numbers = json["logp"].get<std::vector<float>>();
    return at::tensor(numbers);
  }

  const Json& json;
  std::string base;
  Directory folder;
};

constexpr double kNear = 2e-5;

std::vector<std::string> names_of(bool refused) {
  std::vector<std::string> names;
  for (const auto& [name, json] : variants()["cases"].items())
    if (json.contains("refused") == refused) names.push_back(name);
  REQUIRE(names.size() > 30);
  return names;
}

}  // namespace

TEST_CASE("adapters of every option that PEFT has compute what they compute there") {
  for (const std::string& name : names_of(false)) {
    CAPTURE(name);
    const Variant of(name);
    const auto model = models::load_model(of.base);
    const models::LoraConfig config = models::load_adapter(*model, of.folder.path);
    const at::Tensor logp = of.logp(*model);
    const double apart = difference(logp, of.expected());
    Differences::add("adapter " + name, apart, 0);
    CHECK(apart < kNear);
    CHECK(models::targets_are(*model, config.target_modules));

    // Saved again it has the same tensors, and reads back to the same bits.
    const Directory saved("saved");
    models::save_adapter(*model, config, of.base, saved.path);
    const auto again = models::load_model(of.base);
    models::load_adapter(*again, saved.path);
    CHECK(at::equal(of.logp(*again), logp));
  }
}

TEST_CASE("merged weights, in files and on the way to other formats, compute what PEFT computes") {
  for (const std::string& name : names_of(false)) {
    CAPTURE(name);
    const Variant of(name);
    const auto source = models::stream_model(of.base, of.folder.path, {});
    const bool untied = models::adapts_tied_head(*source.model);
    const Directory written("written");
    write_safetensors_model(written.path, source.weights->merged_tensors(at::kFloat));
    models::write_model_files({of.base, ""}, written.path, at::kFloat,
                              models::HeadKind::kVocabulary, untied);
    CHECK(difference(of.logp(*models::load_model(written.path)), of.expected()) < kNear);
    const auto merged = models::stream_merged(of.base, *source.weights, untied);
    CHECK(difference(of.logp(*merged.model), of.expected()) < kNear);
  }
}

// The directory's tensors under other names.
void rename_tensors(const std::string& directory, const std::string& from, const std::string& to) {
  const std::string file = directory + "/adapter_model.safetensors";
  const TensorMap tensors = read_safetensors(file);
  TensorMap renamed;
  int64_t found = 0;
  for (const auto& [name, view] : tensors) {
    std::string other = name;
    if (const size_t at = name.find(from); at != name.npos) {
      other.replace(at, from.size(), to);
      ++found;
    }
    renamed[other] = view;
  }
  REQUIRE(found > 0);
  fs::remove(file);  // whose memory the tensors are
  write_safetensors(file, renamed);
}

TEST_CASE("adapters that PEFT wrote with transformers 4 have other names for the same layers") {
  for (const auto& [name, from, to] :
       {std::tuple<const char*, const char*, const char*>{
            "multimodal_gemma3", ".model.language_model.", ".language_model.model."},
        {"experts_granitemoe", ".router.lora_", ".router.layer.lora_"}}) {
    CAPTURE(name);
    const Variant of(name);
    rename_tensors(of.folder.path, from, to);
    const auto model = models::load_model(of.base);
    models::load_adapter(*model, of.folder.path);
    CHECK(difference(of.logp(*model), of.expected()) < kNear);
  }
}

TEST_CASE("a pattern of a multimodal model's layer is compared with the path that the file has") {
  const Variant of("multimodal_gemma3");
  Json config = read_json_file(of.folder.path + "/adapter_config.json");
  const auto scale_with = [&](const char* pattern) {
    config["alpha_pattern"] = {{pattern, 30}};
    write_file_atomic(of.folder.path + "/adapter_config.json", config.dump());
    const auto model = models::load_model(of.base);
    models::load_adapter(*model, of.folder.path);
    double scale = 0;
    model->visit({.linear = [&](const std::string& path, nn::Linear& layer) {
      if (path == "model.layers.1.self_attn.q_proj") scale = layer.lora()->scale;
    }});
    return scale;
  };
  CHECK(scale_with("^model.language_model.layers.1.self_attn.q_proj") == 15);
  CHECK(scale_with("layers.1.self_attn.q_proj") == 15);
  CHECK(scale_with("^model.layers.1.self_attn.q_proj") == 1.5);
}

TEST_CASE("sizes that a file's patterns do not say by the names that are saved get patterns") {
  const Variant of("router_one_layer");  // as a module's, which becomes a parameter's
  Json config = read_json_file(of.folder.path + "/adapter_config.json");
  config["target_parameters"] = nullptr;
  config["alpha_pattern"] = {{"gate", 40}};
  write_file_atomic(of.folder.path + "/adapter_config.json", config.dump());
  const auto model = models::load_model(of.base), again = models::load_model(of.base);
  const models::LoraConfig found = models::load_adapter(*model, of.folder.path);
  const Directory saved("saved");
  models::save_adapter(*model, found, of.base, saved.path);
  models::load_adapter(*again, saved.path);
  CHECK(at::equal(of.logp(*again), of.logp(*model)));
  CHECK(read_json_file(saved.path +
                       "/adapter_config.json")["alpha_pattern"]["model.layers.1.mlp.gate.weight"] ==
        40);
}

TEST_CASE("what PEFT computes and the program does not is refused by its name") {
  for (const std::string& name : names_of(true)) {
    CAPTURE(name);
    const Variant of(name);
    const auto model = models::load_model(of.base);
    CHECK_THROWS_WITH_AS(models::load_adapter(*model, of.folder.path),
                         doctest::Contains(of.json["refused"].get<std::string>().c_str()),
                         ConfigError);
  }
}

TEST_CASE("a saved adapter names layers by what they end with, or each where not all have one") {
  const auto written = [](const std::string& name) {
    const Variant of(name);
    const auto model = models::load_model(of.base);
    const models::LoraConfig config = models::load_adapter(*model, of.folder.path);
    const Directory saved("saved");
    models::save_adapter(*model, config, of.base, saved.path);
    return read_json_file(saved.path + "/adapter_config.json");
  };
  CHECK(written("layer_list")["target_modules"] ==
        Json({"model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj"}));
  CHECK(written("alpha_pattern")["target_modules"] == Json({"down_proj", "q_proj"}));
  const Json experts = written("experts_one_layer");
  CHECK(experts["target_modules"] == Json({"k_proj"}));
  CHECK(experts["target_parameters"] ==
        Json({"model.layers.0.mlp.experts.down_proj", "model.layers.1.mlp.experts.gate_up_proj"}));
  CHECK(written("router_one_layer")["target_parameters"] ==
        Json({"model.layers.1.mlp.gate.weight"}));
  CHECK(written("router_alone")["target_modules"].is_null());
  // A multimodal model's other parts have layers of the same names.
  for (const std::string name : written("multimodal_gemma3")["target_modules"])
    CHECK(name.starts_with("model.language_model.layers."));
  CHECK(written("text_of_qwen3_5")["target_modules"][0] == "down_proj");
}
