// The commands that a finished run names.
#include "temper/cli/parts/next_steps.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "temper/rl/config.h"

using namespace temper;

namespace {

std::string flags_of(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"output_dir=run", "model.path=m", "data.train=rows",
                                     "rewards=[{name: exact}]"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  rl::RlConfig config;
  read_run_config(config, arguments, "grpo");
  return cli::eval_flags(config);
}

}  // namespace

TEST_CASE("the flags of `temper eval` are those with which the run sampled and judged") {
  const std::string usual = "--reward exact --temperature 1 --max-new-tokens 256";
  CHECK(flags_of({}) == usual);
  CHECK(flags_of({"rollout.temperature=0.7", "rollout.max_new_tokens=4"}) ==
        "--reward exact --temperature 0.7 --max-new-tokens 4");
  CHECK(flags_of({"rollout.top_k=20", "rollout.top_p=0.95", "rollout.min_p=0.1"}) ==
        usual + " --top-k 20 --top-p 0.95 --min-p 0.1");
  CHECK(flags_of({"rollout.repetition_penalty=1.1", "rollout.presence_penalty=-0.5",
                  "rollout.frequency_penalty=0.25", "rollout.no_repeat_ngram=3"}) ==
        usual +
            " --repetition-penalty 1.1 --presence-penalty -0.5 --frequency-penalty 0.25 "
            "--no-repeat-ngram 3");
  CHECK(flags_of({"rollout.min_new_tokens=2", "rollout.stop=[\"--\", \"it's\", END]",
                  "rollout.stop_token_ids=[3, 4]", "rollout.ignore_eos=true"}) ==
        usual +
            " --min-new-tokens 2 --stop=-- --stop='it'\\''s' --stop=END --stop-token-id 3 "
            "--stop-token-id 4 --ignore-eos");
  CHECK(flags_of({"rollout.logit_bias={7: -2.5}"}) == usual + " --logit-bias=7=-2.5");
  CHECK(flags_of({"rollout.regex=\"[0-9]+ ?\""}) == usual + " --regex='[0-9]+ ?'");
}

TEST_CASE("a run on pairs is evaluated on pairs, one on texts by perplexity, others by neither") {
  distill::DistillConfig distill;
  CHECK(cli::eval_flags(distill) == "--perplexity");
  distill.distill.strategy = "on_policy";
  CHECK(cli::eval_flags(distill).empty());
  preference::PreferenceConfig preference;
  CHECK(cli::eval_flags(preference) == "--pairs");
  preference.preference.loss = "kto";
  CHECK(cli::eval_flags(preference).empty());
  CHECK(cli::eval_flags(train::SftConfig()) == "--perplexity");
}

TEST_CASE("the commands load what a run left in the formats in which it trained") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("temper-next-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "final");
  const auto said = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"output_dir=" + folder.string(), "model.path=m",
                                       "data.train=rows"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    train::SftConfig config;
    read_run_config(config, arguments, "sft");
    return cli::next_steps(config, cli::eval_flags(config));
  };
  const std::string eval = "temper eval --model " + folder.string() + "/final";
  CHECK(said({}).find(eval + " --input rows --perplexity") != std::string::npos);
  CHECK(said({"model.dtype=bfloat16", "model.arithmetic=fast"})
            .find(eval + " --dtype bfloat16 --arithmetic fast --input") != std::string::npos);
  // Nothing is frozen under the whole model.
  CHECK(said({"model.storage=int8"}).find("--storage") == std::string::npos);
  std::ofstream(folder / "final/adapter_config.json") << "{}";
  CHECK(
      said({"model.storage=int8", "adapter.method=lora"}).find(eval + " --storage int8 --input") !=
      std::string::npos);
  // Without the key the adapter's file says how its base was kept.
  CHECK(said({"adapter.method=qlora"}).find("--storage") == std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST_CASE("no flags say what several rewards or an environment made of a completion") {
  CHECK(flags_of({"rewards=[{name: exact}, {name: json}]"}).empty());
  CHECK(flags_of({"environment.name=grid_world"}).empty());
  CHECK(flags_of({"environment.tools=[{name: calc, command: [sh]}]"}).empty());
}
