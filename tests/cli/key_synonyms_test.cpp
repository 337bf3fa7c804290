// What the hints for keys of other trainers say.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/base/error.h"
#include "temper/cli/list/tables.h"
#include "temper/cli/synonyms/synonyms.h"

using namespace temper;
using cli::key_synonyms;

namespace {

struct Sample {
  struct Inner {
    int64_t size = 0;
    void fields(Fields& f) { f.add("size", size, "a number"); }
  } inner;
  void fields(Fields& f) { f.add("inner", inner, "more"); }
};

template <class Config>
std::string error_in(Config& config, const YamlNode& node) {
  use_key_synonyms(key_synonyms());
  try {
    read_fields(node, "", Fields::of(config));
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}
std::string read_error(const std::string& yaml) {
  Sample sample;
  return error_in(sample, parse_yaml(yaml, "c.yaml"));
}

}  // namespace

TEST_CASE("a key of another trainer says what it is here") {
  CHECK(read_error("lr: 1") ==
        "c.yaml:1: unknown key `lr`; `lr` is called optimizer.learning_rate here");
  CHECK(read_error("inner: {per-device-train-batch-size: 8}") ==
        "c.yaml:1: unknown key `inner.per-device-train-batch-size`; "
        "`per-device-train-batch-size` is called train.batch_size here; it is rows a step over all "
        "ranks; train.micro_batch_tokens bounds one forward pass");
  CHECK(read_error("Gradient_Accumulation_Steps: 4") ==
        "c.yaml:1: unknown key `Gradient_Accumulation_Steps`; there is no such key here; "
        "train.batch_size is rows a step over all ranks, and train.micro_batch_tokens bounds one "
        "forward pass: passes are accumulated as needed");
  // Sections of other programs: their first value says what is meant.
  CHECK(read_error("actor_rollout_ref: {rollout: {n: 5}}") ==
        "c.yaml:1: unknown key `actor_rollout_ref`; `actor_rollout_ref.rollout.n` is called "
        "rl.group_size here");
  CHECK(read_error("trainer: {total_epochs: 2}")
            .ends_with("`trainer.total_epochs` is called train.epochs here"));
  CHECK(
      read_error("teacher: {path: t}").ends_with("`teacher.path` is called distill.teacher here"));
  CHECK(read_error("nobody: {knows: 1}").find("expected one of") != std::string::npos);
}

TEST_CASE("a key of another trainer that is switched off is no advice to switch it on") {
  const auto hint = [](const std::string& yaml) {
    const std::string error = read_error(yaml);
    return error.substr(error.rfind("; ") + 2);
  };
  CHECK(hint("train_on_inputs: true") == "write data.train_on: all");
  CHECK(hint("train_on_inputs: false") ==
        "false is what data.train_on: auto does, the default: leave it out");
  for (const char* key : {"load_in_8bit", "load_in_4bit", "gradient_checkpointing", "use_vllm",
                          "use_peft", "no_cuda", "load_best_model_at_end"}) {
    CAPTURE(key);
    CHECK(hint(std::string(key) + ": false") ==
          "false is what a run does without it: leave it out");
    CHECK(hint(std::string(key) + ": true") != hint(std::string(key) + ": false"));
  }
  CHECK(hint("completion_only_loss: false") == "write data.train_on: all");
  CHECK(hint("bf16: false") == "write model.dtype: float32");
}

TEST_CASE("keys of verl and axolotl that have names of their own here") {
  use_key_synonyms(key_synonyms());
  for (const auto& [key, here] : {std::pair{"filter_overlong_prompts", "data.overlong"},
                                  {"truncation", "data.overlong"},
                                  {"val_before_train", "train.eval_at_start"},
                                  {"val_kwargs.temperature", "rollout.temperature"},
                                  {"critic_warmup", "ppo.critic_warmup_steps"},
                                  {"early_stopping_patience", "train.early_stopping.patience"},
                                  {"load_best_model_at_end", "train.keep_best.metric"},
                                  {"adamw_bnb_8bit", "optimizer.name"},
                                  {"special_tokens.pad_token", "model.path"},
                                  {"special_tokens.additional_special_tokens", "model.new_tokens"},
                                  {"wandb_name", "output_dir"}}) {
    CAPTURE(key);
    const KeySynonym* const found = find_key_synonym(key);
    REQUIRE(found);
    CHECK(found->key == here);
  }
  CHECK(find_key_synonym("dataset_prepared_path")->key.empty());
}

// With the sections in which those programs have them.
TEST_CASE("keys of other trainers are told what they are here") {
  struct Rl {
    std::string algorithm, rollout;
    void fields(Fields& f) {
      f.add("algorithm", algorithm, "a name");
      f.add("no_repeat_ngram", rollout, "a number");
    }
  };
  struct Run {
    Rl rl, rollout;
    void fields(Fields& f) {
      f.add("rl", rl, "more");
      f.add("rollout", rollout, "more");
    }
  } run;
  for (const auto& [key, here] :
       {std::pair{"rollout.n", "rl.group_size"},
        {"data.train_batch_size", "rl.prompts_per_rollout"},
        {"trl.beta", "rl.beta"},
        {"algorithm.gamma", "ppo.gamma"},
        {"algorithm.lam", "ppo.gae_lambda"},
        {"critic.cliprange_value", "ppo.value_clip"},
        {"rollout_is_threshold", "rl.importance_cap"},
        {"actor.use_remove_padding", "data.packing"},
        {"enable_gradient_checkpointing", "train.recompute"},
        {"steps_per_generation", "rl.minibatches"},
        {"actor.clip_ratio_c", "rl.dual_clip"},
        {"actor.policy_loss.loss_mode", "rl.importance"},
        {"custom_reward_function", "rewards"},
        {"algorithm.filter_groups.enable", "rl.dynamic_sampling"},
        {"rl_training_config.critic_optimizer_config", "ppo.critic_learning_rate"},
        {"agentic_grpo_config.off_policy_steps", "rl.max_staleness"}}) {
    const std::string error = error_in(
        run,
        read_config_arguments(std::vector<std::string>{std::string(key) + "=1"}, Fields::of(run)));
    CAPTURE(error);
    CHECK(error.find(str("` is called ", here, " here")) != std::string::npos);
  }
}

TEST_CASE("the names of other trainers are sorted, so that each is found") {
  const auto names = key_synonyms();
  use_key_synonyms(names);
  CHECK(std::is_sorted(names.begin(), names.end(),
                       [](const KeySynonym& a, const KeySynonym& b) { return a.name < b.name; }));
  for (const KeySynonym& name : names) {
    CHECK(find_key_synonym(name.name) == &name);
    CHECK_FALSE((name.key.empty() && name.note.empty()));
  }
  CHECK(find_key_synonym("zzz") == nullptr);
  CHECK(find_key_synonym("") == nullptr);
}

// The golden schemas hold the keys of every verb.
TEST_CASE("what the names of other trainers are called here are keys of the config") {
  const char* root = std::getenv("TEMPER_SOURCE_DIR");
  const std::filesystem::path folder =
      std::filesystem::path(root ? root : ".") / "tests/golden/config_schema";
  std::string keys;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream lines(file.path());
    for (std::string line; std::getline(lines, line);)
      if (!line.starts_with(" ")) keys += "\n" + line;
  }
  for (const KeySynonym& name : key_synonyms()) {
    CAPTURE(name.name);
    const std::string key = "\n" + std::string(name.key);
    const bool known =
        keys.find(key + ":") != std::string::npos || keys.find(key + ".") != std::string::npos;
    CHECK((name.key.empty() || known));
  }
}

TEST_CASE("every key of another trainer's configs has a row") {
  use_key_synonyms(key_synonyms());
  CHECK(cli::peers().size() == 4);
  for (const cli::Peer& peer : cli::peers()) {
    CAPTURE(peer.name);
    std::istringstream lines{std::string(peer.keys)};
    std::vector<std::string> keys;
    for (std::string key; std::getline(lines, key); keys.push_back(key)) {
      CAPTURE(key);
      CHECK(find_key_synonym(key) != nullptr);
    }
    CHECK(keys.size() > 250);
    CHECK(std::ranges::is_sorted(keys));
    CHECK(cli::peer_table(peer).rows.size() == keys.size());
  }
}

TEST_CASE("the key that a path means is found by its end, its section or its beginning") {
  use_key_synonyms(key_synonyms());
  for (const auto& [path, here] :
       {std::pair{"actor_rollout_ref.actor.optim.lr", "optimizer.learning_rate"},
        {"critic.optim.lr", "ppo.critic_learning_rate"},  // the longest end
        {"critic.optim.weight_decay", "ppo.critic"},      // a section
        {"actor_rollout_ref.actor.profiler.tool_config.npu.level", "train.profile"},
        {"actor_rollout_ref.actor.megatron.tensor_model_parallel_size", "mesh.tensor"},
        {"datasets.field_human", "data.columns"},  // a beginning
        {"qgalore_rank", ""},
        {"actor_rollout_ref.model.lora.rank", "adapter.rank"}}) {
    CAPTURE(path);
    const KeySynonym* const found = find_key_synonym(path);
    REQUIRE(found);
    CHECK(found->key == here);
  }
  CHECK(find_key_synonym("profiler.") != nullptr);
  CHECK(find_key_synonym("data.field_human") == nullptr);
}
