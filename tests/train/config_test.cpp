// The part of a run's config that all training verbs share.
#include "temper/train/config.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/models/files/new_tokens.h"
#include "temper/train/hooks.h"
#include "temper/train/ranks.h"
#include "temper/train/sft/sft.h"
#include "tests/golden.h"

using namespace temper;

namespace {

train::SftConfig load(std::vector<std::string> overrides, std::vector<std::string> elsewhere = {}) {
  overrides.insert(overrides.begin(),
                   {"output_dir=run", "model.path=model", "data.train=rows.jsonl"});
  train::SftConfig config;
  read_run_config(config, overrides, "sft", elsewhere);
  return config;
}

std::string error_of(const std::vector<std::string>& arguments) {
  try {
    train::SftConfig config;
    read_run_config(config, arguments, "sft");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

std::string load_error(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(),
                   {"output_dir=run", "model.path=model", "data.train=rows.jsonl"});
  return error_of(overrides);
}

}  // namespace

// After a deliberate change: TEMPER_UPDATE_GOLDENS=1 build/tests/test_train -tc="*schema*"
TEST_CASE("the schema of the config is the golden one") {
  const std::string path = golden_path("config_schema/sft.txt");
  train::SftConfig config;
  if (std::getenv("TEMPER_UPDATE_GOLDENS")) write_file_atomic(path, describe_run_config(config));
  CHECK(describe_run_config(config) == read_file(path));
}

TEST_CASE("metrics that choose the weights or end the run are those of evaluations") {
  for (const char* key : {"train.keep_best.metric", "train.early_stopping.metric"}) {
    const std::string set = std::string(key) + "=";
    CHECK_THROWS_WITH_AS(load({"data.eval=c", set + "eval_loss"}),
                         doctest::Contains("found eval_loss, expected an evaluation metric, such "
                                           "as eval/loss"),
                         ConfigError);
    CHECK_THROWS_WITH_AS(load({"data.eval=c", set + "loss"}), doctest::Contains("as eval/loss"),
                         ConfigError);
    CHECK_NOTHROW(load({"data.eval=c", set + "eval/loss"}));
  }
  const std::string best = "train.keep_best.metric=";
  CHECK_THROWS_WITH_AS(load({"data.eval=c", best + "eval/lss"}),
                       doctest::Contains("train.keep_best.metric: found eval/lss, which no "
                                         "evaluation of this run has; did you mean eval/loss?"),
                       ConfigError);
  // Of one set there is no metric of its own, and the learning rate is of training alone.
  for (const char* metric : {"eval/c/loss", "eval/learning_rate", "eval/group_loss/x"})
    CHECK_THROWS_AS(load({"data.eval=c", best + metric}), ConfigError);
  const std::string two = "data.eval=[{path: a.jsonl}, {path: b.jsonl, name: bee}]";
  for (const char* metric : {"eval/loss", "eval/a/loss", "eval/bee/loss", "eval/bee/rows"})
    CHECK_NOTHROW(load({two, best + metric}));
  CHECK_THROWS_WITH_AS(load({two, best + "eval/be/loss"}),
                       doctest::Contains("did you mean eval/bee/loss?"), ConfigError);
}

TEST_CASE("a resolved config loads to the same config") {
  train::SftConfig config =
      load({"optimizer.learning_rate=0.30000000000000004", "seed=7",
            "data.train=[{path: a, weight: 0.1}, {path: b, name: bee}]", "data.eval=c",
            "data.columns={prompt: question}", "train.max_steps=5",
            "train.keep_best={metric: eval/loss, goal: minimize}"});
  const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                     ("temper-config-" + std::to_string(::getpid()) + ".yaml");
  for (const bool with_help : {false, true}) {
    write_file_atomic(file, dump_run_config(config, with_help));
    const std::string arguments[] = {file};
    train::SftConfig again;
    read_run_config(again, arguments, "sft");
    CHECK(dump_run_config(again) == dump_run_config(config));
    CHECK(again.verb == "sft");
    CHECK(again.optimizer.learning_rate == config.optimizer.learning_rate);
    CHECK(again.data.train.at(0).weight == 0.1);
    CHECK(again.data.columns.at("prompt") == "question");
    CHECK(again.train.keep_best.goal == train::Goal::kMinimize);
  }
  // Without comments it still says which map is emptied.
  const std::string emptied[] = {file, "data.columns={}"};
  train::SftConfig none;
  read_run_config(none, emptied, "sft");
  CHECK(none.data.columns.empty());
  const std::string other[] = {file};
  train::RunConfig wrong;
  CHECK_THROWS_AS(read_run_config(wrong, other, "dpo"), ConfigError);
  std::filesystem::remove(file);
}

TEST_CASE("verbs share a file: sections of others are passed over with a warning") {
  const train::SftConfig config =
      load({"rl.beta=0.5", "rewards=[gsm8k]", "rollout={top_k: 5}"}, {"rl", "rollout", "rewards"});
  REQUIRE(config.warnings.size() == 3);
  CHECK(config.warnings[0] == "command line: rl.beta=0.5: `rl` is not used by sft");
  CHECK(load_error({"rl.beta=0.5"}).find("unknown key `rl`") != std::string::npos);
}

TEST_CASE("keys of an adapter that no run trains are warned of by their names") {
  const auto warned = [](const std::string& key) {
    train::SftConfig config = load({"output_dir=r", "model.path=m", "data.train=x", key});
    config.resolve("sft");
    return config.warnings.empty() ? "" : config.warnings[0];
  };
  for (const char* key : {"adapter.rank=4", "adapter.alpha=3", "adapter.dropout=0.5",
                          "adapter.target_modules=[q_proj]", "adapter.use_rslora=true",
                          "adapter.modules_to_save=[lm_head]"}) {
    CAPTURE(key);
    const std::string name = std::string(key).substr(0, std::string(key).find('='));
    CHECK(warned(key).find(name + " has no effect: adapter.method is none") != std::string::npos);
  }
  CHECK(warned("adapter.rank=16") == "");
}

TEST_CASE("a key that was written is told from a default") {
  const train::SftConfig config = load({"train={batch_size: 8}"});
  CHECK(config.was_set("train.batch_size"));
  CHECK_FALSE(config.was_set("train.max_steps"));
  CHECK(config.where("train.batch_size") ==
        "command line: train={batch_size: 8}: train.batch_size");
  CHECK(config.where("train.max_steps") == "train.max_steps");
}

TEST_CASE("a config that a program fills in is as sound as one that was read") {
  train::SftConfig config;
  config.output_dir = "run";
  CHECK_THROWS_WITH_AS(config.resolve("sft"),
                       "model.path is required: directory of a Hugging Face model, or its id in "
                       "the local cache; data.train is required: a file of rows, or a list of "
                       "{path, weight, name}",
                       ConfigError);
  config.model.path = "model";
  config.data.train = {{.path = "rows.jsonl"}};
  config.train.max_steps = 5;
  config.train.epochs = 2;
  CHECK_THROWS_WITH_AS(config.resolve("sft"),
                       "train.epochs: train.max_steps is set too; give one of them", ConfigError);
  config.train.epochs.reset();
  config.adapter.path = "adapter";
  config.resolve("sft");
  CHECK(config.adapter.method == models::AdapterSection::Method::kLora);
  CHECK(config.verb == "sft");
}

TEST_CASE("what an optimizer chose does not follow into another one") {
  using Betas = std::array<double, 2>;
  const std::string file = (std::filesystem::temp_directory_path() /
                            temper::str("temper-resolved-", ::getpid(), ".yaml"))
                               .string();
  const auto resolved = [&](const std::string& text) {
    train::SftConfig config;
    write_file_atomic(file, text);
    const std::vector<std::string> arguments{file, "optimizer.name=adamw"};
    train::read_run_config(config, arguments, "sft");
    return config.optimizer;
  };
  train::SftConfig lion = load({"optimizer.name=lion"}), muon = load({"optimizer.name=muon"});
  CHECK(lion.optimizer.betas == Betas{0.9, 0.99});
  CHECK(resolved(train::dump_run_config(lion)).betas == Betas{0.9, 0.999});
  CHECK(muon.optimizer.momentum == 0.95);
  CHECK(resolved(train::dump_run_config(muon)).momentum == 0);
  train::SftConfig written = load({"optimizer={name: lion, betas: [0.9, 0.99]}"});
  CHECK(resolved(train::dump_run_config(written)).betas == Betas{0.9, 0.99});
  std::filesystem::remove(file);
}

TEST_CASE("an adapter to go on from is a LoRA adapter") {
  using Method = models::AdapterSection::Method;
  CHECK(load({"adapter.path=a"}).adapter.method == Method::kLora);
  CHECK(load({"adapter={path: a, method: qlora}"}).adapter.method == Method::kQlora);
  CHECK(load_error({"adapter.path=a", "adapter.method=none"}) ==
        "command line: adapter.method=none: adapter.method: found none, but adapter.path names an "
        "adapter");
}

TEST_CASE("patterns of ranks and alphas keep their order") {
  const std::vector<std::string> keys{
      "adapter.method=lora", "adapter.rank_pattern={'.*q_proj': 4, down_proj: 2, a: 3}",
      "adapter.alpha_pattern={o_proj: 0.5}", "adapter.target_modules='.*_proj'"};
  train::SftConfig config = load(keys);
  const std::vector<models::LayerPattern> ranks{{".*q_proj", 4}, {"down_proj", 2}, {"a", 3}};
  CHECK((config.adapter.rank_pattern.list == ranks));
  const std::string path = std::filesystem::temp_directory_path() /
                           ("temper-patterns-" + std::to_string(::getpid()) + ".yaml");
  write_file_atomic(path, dump_run_config(config));
  train::SftConfig again;
  read_run_config(again, std::vector<std::string>{path}, "sft");
  std::filesystem::remove(path);
  CHECK((again.adapter.rank_pattern.list == ranks));
  CHECK(again.adapter.alpha_pattern == config.adapter.alpha_pattern);
  CHECK(again.adapter.target_modules == std::vector<std::string>{".*_proj"});
  CHECK(load_error({"adapter.method=lora", "adapter.rank_pattern={q_proj: 1.5}"})
            .find("adapter.rank_pattern.q_proj: found 1.5, expected a positive integer") !=
        std::string::npos);
  CHECK(load_error({"adapter.rank_pattern={q_proj: 0}"}).find("adapter.rank_pattern.q_proj") !=
        std::string::npos);
  CHECK(load_error({"adapter.rank_pattern=4"}).find("expected a map of numbers") !=
        std::string::npos);
}

TEST_CASE("profiled steps are a number, or a first step and a number") {
  CHECK(load({"train.profile=6"}).train.profile.steps == 6);
  CHECK(!load({"train.profile=6"}).train.profile.first);
  train::SftConfig config = load({"train.profile={first: 3, steps: 2}"});
  CHECK(config.train.profile.first == 3);
  CHECK(config.train.profile.steps == 2);
  CHECK(dump_run_config(config).find("profile:\n    first: 3\n    steps: 2\n") !=
        std::string::npos);
  for (const char* wrong : {"{first: 0, steps: 2}", "{first: 3}", "{steps: 2, last: 4}", "-1", "x"})
    CHECK(load_error({std::string("train.profile=") + wrong}).find("train.profile") !=
          std::string::npos);
}

TEST_CASE("what a verb needs is required") {
  CHECK(error_of({}) ==
        "output_dir is required: directory for everything the run writes; "
        "model.path is required: directory of a Hugging Face model, or its id in the local cache; "
        "data.train is required: a file of rows, or a list of {path, weight, name}");
  CHECK(error_of({"output_dir=r", "model.path=m"}) ==
        "data.train is required: a file of rows, or a list of {path, weight, name}");
  CHECK(error_of({"output_dir=r", "model.path=m", "data.train=x"}) == "no error");
  CHECK(error_of({"output_dir=", "model.path=m", "data.train=x"})
            .starts_with("command line: output_dir=: found no value; write output_dir=VALUE"));
  CHECK(error_of({"output_dir=\"\"", "model.path=m", "data.train=x"})
            .ends_with("output_dir is required: directory for everything the run writes"));
  CHECK(error_of({"output_dir=null"}) ==
        "command line: output_dir=null: output_dir: found null, expected text");
  CHECK(error_of({"output_dir=r", "model.path=m", "data.train=x", "verb=grpo"})
            .ends_with("the config is for grpo, the command is sft"));
}

TEST_CASE("keys that contradict each other") {
  CHECK(load_error({"train={max_steps: 5, epochs: 2}"}) ==
        "command line: train={max_steps: 5, epochs: 2}: train.epochs: train.max_steps is set too; "
        "give one of them");
  CHECK(load_error({"optimizer.warmup_steps=3", "optimizer.warmup_ratio=0.1"}) ==
        "command line: optimizer.warmup_ratio=0.1: optimizer.warmup_ratio: optimizer.warmup_steps "
        "is set too; give one of them");
  CHECK(load_error({"train.eval_every=5"}) ==
        "command line: train.eval_every=5: train.eval_every: there is neither data.eval nor "
        "data.validation_fraction to evaluate on");
  CHECK(
      load_error({"optimizer.momentum=0.9"}) ==
      "command line: optimizer.momentum=0.9: optimizer.momentum: found 0.9, expected 0: adamw does "
      "not read this key; these optimizers do: muon, sgd; adamw has betas");
  CHECK(load_error({"optimizer={name: sgd, momentum: 0.9}"}) == "no error");
  CHECK(load_error({"adapter={method: lora, target_modules: []}"})
            .ends_with("expected all-linear or names of linear layers"));
  CHECK(load_error({"adapter.target_modules=[all-linear, q_proj]"})
            .ends_with("adapter.target_modules: found all-linear among other names; expected it "
                       "alone, or names of linear layers"));
  CHECK(load_error({"learning_rate=1"}) ==
        "command line: learning_rate=1: unknown key `learning_rate`; did you mean "
        "`optimizer.learning_rate`?");
}

TEST_CASE("ranks divide the vocabulary with its new tokens") {
  namespace fs = std::filesystem;
  const std::string directory =
      temporary_directory() + "/temper_grown_" + std::to_string(::getpid());
  fs::remove_all(directory);
  fs::copy(golden_path("models/llama"), directory);
  Json tokenizer = {
      {"added_tokens", Json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", nullptr},
      {"post_processor", nullptr},
      {"decoder", nullptr},
      {"model", {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}}}};
  for (int i = 0; i < 61; ++i) tokenizer["model"]["vocab"]["t" + std::to_string(i)] = i;
  write_file_atomic(directory + "/tokenizer.json", tokenizer.dump());
  const auto error = [&](const std::string& tokens) -> std::string {
    train::SftConfig config =
        load({"model.path=" + directory, "mesh.tensor=2", "model.new_tokens=" + tokens});
    try {
      train::check_divisible(config);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "no error";
  };
  CHECK(error("[<x>]") == "no error");
  CHECK(error("[]").find("2 ranks do not divide the 61 tokens") != std::string::npos);
  CHECK(error("[<x>, <y>]").find("2 ranks do not divide the 63 tokens") != std::string::npos);
  models::use_new_tokens(directory, {}, "test");
  fs::remove_all(directory);
}
