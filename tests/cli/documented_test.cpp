// Everything that a config or command line chooses by name stands in the page that says what there
// is.
#include <doctest/doctest.h>

#include "temper/base/file.h"
#include "temper/cli/parts/shared_config.h"
#include "temper/cli/training.h"
#include "temper/distill/strategy.h"
#include "temper/env/environment.h"
#include "temper/generate/remote/protocol.h"
#include "temper/metrics/sink.h"
#include "temper/models/family.h"
#include "temper/preference/losses.h"
#include "temper/rewards/reward.h"
#include "temper/rl/algorithms/algorithm.h"
#include "temper/train/optimizers/update_rule.h"
#include "tests/golden.h"

using namespace temper;

namespace {

void check_page(const char* page, const std::vector<std::string>& names) {
  const std::string text = read_file(source_path(page));
  CHECK(!names.empty());
  for (const std::string& name : names) {
    CAPTURE(page);
    CAPTURE(name);
    CHECK(text.find("`" + name + "`") != std::string::npos);
  }
}

// Without what other code registers for itself: the reward model.
std::vector<std::string> built_in(std::vector<std::string> names) {
  std::erase(names, "model");
  return names;
}

}  // namespace

TEST_CASE("every name that can be chosen is in its page") {
  check_page("docs/models.md", models::families().names());
  check_page("docs/models.md", train::optimizers().names());
  check_page("docs/scaling.md", generate::remote::server_kinds().names());
  check_page("docs/metrics.md", sinks().names());
  check_page("docs/preferences.md", preference::losses().names());
  check_page("docs/distillation.md", distill::strategies().names());
  check_page("docs/rl.md", rl::algorithms().names());
  check_page("docs/rl.md", built_in(rewards::registry().names()));
  check_page("docs/environments.md", env::environments().names());
  std::vector<std::string> verbs;
  for (const cli::Verb& verb : cli::verbs()) verbs.emplace_back(verb.name);
  check_page("README.md", verbs);
}

TEST_CASE("what the help of a verb counts up are the names that there are") {
  const auto help_of = [](const std::string& verb) { return cli::find_training_verb(verb)->help; };
  for (const auto& algorithm : rl::algorithms().list()) {
    CAPTURE(algorithm.name);
    const bool with_critic = algorithm.value()->needs().critic;
    CHECK((help_of("grpo").find(algorithm.name) == std::string::npos) == with_critic);
  }
  for (const std::string& loss : preference::losses().names())
    CHECK(help_of("dpo").find(loss) != std::string::npos);
}

TEST_CASE("a verb passes over the sections of all others, and over none of its own") {
  for (const cli::TrainingVerb& verb : cli::training_verbs()) {
    CAPTURE(verb.name);
    const std::vector<std::string> others = cli::other_sections(verb.name);
    const auto has = [](const std::vector<std::string>& list, const std::string& name) {
      return std::find(list.begin(), list.end(), name) != list.end();
    };
    for (const std::string& own : verb.sections) CHECK(!has(others, own));
    for (const cli::TrainingVerb& other : cli::training_verbs())
      for (const std::string& section : other.sections)
        CHECK((has(others, section) || has(verb.sections, section)));
  }
  const std::vector<std::string> of_sft = cli::other_sections("sft");
  CHECK(std::ranges::count(of_sft, "rollout.server") == 1);
  CHECK(std::ranges::count(of_sft, "rollout.temperature") == 0);
  CHECK(std::ranges::count(of_sft, "ppo") == 1);
}

TEST_CASE("the sections of other verbs hold keys that these verbs have, with any algorithm") {
  const auto problem = [](const std::vector<std::string>& arguments) -> std::string {
    try {
      train::SftConfig config;
      cli::read_verb_config(config, arguments, "sft");
      return {};
    } catch (const ConfigError& e) {
      return e.what();
    }
  };
  const std::vector<std::string> base{"model.path=m", "output_dir=r", "data.train=x"};
  const auto with = [&](const std::string& key) {
    std::vector<std::string> all = base;
    all.push_back(key);
    return problem(all);
  };
  CHECK(with("rl={algorithm: dro, dro_beta: 0.1, beta: 0.2}") == "");
  CHECK(with("rewards=[{name: gsm8k, weight: 2}]") == "");
  CHECK(with("rollout.server.urls=[http://h]") == "");
  CHECK(with("ppo.gamma=0.9") == "");
  CHECK(with("rl.betta=0").ends_with("unknown key `rl.betta`; did you mean `beta`?"));
  CHECK(with("rollout={server: {url: x}}").find("unknown key `rollout.server.url`") !=
        std::string::npos);
}
