// The config of reinforcement learning: the algorithm's keys and defaults.
#include "temper/rl/config.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/generate/remote/protocol.h"
#include "temper/rl/algorithms/group_keys.h"
#include "temper/rl/algorithms/ppo.h"
#include "temper/train/run/input_files.h"
#include "tests/golden.h"

using namespace temper;
using rl::RlConfig;

namespace {

RlConfig load(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"output_dir=run", "model.path=model",
                                       "data.train=rows.jsonl", "rewards=[gsm8k]"});
  RlConfig config;
  read_run_config(config, overrides, "grpo");
  return config;
}

const rl::GroupKeys& keys(const RlConfig& config) { return group_keys(*config.rl.algorithm); }

std::string load_error(std::vector<std::string> overrides) {
  try {
    load(std::move(overrides));
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

std::string error_of(const std::vector<std::string>& arguments) {
  try {
    RlConfig config;
    read_run_config(config, arguments, "grpo");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

// A config file that goes with the test.
struct File {
  std::string path = (std::filesystem::temp_directory_path() /
                      ("temper-rl-config-" + std::to_string(::getpid()) + ".yaml"))
                         .string();
  explicit File(const std::string& text) { write_file_atomic(path, text); }
  ~File() { std::filesystem::remove(path); }
};

RlConfig config_of(std::vector<std::string> arguments) {
  RlConfig config;
  read_run_config(config, arguments, "grpo");
  return config;
}

// The keys of `schema` that `common` has not, or with another default.
std::string beyond(const std::string& schema, const std::string& common) {
  std::istringstream stream(schema);
  std::string out, line, help;
  while (std::getline(stream, line) && std::getline(stream, help))
    if (("\n" + common).find("\n" + line + "\n") == std::string::npos)
      out += line + "\n" + help + "\n";
  return out;
}

void check_golden(const std::string& name, const std::string& schema) {
  const std::string path = golden_path("config_schema/" + name + ".txt");
  if (std::getenv("TEMPER_UPDATE_GOLDENS")) write_file_atomic(path, schema);
  CAPTURE(name);
  CHECK(schema == read_file(path));
}

}  // namespace

// After a deliberate change: TEMPER_UPDATE_GOLDENS=1 build/tests/test_rl -tc="*schema*"
TEST_CASE("the schema of the config is the golden one") {
  RlConfig grpo;
  const std::string schema = describe_run_config(grpo);
  check_golden("grpo", schema);
  for (const auto& algorithm : rl::algorithms().list()) {
    const bool of_tests = algorithm.name.starts_with("test_");
    if (algorithm.name == "grpo" || of_tests || algorithm.value()->needs().critic) continue;
    RlConfig other;
    other.rl.set_algorithm(algorithm.name);
    check_golden(algorithm.name, beyond(describe_run_config(other), schema));
  }
  rl::PpoConfig ppo;
  check_golden("ppo", beyond(describe_run_config(ppo), schema));
}

TEST_CASE("the algorithm sets what its paper says, where the config is silent") {
  using rl::Aggregation;
  const RlConfig grpo = load({"rl.algorithm=grpo"});
  CHECK(keys(grpo).beta == 0.04);
  CHECK(keys(grpo).loss_aggregation == Aggregation::kSeqMeanTokenMean);
  const RlConfig dr = load({"rl.algorithm=dr_grpo"});
  CHECK(keys(dr).beta == 0);
  CHECK_FALSE(keys(dr).scale_rewards);
  CHECK(keys(dr).loss_aggregation == Aggregation::kSeqMeanTokenSumNorm);
  const RlConfig dapo = load({"rl.algorithm=dapo"});
  CHECK(keys(dapo).beta == 0);
  CHECK(keys(dapo).epsilon_low == 0.2);
  CHECK(keys(dapo).epsilon_high == 0.28);
  CHECK(keys(dapo).loss_aggregation == Aggregation::kTokenMean);
  CHECK(keys(dapo).dynamic_sampling);
  CHECK(keys(dapo).overlong_buffer == 51);
  CHECK(keys(load({"rl.algorithm=dapo", "rl.replay=r.jsonl"})).overlong_buffer == 0);
  const RlConfig gspo = load({"rl.algorithm=gspo"});
  CHECK(keys(gspo).importance == rl::Importance::kSequence);
  CHECK(keys(gspo).epsilon_low == 3e-4);
  CHECK(keys(gspo).epsilon_high == 4e-4);
  CHECK(keys(load({"rl.algorithm=rloo"})).beta == 0);
  const RlConfig cispo = load({"rl.algorithm=cispo"});
  CHECK(keys(cispo).epsilon_low == 1);
  CHECK(keys(cispo).epsilon_high == 4);
  CHECK(keys(cispo).loss_aggregation == rl::Aggregation::kTokenMean);
  const RlConfig gdpo = load({"rl.algorithm=gdpo"});
  CHECK(keys(gdpo).beta == 0);
  CHECK(keys(gdpo).reward_aggregation == rl::RewardAggregation::kNormalizeThenSum);
  CHECK(keys(grpo).reward_aggregation == rl::RewardAggregation::kSumThenNormalize);
  CHECK_FALSE(keys(load({"rl.algorithm=dro"})).scale_rewards);

  const RlConfig written = load({"rl={beta: 0.5, algorithm: dapo, dynamic_sampling: false}"});
  CHECK(keys(written).beta == 0.5);
  CHECK_FALSE(keys(written).dynamic_sampling);
  CHECK(written.rl.algorithm->max_refills() == 0);
  CHECK(written.was_set("rl.beta"));
  CHECK_FALSE(written.was_set("rl.epsilon_high"));
  CHECK(written.where("rl.beta") ==
        "command line: rl={beta: 0.5, algorithm: dapo, dynamic_sampling: false}: rl.beta");
}

TEST_CASE("a resolved config loads to the same config") {
  RlConfig config =
      load({"rl.algorithm=dapo", "rl.beta=0.30000000000000004", "seed=7",
            "rewards=[{name: gsm8k}, {command: [python, 'r 1.py'], on_failure: stop}]",
            "rollout.stop=\"\\n\"", "train.max_steps=5"});
  for (const bool with_help : {false, true}) {
    const File file(dump_run_config(config, with_help));
    RlConfig again = config_of({file.path});
    CHECK(dump_run_config(again) == dump_run_config(config));
    CHECK(again.verb == "grpo");
    CHECK(keys(again).beta == keys(config).beta);
    CHECK(keys(again).overlong_buffer == 51);
    CHECK(again.rollout.stop == std::vector<std::string>{"\n"});
    CHECK(again.rewards.at(1).command.at(1) == "r 1.py");
  }
}

TEST_CASE("a resolved config under another algorithm keeps what the user wrote, and nothing else") {
  RlConfig config = load({"rl.epsilon_low=0.1", "rl.kl_estimator=k2", "rl.group_size=5"});
  CHECK(config.defaulted.contains("rl.beta"));
  CHECK_FALSE(config.defaulted.contains("rl.epsilon_low"));
  const std::string text = dump_run_config(config, true);
  {
    const File file(text);
    const RlConfig gspo = config_of({file.path, "rl.algorithm=gspo"});
    CHECK(keys(gspo).epsilon_low == 0.1);
    CHECK(keys(gspo).kl_estimator == train::KlEstimator::kK2);
    CHECK(gspo.rl.group_size == 5);
    CHECK(keys(gspo).epsilon_high == 4e-4);
    CHECK(keys(gspo).beta == 0);
    CHECK(keys(gspo).importance == rl::Importance::kSequence);
    // The value that was the default, when somebody asks for it.
    CHECK(keys(config_of({file.path, "rl.algorithm=gspo", "rl.beta=0.04"})).beta == 0.04);
  }
  // Edited by hand in the resolved file itself.
  const size_t at = text.find("beta: 0.04");
  REQUIRE(at != std::string::npos);
  const File edited(text.substr(0, at) + "beta: 0.07" + text.substr(at + 10));
  const RlConfig gspo = config_of({edited.path, "rl.algorithm=gspo"});
  CHECK(keys(gspo).beta == 0.07);
  CHECK(keys(gspo).epsilon_high == 4e-4);
}

TEST_CASE("a dapo run's resolved config runs again; a replay of it shapes nothing twice") {
  RlConfig config = load({"rl.algorithm=dapo", "rollout.max_new_tokens=100"});
  const File file(dump_run_config(config));
  CHECK(keys(config_of({file.path})).overlong_buffer == 20);
  CHECK(keys(config_of({file.path, "rollout.max_new_tokens=50"})).overlong_buffer == 10);
  const RlConfig replay = config_of({file.path, "rl.replay=r.jsonl"});
  CHECK(keys(replay).overlong_buffer == 0);
  rl::EpisodeGroup group;
  group.segments = {{.tokens = {1}},
                    {.parent = 0, .tokens = std::vector<int32_t>(95, 2), .sampled = true}};
  group.episodes = {{.path = {1}, .reward = 1}};
  const RlConfig first = config_of({file.path});
  for (int twice = 0; twice < 2; ++twice) {  // the penalty is set, not added
    first.rl.algorithm->shape(group);
    CHECK(group.episodes[0].shaped() == 0.25);
  }
  replay.rl.algorithm->shape(group);
  CHECK(group.episodes[0].shaped() == 0.25);
}

TEST_CASE("rl.on_mismatch that nobody wrote follows what samples") {
  using OnMismatch = rl::RlSection::OnMismatch;
  RlConfig config = load({});
  CHECK((config.rl.on_mismatch == OnMismatch::kStop));
  const File file(dump_run_config(config));
  CHECK((config_of({file.path, "rl.max_staleness=1"}).rl.on_mismatch == OnMismatch::kCorrect));
  CHECK_FALSE(config_of({file.path, "rl.replay=r.jsonl"}).was_set("rl.on_mismatch"));
  CHECK(config_of({file.path, "rl.on_mismatch=stop"}).was_set("rl.on_mismatch"));
}

TEST_CASE("keys that a program sets are in the resolved config as its own") {
  RlConfig config;
  config.output_dir = "run";
  config.model.path = "model";
  config.rl.replay = "r.jsonl";
  group_keys(*config.rl.algorithm).beta = 0;
  config.resolve("grpo");
  CHECK_FALSE(config.defaulted.contains("rl.beta"));
  CHECK(config.defaulted.contains("rl.epsilon_low"));
  const File file(dump_run_config(config));
  CHECK(keys(config_of({file.path})).beta == 0);
}

TEST_CASE("what reinforcement learning needs is required") {
  CHECK(error_of({"output_dir=r", "model.path=m"}) ==
        "data.train is required: a file of rows, or a list of {path, weight, name}; "
        "rewards is required: a list of {name, weight}, {command, ...} or {model, ...}");
  CHECK(error_of({"output_dir=r", "model.path=m", "rl.replay=x"}) == "no error");
  CHECK(error_of({"output_dir=r", "model.path=m", "data.train=x"}) ==
        "rewards is required: a list of {name, weight}, {command, ...} or {model, ...}");
  const std::string tools = "environment={tools: [{name: f, command: [sh]}]}";
  CHECK(error_of({"output_dir=r", "model.path=m", "data.train=x", tools}) ==
        "rewards is required: tools give no rewards; a list of {name, weight}, {command, ...} or "
        "{model, ...}");
  CHECK(error_of({"output_dir=r", "model.path=m", "data.train=x",
                  "environment={name: grid_world}"}) == "no error");
  CHECK(error_of({"output_dir=r", "model.path=m", "data.train=x", "rewards=[{name: length}]",
                  tools}) == "no error");
}

TEST_CASE("keys that contradict each other") {
  CHECK(load_error({"rollout.stop=['']"})
            .ends_with("rollout.stop: found an empty text, expected at least one character"));
  CHECK(load_error({"rewards=[{weight: 2}]"}) ==
        "command line: rewards=[{weight: 2}]: rewards: reward 1 has neither a name, a command, a "
        "model nor a judge");
  CHECK(load_error({"rewards=[{name: a}, {name: a}]"})
            .ends_with("two rewards are called `a`; give one another name, as in {name: another, "
                       "reward: a}"));
  CHECK(load_error({"rewards=[{judge: {model: m, prompt: rate it}}]"})
            .find("judge.prompt: found no {completion}") != std::string::npos);
  CHECK(load_error({"rl.minibatches=65"})
            .ends_with("expected at most the 64 rows of a rollout batch (rl.prompts_per_rollout x "
                       "rl.group_size)"));
  CHECK(
      load_error({"rl={group_size: 9000000000000000000, prompts_per_rollout: 9000000000000000000}"})
          .ends_with("expected at most 1000000 completions in a rollout batch"));
  CHECK(load_error({"adapter={method: lora, dropout: 0.1}"})
            .ends_with("adapter.dropout: found 0.1, expected 0 under grpo: the sampler's "
                       "log-probabilities must be the trainer's"));
  CHECK(load_error({"rl.dual_clip=0.5"})
            .find("rl.dual_clip: found 0.5, expected 0 (off) or at "
                  "least 1") != std::string::npos);
  CHECK(load_error({"rl.dual_clip=1"}) == load_error({}));
  CHECK(load_error({"rl.beta=1e30"})
            .ends_with("rl.beta: found 1e30, expected number of at most "
                       "1e+15"));
  CHECK(load_error({"rollout.temperature=0"})
            .ends_with("log-probabilities are those at this temperature"));
  CHECK(
      load_error({"rl.group_size=1"}).ends_with("an advantage compares completions of one prompt"));
  CHECK(load_error({"rl.overlong_buffer=300"})
            .ends_with("rl.overlong_buffer: found 300, expected at most rollout.max_new_tokens, "
                       "256"));
  const std::string unknown = load_error({"rl.algorithm=grppo"});
  CHECK(
      unknown.starts_with("command line: rl.algorithm=grppo: rl.algorithm: unknown algorithm "
                          "`grppo`; expected one of " +
                          rl::algorithms().names().front()));
  CHECK(unknown.ends_with("did you mean `grpo`?"));
  CHECK(load_error({"rl.lambda=0.9"}).find("unknown key `rl.lambda`") != std::string::npos);
}

TEST_CASE("keys that the algorithm does not use are told of") {
  const RlConfig rloo = load({"rl.algorithm=rloo", "rl.epsilon_low=0.1", "rl.scale_rewards=false"});
  REQUIRE(rloo.warnings.size() == 1);
  CHECK(rloo.warnings[0] ==
        "without effect under rl.algorithm: rloo: rl.epsilon_low, rl.scale_rewards");
  CHECK(load({"rl.algorithm=rloo"}).warnings.empty());
  CHECK(load({"rl.algorithm=grpo", "rl.epsilon_low=0.1"}).warnings.empty());
}

TEST_CASE("servers that keep their weights are not for a run that stops at a mismatch") {
  const auto error = [](std::vector<std::string> more) {
    more.insert(more.end(), {"rollout.server.urls=[http://127.0.0.1:8000]", "rl.minibatches=2"});
    return load_error(more);
  };
  CHECK(error({"rollout.server.sync=none"}) == "no error");  // corrects
  CHECK(error({"rl.on_mismatch=stop"}) == "no error");
  const std::string refused = error({"rollout.server.sync=none", "rl.on_mismatch=stop"});
  CHECK(refused.find("rl.on_mismatch: found stop with rollout.server.sync none") !=
        std::string::npos);
  // All updates are made on what the policy of the beginning sampled.
  CHECK(error({"rollout.server.sync=none", "rl.on_mismatch=stop", "train.max_steps=2"}) ==
        "no error");
  CHECK(error({"rollout.server.sync=none", "rl.on_mismatch=stop", "train.max_steps=3"}) == refused);
}

TEST_CASE("rows of embeddings that servers do not get are refused") {
  const auto error = [](const std::string& kind, std::vector<std::string> more) {
    more.insert(more.end(),
                {"rollout.server.kind=" + kind, "rollout.server.urls=[http://127.0.0.1:8000]"});
    return load_error(more);
  };
  const auto has = [](const std::string& found, const std::string& part) {
    CAPTURE(found);
    CHECK(found.find(part) != found.npos);
  };
  const std::string lora = "adapter.method=lora", tokens = "model.new_tokens=[<a>]",
                    rows = "adapter.train_tokens=[a]", new_rows = "adapter.train_tokens=new",
                    keeps = "rollout.server.sync=none",
                    no_tokens = "model.new_tokens: found tokens with rollout.server",
                    no_rows = "adapter.train_tokens: found tokens with rollout.server";
  for (const std::string& kind : generate::remote::server_kinds().names()) {
    CAPTURE(kind);
    const bool takes = generate::remote::make_protocol(kind, 0)->takes_token_rows();
    CHECK(error(kind, {lora}) == "no error");
    has(error(kind, {lora, rows}), takes ? "no error" : no_rows);
    has(error(kind, {lora, tokens, new_rows}), takes ? "no error" : no_rows);
    CHECK(error(kind, {lora, rows, keeps}) == "no error");
    has(error(kind, {lora, tokens}), no_tokens);
    has(error(kind, {lora, tokens, new_rows, keeps}), no_tokens);
    // The whole model is sent.
    CHECK(error(kind, {tokens}) == "no error");
    has(error(kind, {tokens, keeps}), no_tokens);
  }
  CHECK(generate::remote::make_protocol("openai", 0)->takes_token_rows());
  CHECK(load_error({lora, tokens, new_rows}) == "no error");
}

TEST_CASE("ranks judge where any reward has a model, of an evaluation, too") {
  CHECK(load_error({"roles.reward=[1]"}).find("no entry of rewards has a model") !=
        std::string::npos);
  const std::string evaluated = "train.eval_rewards=[{model: m}]", rows = "data.eval=rows.jsonl";
  CHECK(load_error({"roles.reward=[1]", evaluated, rows}) == "no error");
  CHECK(load_error({"roles.reward=[1]", evaluated, rows, "rl.replay=r.jsonl"}) == "no error");
  CHECK(load_error({"roles.reward=[1]", "train.eval_rewards=[gsm8k]", rows})
            .find("no entry of rewards has a model") != std::string::npos);
}

TEST_CASE("sizes of images that servers would not know are refused") {
  const std::string server = "rollout.server.urls=[http://127.0.0.1:8000]";
  for (const std::string key : {"data.min_image_pixels", "data.max_image_pixels"}) {
    CHECK(load_error({key + "=4096"}) == "no error");
    CHECK(load_error({key + "=null", server}) == "no error");
    CHECK(load_error({key + "=4096", server})
              .find(key + ": found 4096 with rollout.server, expected null") != std::string::npos);
  }
}

TEST_CASE("an empty program of an environment is an error, but not in a resolved config") {
  const std::string found = ": found an empty list, expected a program";
  for (const std::string key : {"environment.command", "environment.openai.command"}) {
    CHECK(load_error({key + "=[]"}).find(key + found) != std::string::npos);
    CHECK(load_error({key + "=null"}) == "no error");
  }
  const std::string without =
      error_of({"output_dir=run", "model.path=model", "data.train=rows.jsonl",
                "environment={openai: {command: []}}"});
  CHECK(without.find("environment.openai.command" + found) != std::string::npos);
  RlConfig config = load({});
  const File file(train::dump_run_config(config));
  CHECK(load_error({file.path}) == "no error");
}

TEST_CASE("sampling options that the servers cannot obey are refused") {
  const auto error = [](const std::string& kind, const std::string& option) {
    return load_error({"rollout.server.kind=" + kind, "rollout.server.urls=[http://127.0.0.1:8000]",
                       "rollout." + option});
  };
  for (const std::string& kind : generate::remote::server_kinds().names()) {
    CAPTURE(kind);
    for (const char* fine :
         {"presence_penalty=2", "frequency_penalty=-2", "logit_bias={\"11\": -100}",
          "min_new_tokens=4", "stop_token_ids=[3]", "regex=a+", "repetition_penalty=1.5"})
      CHECK(error(kind, fine) == "no error");
  }
  // Bounds of all servers are those of every run.
  CHECK(load_error({"rollout.presence_penalty=2.5"}).find("rollout.presence_penalty: found 2.5") !=
        std::string::npos);
  CHECK(
      load_error({"rollout.logit_bias={\"11\": 101}"}).find("rollout.logit_bias.11: found `101`") !=
      std::string::npos);
  CHECK(error("openai", "no_repeat_ngram=3") == "no error");
  CHECK(error("openai", "repetition_penalty=3") == "no error");
  CHECK(error("sglang", "repetition_penalty=3").find("rollout.repetition_penalty") !=
        std::string::npos);
  for (const std::string kind : {"vllm", "sglang"})
    CHECK(error(kind, "no_repeat_ngram=3").find("rollout.no_repeat_ngram: found 3") !=
          std::string::npos);
  CHECK(load_error({"rollout.no_repeat_ngram=3", "rollout.presence_penalty=2"}) == "no error");
}

TEST_CASE("a metric that ends the run is one that evaluations of prompts have") {
  const auto error = [](const std::string& metric, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"data.eval=rows.jsonl", "train.early_stopping.metric=" + metric});
    return load_error(more);
  };
  for (const char* metric :
       {"eval/reward_mean", "eval/rewards/gsm8k", "eval/completion_length_mean"})
    CHECK(error(metric) == "no error");
  for (const char* metric :
       {"eval/loss", "eval/kl", "eval/rewards/gsm", "eval/turns_mean", "eval/rewards/environment"})
    CHECK(error(metric).find("which no evaluation of this run has") != std::string::npos);
  for (const char* metric : {"eval/turns_mean", "eval/rewards/environment", "eval/rewards/gsm8k"})
    CHECK(error(metric, {"environment.name=grid_world"}) == "no error");
  CHECK(error("eval/group_reward/easy").find("no evaluation") != std::string::npos);
}

TEST_CASE("files of any key that names some are a run's inputs") {
  const char* source = std::getenv("TEMPER_SOURCE_DIR");
  const std::string file = str(source ? source : ".", "/README.md");
  for (const auto& [setting, key] : std::map<std::string, std::string>{
           {"rollout.grammar=" + file, "rollout.grammar"},
           {"rollout.json_schema=" + golden_path("models/qwen3/config.json"),
            "rollout.json_schema"},
           {"rl.reference=" + file, "rl.reference"},
           {"train.eval_rewards=[{command: [cat, " + file + "]}]",
            "train.eval_rewards[0].command[1]"},
           {"environment.tools=[{mcp: [cat, " + file + "]}]", "environment.tools[0].mcp[1]"}}) {
    CAPTURE(setting);
    RlConfig config = load({setting, "data.eval=rows.jsonl"});
    std::vector<std::string> keys;
    for (const train::InputFile& f : train::input_files(config)) keys.push_back(f.key);
    CHECK(std::count(keys.begin(), keys.end(), key) == 1);
  }
}

TEST_CASE("a reward that always dies ends the run unless the config says what a failure is") {
  const RlConfig config = load(
      {"rewards=[{command: [sh]}, {name: b, command: [sh], on_failure: zero}, {name: c, command: "
       "[sh], on_failure: drop}]"});
  REQUIRE(config.rewards.size() == 3);
  CHECK(config.rewards[0].ends_where_dead);
  CHECK_FALSE(config.rewards[1].ends_where_dead);
  CHECK_FALSE(config.rewards[2].ends_where_dead);
}
