// What surrounds the weights: hub ids, the files that go along with a saved model, memory, and how
// tensors split.
#include "temper/models/files/directory.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/device.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/files/load.h"
#include "tests/models/golden.h"

using namespace temper;
using models::resolve_model_path;
namespace fs = std::filesystem;

namespace {

struct Variable {
  Variable(const char* name, const std::string& value) : name(name) {
    if (const char* old = std::getenv(name)) before = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before)
      ::setenv(name, before->c_str(), 1);
    else
      ::unsetenv(name);
  }
  const char* name;
  std::optional<std::string> before;
};

}  // namespace

TEST_CASE("a hub's id is the snapshot that the local cache has of it") {
  const Directory home("hub");
  const Variable variable("HF_HOME", home.path), cache("HF_HUB_CACHE", home.path + "/hub");
  const std::string repository = home.path + "/hub/models--org--tiny-1.5";
  fs::create_directories(repository + "/refs");
  fs::create_directories(repository + "/snapshots/0123abc");
  CHECK_THROWS_WITH_AS(resolve_model_path("org/tiny-1.5"),
                       doctest::Contains("temper fetch org/tiny-1.5"), ConfigError);
  write_file_atomic(repository + "/refs/main", "0123abc\n");
  CHECK_THROWS_WITH_AS(resolve_model_path("org/tiny-1.5"), doctest::Contains("config.json"),
                       ConfigError);
  fs::copy_file(golden_model("qwen3") + "/config.json",
                repository + "/snapshots/0123abc/config.json");
  CHECK(resolve_model_path("org/tiny-1.5") == repository + "/snapshots/0123abc");
  // A reference does not lead out of the cache.
  write_file_atomic(repository + "/refs/main", "../../../../etc");
  CHECK_THROWS_AS(resolve_model_path("org/tiny-1.5"), ConfigError);
  for (const char* path : {"models/qwen/base", "/abs/olute", "./here/x", "tiny", "../x/y", "a b/c"})
    CHECK(resolve_model_path(path) == path);
  CHECK(resolve_model_path(golden_model("qwen3")) == golden_model("qwen3"));
}

TEST_CASE(
    "a snapshot of a hub's cache is named by the hub's id, and by its commit where it is not "
    "main's") {
  const Directory home("named");
  const Variable variable("HF_HOME", home.path), cache("HF_HUB_CACHE", home.path + "/hub");
  const std::string snapshots = home.path + "/hub/models--org--tiny-1.5/snapshots";
  for (const char* commit : {"0123abc", "older"}) {
    fs::create_directories(snapshots + "/" + commit);
    fs::copy_file(golden_model("qwen3") + "/config.json",
                  snapshots + "/" + commit + "/config.json");
  }
  fs::create_directories(home.path + "/hub/models--org--tiny-1.5/refs");
  write_file_atomic(home.path + "/hub/models--org--tiny-1.5/refs/main", "0123abc\n");
  const auto name = [](const std::string& path) {
    const models::PublicName found = models::public_name(path);
    return found.name + " " + found.revision;
  };
  CHECK(name(snapshots + "/0123abc") == "org/tiny-1.5 ");
  CHECK(name(snapshots + "/0123abc/") == "org/tiny-1.5 ");
  CHECK(name(snapshots + "/older") == "org/tiny-1.5 older");
  CHECK(resolve_model_path("org/tiny-1.5", "older") == snapshots + "/older");
  for (const char* path :
       {"models/bench", "/models--a--b/x", "", "/models--a/snapshots/b", "org/x"})
    CHECK(name(path) == std::string(path) + " ");

  // An adapter leads to the commit that it was trained on, and back.
  const auto model = models::load_model(golden_model("qwen3"));
  const models::LoraConfig lora{2, 4, 0, false, {"all-linear"}, false, {}};
  models::add_lora(*model, lora, 1);
  const Directory adapter("adapter");
  models::save_adapter(*model, lora, snapshots + "/older", adapter.path);
  CHECK(models::adapter_base(adapter.path) == "org/tiny-1.5");
  CHECK(models::find_adapter_base(adapter.path) == snapshots + "/older");
  models::save_adapter(*model, lora, snapshots + "/0123abc", adapter.path);
  const Json json = read_json_file(adapter.path + "/adapter_config.json");
  CHECK(json["base_model_name_or_path"] == "org/tiny-1.5");
  CHECK(json["revision"].is_null());
  // A directory is found from other directories, too.
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(std::filesystem::path(snapshots).parent_path());
  models::save_adapter(*model, lora, "snapshots/../snapshots", adapter.path);
  std::filesystem::current_path(here);
  CHECK(models::adapter_base(adapter.path) == snapshots);
}

TEST_CASE("what is named in place of a model says what to name") {
  const fs::path folder = fs::temp_directory_path() / temper::str("temper-named-", ::getpid());
  const auto touch = [&](const std::string& name) {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << "{}";
    return (folder / name).string();
  };
  const auto error = [](const std::string& path) {
    try {
      models::HfConfig::load(path);
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  touch("run/final/config.json");
  touch("tuned/final/adapter_config.json");
  touch("run/checkpoints/step-3/state.json");
  const std::string weights = touch("run/final/model.safetensors");
  const auto in = [&](const char* name) { return (folder / name).string(); };
  touch("stopped/checkpoints/step-9/state.json");
  touch("stopped/checkpoints/step-12/state.json");
  touch("stopped/checkpoints/step-13/policy.safetensors");  // no whole one
  CHECK(error(in("stopped"))
            .find("a run that has not ended: its newest checkpoint is of step 12; "
                  "the run's command goes on from there, and with "
                  "train.max_steps=12 writes the model") != std::string::npos);
  CHECK(error(in("run")).ends_with("it is a run's directory: its model is " + in("run/final")));
  CHECK(error(in("tuned")).ends_with("its adapter is " + in("tuned/final")));
  CHECK(error(in("tuned/final")).find("it is an adapter: name its base model") !=
        std::string::npos);
  CHECK(error(in("run/checkpoints/step-3")).find("it is a run's checkpoint") != std::string::npos);
  CHECK(error(weights).ends_with("give its directory, " + in("run/final")));
  const std::string stray = touch("rows/data.jsonl"), config = touch("run/final/config.json");
  CHECK(error(stray).ends_with("found a file, expected a model directory"));
  CHECK_THROWS_WITH_AS(models::resolve_model_path(config),
                       doctest::Contains(("give its directory, " + in("run/final")).c_str()),
                       ConfigError);
  using models::no_adapter_hint;
  CHECK(no_adapter_hint(in("tuned")) ==
        "; it is a run's directory: its adapter is " + in("tuned/final"));
  CHECK(no_adapter_hint(in("run/final")).starts_with("; it is a model"));
  CHECK(no_adapter_hint(in("tuned/final/adapter_config.json")) ==
        "; give its directory, " + in("tuned/final"));
  CHECK(no_adapter_hint(in("nowhere")).empty());
  CHECK_THROWS_WITH_AS(models::named_model(in("tuned/final"), "distill.teacher"),
                       doctest::Contains("it is an adapter"), ConfigError);
  CHECK_NOTHROW(models::named_model(in("tuned/final"), "rewards", true));
  fs::remove_all(folder);
}

TEST_CASE("additional chat templates go along with a saved model") {
  const Directory from("from"), to("to");
  fs::copy_file(golden_model("qwen3") + "/config.json", from.path + "/config.json");
  fs::create_directories(from.path + "/additional_chat_templates");
  write_file_atomic(from.path + "/additional_chat_templates/tool_use.jinja", "{{ tools }}");
  write_file_atomic(from.path + "/additional_chat_templates/notes.txt", "no template");
  models::write_model_files({from.path, from.path}, to.path, at::kFloat);
  CHECK(read_file(to.path + "/additional_chat_templates/tool_use.jinja") == "{{ tools }}");
  CHECK(!fs::exists(to.path + "/additional_chat_templates/notes.txt"));
}

TEST_CASE("a language model out of a multimodal checkpoint is written as its own family") {
  const Directory from("multimodal"), to("text");
  Json text = read_json_file(golden_model("gemma3_text") + "/config.json");
  text.erase("architectures");
  text.erase("eos_token_id");
  const Json config = {{"model_type", "gemma3"},
                       {"architectures", {"Gemma3ForConditionalGeneration"}},
                       {"eos_token_id", {1, 106}},
                       {"text_config", text}};
  write_file_atomic(from.path + "/config.json", config.dump());
  TensorMap tensors;
  for (auto& [name, view] : read_safetensors(golden_model("gemma3_text") + "/model.safetensors"))
    tensors["language_model." + name] = view;
  tensors["vision_tower.patch.weight"] = models::to_view(at::zeros({2, 2}, at::kFloat));
  write_safetensors(from.path + "/model.safetensors", tensors);
  const auto model = models::load_model(from.path);
  CHECK(model->eos_token_ids == std::vector<int32_t>{1, 106});
  models::write_model_files({from.path, ""}, to.path, at::kFloat);
  const Json saved = read_json_file(to.path + "/config.json");
  CHECK(saved["architectures"] == Json({"Gemma3ForCausalLM"}));
  CHECK(saved["model_type"] == "gemma3_text");
  CHECK(saved["eos_token_id"] == Json({1, 106}));
}

TEST_CASE("random weights that no memory holds are refused before they are drawn") {
  const Json config = {{"model_type", "llama"},
                       {"vocab_size", 2000000000},
                       {"hidden_size", 1000000},
                       {"intermediate_size", 12},
                       {"num_attention_heads", 10},
                       {"num_hidden_layers", 1},
                       {"head_dim", 4}};
  CHECK_THROWS_WITH_AS(models::init_model(models::HfConfig::parse(config, "config.json"), 0),
                       doctest::Contains("this machine has"), ConfigError);
}

TEST_CASE("a base that is written to while it is mapped is noticed") {
  const Directory base("mapped");
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(golden_model("qwen3") + "/" + file, base.path + "/" + file);
  const std::string weights = base.path + "/model.safetensors";
  const auto model = models::load_model(base.path), owned = models::load_model(base.path);
  owned->each_parameter([](const std::string&, nn::Parameter& p) { p.own(); });
  CHECK(!model->files.changed());
  fs::last_write_time(weights, fs::last_write_time(weights) + std::chrono::seconds(3));
  CHECK(model->files.changed());
  CHECK(!owned->files.changed());  // it has its weights in memory of its own
  CHECK_THROWS_WITH_AS(model->files.check_unchanged(), doctest::Contains(weights.c_str()),
                       RunError);

  const auto again = models::load_model(base.path);
  fs::copy_file(weights, weights + ".new");
  fs::rename(weights + ".new", weights);  // another file: the mapping is what it was
  CHECK(!again->files.changed());
}

// Whether the LibTorch of this process is the build with CUDA, which runs without a GPU, too.
bool libtorch_has_cuda() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path != std::string::npos && line.ends_with("/libtorch_cpu.so"))
      return std::filesystem::exists(
          std::filesystem::path(line.substr(path)).replace_filename("libtorch_cuda.so"));
  }
  FAIL("LibTorch is not loaded");
  return false;
}

TEST_CASE("a device and a backend are told apart from what is none") {
  const auto error = [](const models::DeviceChoice& choice) {
    try {
      models::backend_for(choice);
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  // The tests run with no GPU visible (tests/CMakeLists.txt).
  for (const std::string device : {"cuda", "cuda:0", "cuda:12345"}) {
    const std::string message = error({.device = device});
    INFO(message);
    const auto says = [&](const char* reason) { return message.find(reason) != std::string::npos; };
    CHECK(says(("found " + device + "; ").c_str()));
    CHECK(says("this build has no CUDA") == !libtorch_has_cuda());
    if (libtorch_has_cuda())
      CHECK((says("this machine has no NVIDIA driver") ||
             says("libtorch_cuda.so does not load: ") || says("no CUDA device is visible")));
  }
  for (const char* device : {"cuda:", "cuda:x", "gpu"})
    CHECK(error({.device = device}).find("expected auto, cpu, cuda or cuda:N") !=
          std::string::npos);
  const Variable variable("TEMPER_BACKEND", "nonsense");
  CHECK(error({}).starts_with("the environment variable TEMPER_BACKEND: "));
  CHECK(error({.backend = "native"}) == "no error");
  CHECK(models::is_exact({}));
  CHECK_FALSE(models::is_exact({.backend = "aten"}));
}
