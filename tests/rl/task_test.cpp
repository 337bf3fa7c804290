// Whole runs of reinforcement learning on a model that no file holds: sampled, interrupted,
// replayed, on several ranks, and with an algorithm from outside.
#include "temper/rl/task.h"

#include <atomic>

#include "temper/base/file.h"
#include "temper/rewards/reward.h"
#include "temper/rl/algorithms/group_keys.h"
#include "temper/rl/rollout/replay_source.h"
#include "temper/rl/rollout/sync_source.h"
#include "tests/rl/heard.h"
#include "tests/train/tiny.h"

using namespace temper;
using tiny::Folder;

namespace {

// The share of even ids: what sampling varies and training can raise.
class EvenIds : public rewards::SimpleReward {
 public:
  double score(const rewards::Sample& sample) const override {
    double even = 0;
    for (const int32_t id : sample.completion_tokens) even += id % 2 == 0;
    return even / static_cast<double>(sample.completion_tokens.size());
  }
  bool needs_text() const override { return false; }
};

// Which of the ranks that are threads makes something now.
thread_local int rank_of_thread = 0;
std::atomic<int> failures_left{0};

// Fails so many times, on this rank.
class Failing : public rewards::SimpleReward {
 public:
  double score(const rewards::Sample& sample) const override {
    const bool fails = rank_ == 1 && failures_left-- > 0;
    return fails ? std::nan("") : static_cast<double>(sample.completion_tokens[0]);
  }
  bool needs_text() const override { return false; }

 private:
  int rank_ = rank_of_thread;
};

std::atomic<int> answers_left{0};

// A judge whose server answers so many questions.
class Silent : public rewards::Reward {
 public:
  std::vector<rewards::Verdict> judge(std::span<const rewards::Sample> samples) override {
    std::vector<rewards::Verdict> verdicts;
    for (size_t i = 0; i < samples.size(); ++i)
      verdicts.push_back(answers_left-- > 0 ? rewards::valued(1)
                                            : rewards::Verdict{rewards::Verdict::Kind::kCrashed, 0,
                                                               "nobody answers"});
    return verdicts;
  }
  bool needs_text() const override { return false; }
};

[[maybe_unused]] const bool rewards_registered = [] {
  rewards::register_reward({"failing",
                            [](const rewards::RewardSection&) -> std::unique_ptr<rewards::Reward> {
                              return std::make_unique<Failing>();
                            },
                            "for these tests"});
  rewards::register_reward({"even_ids",
                            [](const rewards::RewardSection&) -> std::unique_ptr<rewards::Reward> {
                              return std::make_unique<EvenIds>();
                            },
                            "for these tests"});
  return true;
}();

// Samples as servers do that keep the weights of the run's beginning.
class OlderPolicy : public rl::BehaviorPolicy {
 public:
  OlderPolicy(const rl::RlConfig& config, train::Policy& policy)
      : engine_(*policy.model, config.rollout.engine_options(), policy.tokenizer) {}
  void keep(int64_t) override {}
  void use(int64_t) override {}
  generate::CompletionSource& completions() override { return engine_; }
  int64_t sampling_version(int64_t) const override { return 0; }

 private:
  generate::Engine engine_;
};

struct RlRun {
  rl::RlConfig config;
  bool older_policy = false;
  rewards::RewardSet::Make make_reward = rewards::make_reward;
  std::ostringstream console;
  std::unique_ptr<train::Roles> roles;
  train::RunOutcome outcome;

  RlRun(const Folder& folder, const std::string& output_dir,
        const std::function<void(rl::RlConfig&)>& set = {}) {
    std::string prompts;
    for (const std::vector<int32_t>& row : tiny::rows(20))
      prompts += "{\"prompt_ids\": " + Json(row).dump() + "}\n";
    if (!std::filesystem::exists(folder / "prompts.jsonl"))
      write_file_atomic(folder / "prompts.jsonl", prompts);
    config.output_dir = folder / output_dir;
    config.model.path = "in memory";
    config.data.train = {{.path = folder / "prompts.jsonl"}};
    config.rewards = {{.name = "even_ids"}};
    config.rl.group_size = 3;
    config.rl.prompts_per_rollout = 2;
    config.rollout.max_new_tokens = 6;
    config.rollout.sampling.temperature = 0.9;
    config.train.max_steps = 4;
    config.train.micro_batch_tokens = 64;
    config.optimizer = tiny::constant_rate(1e-2);
    config.metrics.sinks = {"jsonl"};
    if (set) set(config);
  }

  void go(int64_t stop_after = 0, dist::Group& group = tiny::alone()) {
    config.resolve("grpo");
    models::LoraConfig lora;
    lora.rank = 4;
    roles = std::make_unique<train::Roles>(tiny::policy(lora), config.optimizer);
    train::Trainer* made = nullptr;
    train::RunDirectory directory(
        config,
        {console, false,
         [&] { return stop_after > 0 && made != nullptr && made->steps_made() >= stop_after; }},
        group);
    std::unique_ptr<rl::RolloutSource> source;
    if (config.rl.replay)
      source = std::make_unique<rl::ReplaySource>(config, tiny::kVocabulary, directory);
    else
      source = std::make_unique<rl::SyncSource>(
          config, roles->policy, group, directory,
          older_policy ? std::make_unique<OlderPolicy>(config, roles->policy) : nullptr, nullptr,
          make_reward);
    rl::RlTask task(config, *roles, group, *source, directory, config.output_dir);
    train::Trainer trainer(config.train, static_cast<uint64_t>(config.seed), *roles, group, task,
                           train::configured_hooks(config.train));
    made = &trainer;
    outcome = trainer.run(directory);
  }

  tiny::Weights weights() { return tiny::weights(*roles->policy.model); }
  tiny::Weights moments() { return tiny::moments(roles->trainables[0]->optimizer); }
  std::vector<std::string> rows() const { return tiny::logged(config.output_dir); }
  std::string rollouts(int64_t step) const {
    return read_file(str(config.output_dir, "/rollouts/step-", step, ".jsonl"));
  }
  double last(const std::string& metric) const {
    return read_metrics_file(config.output_dir + "/metrics.jsonl").back().number(metric).value();
  }
};

void several_updates(rl::RlConfig& config) {
  config.rl.minibatches = 2;
  config.rl.iterations = 2;
  config.train.max_steps = 8;
}

// Sets the gradient's float32 sums in the momentum buffer of the first step.
void plain_gradient(rl::RlConfig& config) {
  config.optimizer.name = "sgd";
  config.optimizer.momentum = 0.5;
  config.optimizer.max_grad_norm = 0;
  config.train.max_steps = 1;
}

}  // namespace

TEST_CASE("which tokens have a policy loss is the same after resuming") {
  const Folder folder;
  const auto set = [](rl::RlConfig& config) {
    several_updates(config);
    config.rl.top_entropy_fraction = 0.4;
  };
  RlRun whole(folder, "whole", set), all(folder, "all", several_updates);
  whole.go();
  all.go();
  CHECK_FALSE((whole.weights() == all.weights()));
  RlRun(folder, "cut", set).go(3);
  RlRun cut(folder, "cut", set);
  cut.go();
  CHECK((cut.weights() == whole.weights()));
  CHECK((cut.rows() == whole.rows()));
}

TEST_CASE("a run that stops in the middle of a rollout batch goes on to the same bits") {
  const Folder folder;
  RlRun whole(folder, "whole", several_updates);
  whole.go();
  CHECK(whole.rows().size() == 8);
  for (const std::vector<int64_t>& stops :
       std::vector<std::vector<int64_t>>{{3}, {1, 6}, {2, 3, 4, 5}}) {
    const std::string name = str("cut-", stops.size());
    CAPTURE(name);
    for (const int64_t stop : stops) {
      RlRun cut(folder, name, several_updates);
      cut.go(stop);
      CHECK(cut.outcome.interrupted);
      CHECK(cut.outcome.steps == stop);
    }
    RlRun cut(folder, name, several_updates);
    cut.go();
    CHECK((cut.weights() == whole.weights()));
    CHECK((cut.moments() == whole.moments()));
    CHECK((cut.rows() == whole.rows()));
    CHECK(cut.rollouts(1) == whole.rollouts(1));
    CHECK(cut.rollouts(5) == whole.rollouts(5));
    CHECK_FALSE(std::filesystem::exists(cut.config.output_dir + "/rollouts/step-4.jsonl"));
  }
  // A plan may end there, too, and grow.
  RlRun shorter(folder, "shorter", several_updates);
  shorter.config.train.max_steps = 3;
  shorter.go();
  RlRun longer(folder, "shorter", several_updates);
  longer.go();
  CHECK((longer.weights() == whole.weights()));
}

TEST_CASE("ratios are of the truncated distribution that was sampled from") {
  const Folder folder;
  const auto truncated = [](rl::RlConfig& config) {
    several_updates(config);
    config.rollout.sampling.top_p = 0.7;
  };
  RlRun run(folder, "run", truncated);
  run.go();
  const Json row = parse_json(run.rollouts(1).substr(0, run.rollouts(1).find('\n')), "row");
  REQUIRE(row.contains("kept_tokens"));
  for (size_t t = 0; t < row["kept_tokens"].size(); ++t) {
    const auto ids = row["kept_tokens"][t].get<std::vector<int32_t>>();
    CHECK(std::find(ids.begin(), ids.end(), row["completion_tokens"][t].get<int32_t>()) !=
          ids.end());
    if (ids.size() == 1) CHECK(row["logprobs"][t] == 0.0);
  }
  for (const MetricsRow& metrics : read_metrics_file(folder / "run/metrics.jsonl"))
    CHECK(metrics.number("sampler_trainer_max_abs_diff").value_or(0) == 0);
  // Interrupted within a batch it goes on with the same lists.
  RlRun cut(folder, "cut", truncated);
  cut.go(3);
  RlRun rest(folder, "cut", truncated);
  rest.go();
  CHECK((rest.weights() == run.weights()));
  // Without them it trains on something else.
  RlRun full(folder, "full", truncated);
  full.config.rollout.replay_sampling_mask = false;
  full.go();
  CHECK(full.rollouts(1).find("kept_tokens") == std::string::npos);
  CHECK_FALSE((full.weights() == run.weights()));
}

TEST_CASE("a checkpoint in the middle of a batch without the batch is refused") {
  const Folder folder;
  RlRun cut(folder, "run", several_updates);
  cut.go(3);
  const std::string checkpoint = cut.config.output_dir + "/checkpoints/step-3";
  CHECK(std::filesystem::exists(checkpoint + "/task.safetensors"));
  std::filesystem::remove(checkpoint + "/task.safetensors");
  RlRun again(folder, "run", several_updates);
  CHECK_THROWS_AS(again.go(), DataError);
}

TEST_CASE("training on a run's rollouts again is the run, to the bit") {
  for (const std::string algorithm : {"grpo", "dapo"}) {
    CAPTURE(algorithm);
    const Folder folder;
    const auto set = [&](rl::RlConfig& config) {
      config.rl.set_algorithm(algorithm);
      group_keys(*config.rl.algorithm).beta = 0;  // a reference that is the base is another test
      group_keys(*config.rl.algorithm).max_refills = 2;
    };
    RlRun run(folder, "run", set);
    run.go();
    CHECK(run.last("sampler_trainer_max_abs_diff") == 0);
    std::string all;
    for (const int64_t step : {1, 2, 3, 4}) all += run.rollouts(step);
    CHECK((all.find("\"penalty\"") != std::string::npos) == (algorithm == "dapo"));
    write_file_atomic(folder / "all.jsonl", all);
    RlRun replay(folder, "replay", set);
    replay.config.rl.replay = folder / "all.jsonl";
    replay.config.rewards.clear();
    replay.config.data.train.clear();
    replay.config.train.max_steps.reset();
    replay.config.written = parse_yaml("rl: {on_mismatch: stop}", "run.yaml");
    replay.go();
    CHECK(replay.outcome.steps == 4);
    CHECK((replay.weights() == run.weights()));
    CHECK((replay.moments() == run.moments()));
    CHECK(replay.last("reward_mean") == run.last("reward_mean"));
    CHECK_FALSE(std::filesystem::exists(replay.config.output_dir + "/rollouts"));
  }
}

namespace {

// A file of so many groups of two, whose log-probabilities are no policy's.
std::string foreign_rollouts(int64_t groups, const std::string& logprobs) {
  std::string lines;
  for (int64_t group = 0; group < groups; ++group)
    for (const int64_t sample : {0, 1})
      lines += str("{\"group\": ", group, ", \"prompt_tokens\": [3, 4], \"completion_tokens\": [",
                   5 + sample, ", 7], ", logprobs, "\"reward\": ", sample, "}\n");
  return lines;
}

}  // namespace

TEST_CASE("a replayed file of another policy is told of, or refused") {
  const Folder folder;
  const auto run_of = [&](const std::string& name, const std::string& lines) {
    write_file_atomic(folder / (name + ".jsonl"), lines);
    return std::make_unique<RlRun>(folder, name, [&](rl::RlConfig& config) {
      config.rl.replay = folder / (name + ".jsonl");
      config.rl.group_size = 2;
      config.train.max_steps.reset();
    });
  };
  const std::string theirs = "\"logprobs\": [-1, -9], ";
  const auto plain = run_of("plain", foreign_rollouts(4, ""));
  plain->go();
  CHECK(plain->console.str().find("another policy") == std::string::npos);
  const auto warned = run_of("warned", foreign_rollouts(4, theirs));
  warned->go();
  const std::string said = warned->console.str();
  CHECK(said.find("warned.jsonl: another policy sampled its completions: at step 1 ") !=
        std::string::npos);
  CHECK(said.find("rl.on_mismatch: correct") != std::string::npos);
  CHECK(said.find("another policy") == said.rfind("another policy"));
  CHECK((warned->weights() == plain->weights()));
  const auto stopped = run_of("stopped", foreign_rollouts(4, theirs));
  stopped->config.written = parse_yaml("rl: {on_mismatch: stop}", "run.yaml");
  CHECK_THROWS_WITH_AS(stopped->go(), doctest::Contains("run.yaml:1: rl.on_mismatch: stop asks"),
                       RunError);
  // Where nothing was recorded there is nothing to compare.
  const auto nothing = run_of("nothing", foreign_rollouts(4, ""));
  nothing->config.written = parse_yaml("rl: {on_mismatch: stop}", "run.yaml");
  nothing->go();
  CHECK((nothing->weights() == plain->weights()));
  const auto corrected = run_of("corrected", foreign_rollouts(4, theirs));
  corrected->config.rl.on_mismatch = rl::RlSection::OnMismatch::kCorrect;
  corrected->go();
  CHECK_FALSE((corrected->weights() == plain->weights()));
}

TEST_CASE("on_mismatch: stop ends a run whose completions an older policy sampled") {
  const Folder folder;
  RlRun run(folder, "stops");
  run.older_policy = true;
  CHECK_THROWS_WITH_AS(run.go(), doctest::Contains("step 2: an older policy sampled"), RunError);
  // The first batch was the policy's own, and what it taught is kept.
  CHECK(run.rows().size() == 1);
  CHECK(std::filesystem::exists(run.config.output_dir + "/checkpoints/step-1"));
  RlRun corrects(folder, "corrects", [](rl::RlConfig& config) {
    config.rl.on_mismatch = rl::RlSection::OnMismatch::kCorrect;
  });
  corrects.older_policy = true;
  corrects.go();
  CHECK(corrects.outcome.steps == 4);
}

TEST_CASE("a replayed group has one prompt, unless an environment added to it") {
  const Folder folder;
  std::string lines = foreign_rollouts(2, "");
  const size_t last = lines.rfind("[3, 4]");
  lines.replace(last, 6, "[3, 5]");
  const auto go = [&] {
    write_file_atomic(folder / "rollouts.jsonl", lines);
    RlRun run(folder, "run", [&](rl::RlConfig& config) {
      config.rl.replay = folder / "rollouts.jsonl";
      config.rl.group_size = 2;
      config.train.max_steps = 1;
    });
    run.go();
  };
  CHECK_THROWS_WITH_AS(go(), doctest::Contains("rollouts.jsonl:4: group 1 has other"), DataError);
  lines.insert(lines.rfind("\"reward\""), "\"completion_mask\": [1, 1], \"turns\": 1, ");
  CHECK_NOTHROW(go());
}

TEST_CASE("a run whose rewards all fail ends after three rollouts, on all ranks alike") {
  const Folder folder;
  const auto failing = [](rl::RlConfig& config) { config.rewards = {{.name = "failing"}}; };
  rank_of_thread = 1;
  failures_left = 1000;
  RlRun ends(folder, "ends", failing);
  CHECK_THROWS_WITH_AS(
      ends.go(),
      doctest::Contains("rewards failed on all completions of 3 rollouts in a row (the first "
                        "failure: failing: found the reward nan"),
      RunError);
  CHECK(ends.rows().size() == 2);
  CHECK(ends.console.str().find("warning: rewards failed 6 times (the first: failing: ") !=
        std::string::npos);
  // The count is part of the checkpoint: the third ends the run again, unless it has rewards.
  failures_left = 3;
  RlRun mended(folder, "ends", failing);
  mended.go();
  CHECK(mended.outcome.steps == 4);
  failures_left = 12;  // two rollouts of six completions
  RlRun goes_on(folder, "goes-on", failing);
  goes_on.go();
  CHECK(goes_on.outcome.steps == 4);
  rank_of_thread = 0;

  // One rank's failures are not all; the other tells what they were, and where.
  failures_left = 1000;
  std::string said;
  tiny::ThreadRanks(2).run([&](dist::Group& group) {
    rank_of_thread = group.rank();
    RlRun rank(folder, "ranks", failing);
    rank.go(0, group);
    CHECK(rank.outcome.steps == 4);
    if (group.rank() == 0) said = rank.console.str();
  });
  CHECK(said.find("at most 1e+30, on rank 1); completions without") != std::string::npos);
}

TEST_CASE("a run whose judge answers for no completion of a rollout ends before it trains on it") {
  const Folder folder;
  failures_left = 0;
  const auto run = [&](const std::string& output_dir, bool zero = false) {
    auto made = std::make_unique<RlRun>(folder, output_dir, [&](rl::RlConfig& config) {
      config.rewards = {{.name = "even_ids"}, {.name = "rated"}};
      config.rewards[1].judge.url = "http://127.0.0.1:9";
      config.rewards[1].judge.prompt = "{completion}";
      config.rewards[1].ends_where_dead = !zero;
    });
    made->make_reward =
        [](const rewards::RewardSection& section) -> std::unique_ptr<rewards::Reward> {
      if (section.judge.url) return std::make_unique<Silent>();
      return rewards::make_reward(section);
    };
    return made;
  };
  answers_left = 6 + 5;  // the second rollout's last completion has no answer
  const auto ends = run("ends");
  const std::string said =
      "the reward rated: the judge's server answered for none of a rollout's 6 completions (the "
      "first failure: nobody answers); once it answers, the same command goes on";
  CHECK_THROWS_WITH_AS(ends->go(), doctest::Contains(said.c_str()), RunError);
  CHECK(ends->rows().size() == 2);
  CHECK(std::filesystem::exists(ends->config.output_dir + "/checkpoints/step-2"));
  answers_left = 1000;
  const auto goes_on = run("ends");
  goes_on->go();
  CHECK(goes_on->outcome.steps == 4);
  answers_left = 0;
  const auto zeros = run("zeros", true);  // on_failure: zero was asked for
  zeros->go();
  CHECK(zeros->outcome.steps == 4);

  // Ranks count together, and end together.
  answers_left = 0;
  std::atomic<int> ended = 0;
  tiny::ThreadRanks(2).run([&](dist::Group& group) {
    const auto rank = run("ranks");
    try {
      rank->go(0, group);
    } catch (const RunError& e) {
      ended += std::string(e.what()).find("nobody answers, on rank 0)") != std::string::npos;
    }
  });
  CHECK(ended == 2);
}

TEST_CASE("a run whose failures count more than its rewards is told so") {
  const Folder folder;
  const auto said = [&](const char* output_dir, const std::function<void(rl::RlConfig&)>& set) {
    RlRun run(folder, output_dir, [&](rl::RlConfig& config) {
      config.rewards = {{.name = "failing", .weight = -1}};
      config.train.max_steps = 1;
      set(config);
    });
    rank_of_thread = 1;
    failures_left = 2;
    run.go();
    rank_of_thread = 0;
    return run.console.str();
  };
  const std::string told =
      "the reward failing failed on some completions and gave negative values to others: a failure "
      "counts 0, ";
  CHECK(said("zero", [](rl::RlConfig&) {}).find(told) != std::string::npos);
  using OnFailure = rewards::RewardSection::OnFailure;
  CHECK(said("drop", [](rl::RlConfig& c) {
          c.rewards[0].on_failure = OnFailure::kDrop;
        }).find(told) == std::string::npos);
  CHECK(said("positive", [](rl::RlConfig& c) { c.rewards[0].weight = 1; }).find(told) ==
        std::string::npos);
}

TEST_CASE("a run says which of its algorithm's defaults the config overrides") {
  const Folder folder;
  const auto said = [&](const char* output_dir, const std::function<void(rl::RlConfig&)>& set) {
    RlRun run(folder, output_dir, [&](rl::RlConfig& config) {
      config.train.max_steps = 1;
      config.metrics.sinks = {"console"};
      config.rl.set_algorithm("dapo");
      set(config);
    });
    run.go();
    return run.console.str();
  };
  CHECK(said("plain", [](rl::RlConfig&) {}).find("paper's defaults") == std::string::npos);
  CHECK(said("other",
             [](rl::RlConfig& c) {
               group_keys(*c.rl.algorithm).beta = 0.04;
               group_keys(*c.rl.algorithm).dynamic_sampling = false;
             })
            .find("rl.algorithm: dapo; the config overrides its paper's defaults: rl.beta is 0.04, "
                  "not 0.0, rl.dynamic_sampling is false, not true") != std::string::npos);
}

TEST_CASE("prompts that may go on beyond the model's positions are told of") {
  std::vector<rl::Prompt> prompts(3);
  for (size_t i = 0; i < prompts.size(); ++i) {
    prompts[i].row.tokens.resize(10 * (i + 1));
    prompts[i].row.where = str("rows.jsonl:", i + 1);
  }
  const auto said = [&](int64_t positions, int64_t max_new_tokens) {
    tiny::Heard heard;
    warn_beyond_positions(prompts, positions, max_new_tokens, heard);
    std::string all;
    for (const auto& [what, message] : heard.warnings) all += message;
    return all;
  };
  CHECK(said(64, 34).empty());
  CHECK(said(0, 34).empty());
  CHECK(said(64, 35) ==
        "rows.jsonl:3: 30 tokens and 35 new ones (rollout.max_new_tokens) are more than the "
        "model's max_position_embeddings, 64");
  CHECK(said(64, 60).ends_with("max_position_embeddings, 64; so are those of 2 more rows"));
}

TEST_CASE("a group's gradient is the same whole, split over passes, and over ranks") {
  const Folder folder;
  RlRun whole(folder, "whole", plain_gradient);
  whole.config.train.micro_batch_tokens = 4096;
  whole.go();
  int run = 0;
  const auto compare = [&](const std::function<void(rl::RlConfig&)>& set) {
    RlRun other(folder, str("other-", ++run), plain_gradient);
    set(other.config);
    other.go();
    CHECK(other.rollouts(1) == whole.rollouts(1));
    CHECK(other.last("loss") == doctest::Approx(whole.last("loss")).epsilon(1e-12).scale(1));
    CHECK(tiny::distance(other.moments(), whole.moments()) < 1e-5);
  };
  compare([](rl::RlConfig& c) { c.train.micro_batch_tokens = 16; });
  compare([](rl::RlConfig& c) { c.data.packing = false; });

  std::vector<tiny::Weights> gradients(2);
  tiny::ThreadRanks(2).run([&](dist::Group& group) {
    RlRun rank(folder, "ranks", plain_gradient);
    rank.go(0, group);
    gradients[static_cast<size_t>(group.rank())] = rank.moments();
  });
  CHECK(read_file(folder / "ranks/rollouts/step-1.jsonl") == whole.rollouts(1));
  CHECK((gradients[0] == gradients[1]));
  CHECK(tiny::distance(gradients[0], whole.moments()) < 1e-5);
  for (const MetricsRow& row : read_metrics_file(folder / "ranks/metrics.jsonl")) {
    CHECK(row.number("sampler_trainer_max_abs_diff") == 0);
    CHECK(row.number("reward_mean") == whole.last("reward_mean"));
  }
}

TEST_CASE("gspo is grpo where a completion is one token") {
  const Folder folder;
  std::vector<tiny::Weights> left;
  for (const std::string algorithm : {"grpo", "gspo"}) {
    RlRun run(folder, algorithm, several_updates);
    run.config.rl.set_algorithm(algorithm);
    rl::GroupKeys& keys = group_keys(*run.config.rl.algorithm);
    keys.beta = 0;
    keys.epsilon_low = keys.epsilon_high = 0.05;
    run.config.rl.group_size = 6;
    run.config.rollout.max_new_tokens = 1;
    run.go();
    left.push_back(run.weights());
    CHECK(run.last("completion_length_mean") == 1);
  }
  CHECK((left[0] == left[1]));
}

TEST_CASE("on_mismatch: correct takes rollouts that end with an observation") {
  const Folder folder;
  std::string lines;
  for (const int64_t group : {1, 2})
    for (const int64_t sample : {0, 1})
      lines += str("{\"group\": ", group, ", \"sample\": ", sample,
                   ", \"prompt_tokens\": [3, 4], \"completion_tokens\": [", 5 + sample,
                   ", 7, 8], \"completion_mask\": [1, 1, 0], \"logprobs\": [-4.0, -4.1, 0], "
                   "\"reward\": ",
                   sample, "}\n");
  write_file_atomic(folder / "rollouts.jsonl", lines);
  const auto set = [&](rl::RlConfig& config) {
    config.rl.replay = folder / "rollouts.jsonl";
    config.rl.group_size = 2;
    config.rl.on_mismatch = rl::RlSection::OnMismatch::kCorrect;
    config.train.max_steps = 2;
  };
  RlRun run(folder, "run", set);
  run.go();
  CHECK(run.outcome.steps == 2);
  CHECK(run.last("completion_length_mean") == 2);
  const size_t at = lines.rfind("\"logprobs\": [-4.0, -4.1, 0], ");
  write_file_atomic(folder / "rollouts.jsonl", lines.substr(0, at) + lines.substr(at + 29));
  RlRun lacking(folder, "lacking", set);
  CHECK_THROWS_AS(lacking.go(), DataError);
}

namespace {

// REINFORCE with a baseline that runs over all groups of the run: it has a key of its own, and
// state that a checkpoint must keep.
class RunningBaseline : public rl::Algorithm {
 public:
  void fields(Fields& f) override {
    f.add("baseline_decay", decay_, "how slowly the baseline follows the rewards", fraction());
  }
  rl::Needs needs() const override { return {.reference = false, .min_group_size = 1}; }
  void assign(rl::EpisodeGroup& group) override {
    for (const rl::Episode& episode : group.episodes) {
      group.set_advantage(episode, episode.shaped() - baseline_);
      baseline_ = decay_ * baseline_ + (1 - decay_) * episode.shaped();
    }
  }
  Json state() const override { return {{"baseline", baseline_}}; }
  void restore(const Json& state, const std::string& where) override {
    check<DataError>(state.is_object() && state.contains("baseline"), where, ": no `baseline`");
    baseline_ = state["baseline"];
  }
  std::vector<double> token_weights(std::span<const int64_t> length_C) const override {
    return aggregate(rl::Aggregation::kTokenMean, length_C, limits_.max_new_tokens);
  }
  train::Loss loss(const rl::TokenBatch& b) const override {
    train::Loss loss;
    loss.terms.push_back(policy_term(-b.logp_M * b.advantage_M, b));
    loss.means.push_back({"baseline", baseline_, 1});
    return loss;
  }

 private:
  double decay_ = 0.9, baseline_ = 0;
};

[[maybe_unused]] const bool algorithm_added = [] {
  rl::algorithms().add(
      {"test_running_baseline",
       []() -> std::unique_ptr<rl::Algorithm> { return std::make_unique<RunningBaseline>(); },
       "for these tests"});
  return true;
}();

}  // namespace

TEST_CASE("an algorithm from outside has keys and state of its own") {
  const std::vector<std::string> arguments{"output_dir=run", "model.path=m", "rl.replay=r",
                                           "rl.algorithm=test_running_baseline", "rl.group_size=1"};
  rl::RlConfig config;
  read_run_config(config, arguments, "grpo");
  CHECK(config.defaulted.at("rl.baseline_decay") == "0.9");
  std::vector<std::string> others = arguments;
  others.push_back("rl.beta=0.1");  // of the GRPO family
  rl::RlConfig refused;
  CHECK_THROWS_AS(read_run_config(refused, others, "grpo"), ConfigError);
  others.back() = "rl.baseline_decay=1";
  rl::RlConfig out_of_range;
  CHECK_THROWS_AS(read_run_config(out_of_range, others, "grpo"), ConfigError);

  const Folder folder;
  const auto set = [](rl::RlConfig& c) {
    several_updates(c);
    c.rl.set_algorithm("test_running_baseline");
    c.rl.group_size = 1;
    c.rl.prompts_per_rollout = 5;
  };
  RlRun whole(folder, "whole", set);
  whole.go();
  CHECK(whole.last("baseline") > 0);
  for (const int64_t stop : {2, 4, 7}) {
    RlRun cut(folder, "cut", set);
    cut.go(stop);
  }
  RlRun cut(folder, "cut", set);
  cut.go();
  CHECK((cut.weights() == whole.weights()));
  CHECK((cut.rows() == whole.rows()));
}
