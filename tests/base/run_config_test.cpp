#include "temper/base/run_config.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "temper/base/error.h"
#include "temper/base/file.h"

using namespace temper;

namespace {

std::string source_path(const std::string& path) {
  const char* root = std::getenv("TEMPER_SOURCE_DIR");
  return (root ? std::string(root) + "/" : std::string()) + path;
}

RunConfig load(std::vector<std::string> overrides, std::string_view verb = {}) {
  overrides.insert(overrides.begin(),
                   {"output_dir=run", "model.path=model", "data.train=rows.jsonl"});
  return load_run_config(overrides, verb);
}

std::string load_error(std::vector<std::string> overrides, std::string_view verb = {}) {
  try {
    load(std::move(overrides), verb);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

// After a deliberate change: TEMPER_UPDATE_GOLDENS=1 build/tests/test_base -tc="*schema*"
TEST_CASE("the schema of the config is the golden one") {
  const std::string path = source_path("tests/golden/config_schema.txt");
  if (std::getenv("TEMPER_UPDATE_GOLDENS")) write_file_atomic(path, describe_run_config());
  CHECK(describe_run_config() == read_file(path));
}

TEST_CASE("a resolved config loads to the same config") {
  const RunConfig config =
      load({"rl.algorithm=dapo", "optimizer.learning_rate=0.30000000000000004", "seed=7",
            "rewards=[{name: gsm8k}, {command: [python, 'r 1.py'], on_failure: stop}]",
            "data.train=[{path: a, weight: 0.1}, {path: b, name: bee}]", "data.eval=c",
            "data.columns={prompt: question}", "rollout.stop=\"\\n\"", "train.max_steps=5"},
           "grpo");
  const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                     ("temper-config-" + std::to_string(::getpid()) + ".yaml");
  for (const bool with_help : {false, true}) {
    write_file_atomic(file, dump_run_config(config, with_help));
    const std::string arguments[] = {file};
    const RunConfig again = load_run_config(arguments, "grpo");
    CHECK(dump_run_config(again) == dump_run_config(config));
    CHECK(again.verb == "grpo");
    CHECK(again.optimizer.learning_rate == config.optimizer.learning_rate);
    CHECK(again.rollout.stop == std::vector<std::string>{"\n"});
    CHECK(again.data.train.at(0).weight == 0.1);
    CHECK(again.rewards.at(1).command.at(1) == "r 1.py");
  }
  std::filesystem::remove(file);
}

TEST_CASE("the algorithm sets what its paper says, where the config is silent") {
  using Aggregation = RlSection::Aggregation;
  const RunConfig grpo = load({"rl.algorithm=grpo"});
  CHECK(grpo.rl.beta == 0.04);
  CHECK(grpo.rl.loss_aggregation == Aggregation::kSeqMeanTokenMean);
  const RunConfig dr = load({"rl.algorithm=dr_grpo"});
  CHECK(dr.rl.beta == 0);
  CHECK_FALSE(dr.rl.scale_rewards);
  CHECK(dr.rl.loss_aggregation == Aggregation::kSeqMeanTokenSumNorm);
  const RunConfig dapo = load({"rl.algorithm=dapo"});
  CHECK(dapo.rl.beta == 0);
  CHECK(dapo.rl.epsilon_low == 0.2);
  CHECK(dapo.rl.epsilon_high == 0.28);
  CHECK(dapo.rl.loss_aggregation == Aggregation::kTokenMean);
  CHECK(dapo.rl.dynamic_sampling);
  CHECK(dapo.rl.overlong_buffer == 51);
  const RunConfig replay = load({"rl.algorithm=dapo", "rl.replay=r.jsonl"});
  CHECK_FALSE(replay.rl.dynamic_sampling);
  CHECK(replay.rl.overlong_buffer == 0);
  const RunConfig gspo = load({"rl.algorithm=gspo"});
  CHECK(gspo.rl.importance == RlSection::Importance::kSequence);
  CHECK(gspo.rl.epsilon_low == 3e-4);
  CHECK(gspo.rl.epsilon_high == 4e-4);
  CHECK(load({"rl.algorithm=rloo"}).rl.beta == 0);

  const RunConfig written = load({"rl={beta: 0.5, algorithm: dapo, dynamic_sampling: false}"});
  CHECK(written.rl.beta == 0.5);
  CHECK_FALSE(written.rl.dynamic_sampling);
  CHECK(written.was_set("rl.beta"));
  CHECK_FALSE(written.was_set("rl.epsilon_high"));
  CHECK(written.where("rl.beta") ==
        "command line: rl={beta: 0.5, algorithm: dapo, dynamic_sampling: false}: rl.beta");
  CHECK(written.where("rl.epsilon_high") == "rl.epsilon_high");
}

TEST_CASE("an adapter to go on from is a LoRA adapter") {
  CHECK(load({"adapter.path=a"}).adapter.method == AdapterSection::Method::kLora);
  CHECK(load({"adapter={path: a, method: qlora}"}).adapter.method ==
        AdapterSection::Method::kQlora);
  CHECK(load_error({"adapter.path=a", "adapter.method=none"}) ==
        "command line: adapter.method=none: adapter.method: found none, but adapter.path names an "
        "adapter");
}

TEST_CASE("what a verb needs is required") {
  const auto error = [](std::vector<std::string> arguments, std::string_view verb) {
    try {
      load_run_config(arguments, verb);
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(error({}, "") ==
        "output_dir is required: the directory for everything that the run leaves");
  CHECK(error({"output_dir=r"}, "") == "no error");
  CHECK(error({"output_dir=r"}, "sft") ==
        "model.path is required: the directory of a Hugging Face model");
  CHECK(error({"output_dir=r", "verb=sft"}, "") ==
        "model.path is required: the directory of a Hugging Face model");
  CHECK(error({"output_dir=r", "model.path=m"}, "dpo") ==
        "data.train is required: a file of rows, or a list of {path, weight, name}");
  CHECK(error({"output_dir=r", "model.path=m", "rl.replay=x"}, "grpo") == "no error");
  CHECK(error({"output_dir=r", "model.path=m", "data.train=x"}, "grpo") ==
        "rewards is required: a list of {name, weight} or {command, ...}");
  CHECK(error({"output_dir="}, "") ==
        "command line: output_dir=: output_dir: found null, expected text");
}

TEST_CASE("keys that contradict each other") {
  CHECK(load_error({"train={max_steps: 5, epochs: 2}"}) ==
        "command line: train={max_steps: 5, epochs: 2}: train.epochs: train.max_steps is set too; "
        "give one of them");
  CHECK(load_error({"train.max_steps=5", "optimizer.warmup_steps=6"}) ==
        "command line: optimizer.warmup_steps=6: optimizer.warmup_steps: found 6, expected at most "
        "train.max_steps, 5");
  CHECK(load_error({"train.eval_every=5"}) ==
        "command line: train.eval_every=5: train.eval_every: there is no data.eval to evaluate on");
  CHECK(load_error({"optimizer.momentum=0.9"}) ==
        "command line: optimizer.momentum=0.9: optimizer.momentum: found 0.9, expected 0: momentum "
        "is sgd's, adamw has betas");
  CHECK(load_error({"optimizer={name: sgd, momentum: 0.9}"}) == "no error");
  CHECK(load_error({"adapter={method: lora, target_modules: []}"})
            .ends_with("expected all-linear or names of linear layers"));
  CHECK(load_error({"adapter.target_modules=[all-linear, q_proj]"})
            .ends_with("adapter.target_modules: all-linear stands alone"));
  CHECK(load_error({"rewards=[{weight: 2}]"}) ==
        "command line: rewards=[{weight: 2}]: rewards: reward 1 has neither a name nor a command");
  CHECK(load_error({"rewards=[{name: a}, {name: a}]"})
            .ends_with("two rewards are called `a`; give one another name"));
  CHECK(load_error({"rl.minibatches=65"})
            .ends_with("expected at most the 64 rows of a rollout batch (rl.prompts_per_rollout x "
                       "rl.group_size)"));
  CHECK(
      load_error({"rl={group_size: 9000000000000000000, prompts_per_rollout: 9000000000000000000}"})
          .ends_with("expected at most 1000000 completions in a rollout batch"));
  CHECK(load_error({"adapter={method: lora, dropout: 0.1}", "rewards=[gsm8k]"}, "grpo")
            .ends_with("adapter.dropout: found 0.1, expected 0 under grpo: the sampler's "
                       "log-probabilities must be the trainer's"));
  CHECK(load_error({"rollout.temperature=0", "rewards=[gsm8k]"}, "grpo")
            .ends_with("greedy completions are all the same"));
  CHECK(load_error({"rl.group_size=1", "rewards=[gsm8k]"}, "grpo")
            .ends_with("an advantage compares completions of one prompt"));
  CHECK(load_error({"learning_rate=1"}) ==
        "command line: learning_rate=1: unknown key `learning_rate`; did you mean "
        "`optimizer.learning_rate`?");
}
