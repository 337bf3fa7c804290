// Batches that are sampled ahead of the policy that trains on them: which version samples what, and
// that no timing, interruption or number of threads changes a bit.
#include <omp.h>

#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <span>
#include <thread>

#include "temper/base/file.h"
#include "temper/base/work_queue.h"
#include "temper/ops/native/kernels/processors.h"
#include "temper/rewards/reward.h"
#include "temper/rl/algorithms/group_keys.h"
#include "temper/rl/rollout/async_source.h"
#include "temper/rl/rollout/sync_source.h"
#include "temper/rl/task.h"
#include "temper/rl/weights/snapshot_policy.h"
#include "tests/train/tiny.h"

using namespace temper;
using tiny::Folder;

namespace {

// The share of ids below 30. With `slow` in a prompt's row the answer takes a moment.
class LowIds : public rewards::SimpleReward {
 public:
  double score(const rewards::Sample& sample) const override {
    double low = 0;
    for (const int32_t id : sample.completion_tokens) low += id < 30;
    if (sample.row->contains("slow")) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    check(!sample.row->contains("fails"), "this row has no reward");
    return low / static_cast<double>(sample.completion_tokens.size());
  }
  bool needs_text() const override { return false; }
};

[[maybe_unused]] const bool low_ids_registered = [] {
  rewards::register_reward({"low_ids",
                            [](const rewards::RewardSection&) -> std::unique_ptr<rewards::Reward> {
                              return std::make_unique<LowIds>();
                            },
                            "for these tests"});
  return true;
}();

// Does what the test says with each sample.
class Hooked : public rewards::SimpleReward {
 public:
  static inline std::function<void(const rewards::Sample&)> hook;
  double score(const rewards::Sample& sample) const override { return hook(sample), 1; }
  bool needs_text() const override { return false; }
};

[[maybe_unused]] const bool hooked_registered = [] {
  rewards::register_reward({"hooked",
                            [](const rewards::RewardSection&) -> std::unique_ptr<rewards::Reward> {
                              return std::make_unique<Hooked>();
                            },
                            "for these tests"});
  return true;
}();

rewards::RewardSet hooked_rewards(std::function<void(const rewards::Sample&)> hook) {
  Hooked::hook = std::move(hook);
  rewards::RewardSection section;
  section.name = "hooked";
  return {std::span(&section, 1), false};
}

std::vector<rewards::Sample> sample_of(std::shared_ptr<const Json> row) {
  rewards::Sample sample;
  sample.row = std::move(row);
  return {sample};
}

constexpr int64_t kSteps = 7;

// A rank that takes over what another one found out. Remembers which threads asked for that.
class Twin : public dist::Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  bool has_twins() const override { return true; }
  void all_reduce_sum(at::Tensor&) override {}
  void barrier() override {}
  std::string agreed(const std::string& text) override {
    const std::lock_guard lock(mutex_);
    threads_.insert(std::this_thread::get_id());
    return text;
  }
  std::set<std::thread::id> take_threads() {
    const std::lock_guard lock(mutex_);
    return std::exchange(threads_, {});
  }

 private:
  std::mutex mutex_;
  std::set<std::thread::id> threads_;
};

struct AheadRun {
  rl::RlConfig config;
  std::ostringstream console;
  train::RunOutcome outcome;
  std::unique_ptr<train::Roles> roles;

  AheadRun(const Folder& folder, const std::string& output_dir, int64_t staleness,
           const std::function<void(rl::RlConfig&)>& set = {}, const std::string& extra = "") {
    std::string prompts;
    int64_t number = 0;
    for (const std::vector<int32_t>& row : tiny::rows(20))
      prompts += "{\"prompt_ids\": " + Json(row).dump() +
                 (++number % 3 == 0 ? ", \"slow\": true" : "") + extra + "}\n";
    const std::string file = folder / (output_dir + ".jsonl");
    write_file_atomic(file, prompts);
    config.output_dir = folder / output_dir;
    config.model.path = "in memory";
    config.data.train = {{.path = file}};
    config.rewards = {{.name = "low_ids"}};
    config.rl.group_size = 3;
    config.rl.prompts_per_rollout = 2;
    config.rl.max_staleness = staleness;
    group_keys(*config.rl.algorithm).beta = 0;
    config.rollout.max_new_tokens = 6;
    config.train.max_steps = kSteps;
    config.train.micro_batch_tokens = 64;
    config.optimizer = tiny::constant_rate(1e-2);
    config.metrics.sinks = {"jsonl"};
    if (set) set(config);
  }

  // sampling: the group of what samples ahead. begins: called before the first step.
  void go(int64_t stop_after = 0, dist::Group& sampling = tiny::alone(),
          const std::function<void()>& begins = {}) {
    config.resolve("grpo");
    models::LoraConfig lora;
    lora.rank = 4;
    roles = std::make_unique<train::Roles>(tiny::policy(lora), config.optimizer);
    train::Trainer* made = nullptr;
    train::RunDirectory directory(
        config,
        {console, false,
         [&] { return stop_after > 0 && made != nullptr && made->steps_made() >= stop_after; }},
        tiny::alone());
    std::unique_ptr<rl::RolloutSource> source;
    std::unique_ptr<rl::BehaviorPolicy> behavior =
        make_behavior_policy(config, roles->policy, tiny::alone(), nullptr, directory);
    auto messages = std::make_unique<rl::KeptMessages>(directory);
    if (config.rl.max_staleness > 0) {
      auto inner = std::make_unique<rl::SyncSource>(config, roles->policy, sampling, *messages,
                                                    std::move(behavior));
      source = std::make_unique<rl::AsyncSource>(config, std::move(inner), std::move(messages),
                                                 tiny::kVocabulary);
    } else {
      source = std::make_unique<rl::SyncSource>(config, roles->policy, tiny::alone(), directory,
                                                std::move(behavior));
    }
    rl::RlTask task(config, *roles, tiny::alone(), *source, directory, config.output_dir);
    train::Trainer trainer(config.train, static_cast<uint64_t>(config.seed), *roles, tiny::alone(),
                           task, train::configured_hooks(config.train));
    made = &trainer;
    if (begins) begins();
    outcome = trainer.run(directory);
  }

  tiny::Weights weights() { return tiny::weights(*roles->policy.model); }
  std::vector<MetricsRow> metrics() const {
    return read_metrics_file(config.output_dir + "/metrics.jsonl");
  }
  // Rows without what the clock says.
  std::vector<std::string> rows() const {
    std::vector<std::string> out;
    for (const MetricsRow& row : metrics()) {
      MetricsRow kept;
      for (const auto& [name, value] : row.values())
        if (name != "rollout_wait_seconds") kept.set(name, value);
      out.push_back(tiny::numbers(kept));
    }
    return out;
  }
  std::string rollouts(int64_t step) const {
    return read_file(str(config.output_dir, "/rollouts/step-", step, ".jsonl"));
  }
  int64_t version(int64_t step) const {
    const std::string lines = rollouts(step);
    return parse_json(lines.substr(0, lines.find('\n')), "rollouts")["policy_version"];
  }
};

void two_updates(rl::RlConfig& config) { config.rl.minibatches = 2; }
void continues(rl::RlConfig& config) {
  config.rollout.update = rl::RlRolloutSection::Update::kContinue;
}

}  // namespace

TEST_CASE("batch n is sampled by the policy after max(0, n - staleness) updates") {
  const Folder folder;
  for (const int64_t staleness : {1, 2, 3}) {
    CAPTURE(staleness);
    AheadRun run(folder, str("s", staleness), staleness);
    run.go();
    CHECK(run.outcome.steps == kSteps);
    CHECK((run.config.rl.on_mismatch == rl::RlSection::OnMismatch::kCorrect));
    const std::vector<MetricsRow> rows = run.metrics();
    for (int64_t step = 1; step <= kSteps; ++step) {
      const int64_t expected = std::max<int64_t>(0, step - 1 - staleness);
      CHECK(run.version(step) == expected);
      const MetricsRow& row = rows[static_cast<size_t>(step) - 1];
      CHECK(row.number("staleness_mean") == static_cast<double>(step - 1 - expected));
      // Only what the present weights sampled can be compared with them.
      CHECK((row.find("sampler_trainer_max_abs_diff") != nullptr) == (step == 1));
      CHECK((row.number("mismatch_kl").value() > 0) == (step > 1));
    }
    CHECK(rows[0].number("sampler_trainer_max_abs_diff") == 0);
  }
}

TEST_CASE("with several updates a batch, a batch is begun when as many are left") {
  const Folder folder;
  for (const int64_t staleness : {1, 2, 3}) {
    AheadRun run(folder, str("s", staleness), staleness, two_updates);
    run.go();
    for (const int64_t step : {3, 5, 7})
      CHECK(run.version(step) == std::max<int64_t>(0, step - 1 - staleness));
  }
}

TEST_CASE("completions that continue are sampled by each version in its turn") {
  const Folder folder;
  for (const int64_t staleness : {1, 2, 3}) {
    CAPTURE(staleness);
    AheadRun run(folder, str("c", staleness), staleness, continues);
    run.go();
    CHECK(run.outcome.steps == kSteps);
    for (int64_t step = 1; step <= kSteps; ++step) {
      // max_new_tokens is 6, of which each version from when the batch is begun until it is used
      // has an equal share.
      const int64_t begun = std::max<int64_t>(0, step - 1 - staleness);
      const int64_t share = 6 / std::max<int64_t>(1, step - 1 - begun);
      std::vector<int64_t> expected;  // by token
      for (int64_t token = 0; token < 6; ++token) expected.push_back(begun + token / share);
      std::istringstream lines(run.rollouts(step));
      for (std::string line; std::getline(lines, line);) {
        const Json row = parse_json(line, "rollouts");
        std::vector<int64_t> versions;
        if (row["policy_version"].is_number())
          versions.assign(row["completion_tokens"].size(), row["policy_version"]);
        else
          for (size_t i = 0; i < row["policy_version"].size(); ++i)
            versions.insert(versions.end(), row["version_tokens"][i].get<size_t>(),
                            row["policy_version"][i]);
        CHECK(std::equal(versions.begin(), versions.end(), expected.begin()));
      }
    }
  }
  // There is no update between a batch's beginning and its use: nothing to continue with.
  AheadRun one(folder, "one", 1);
  one.go();
  CHECK(one.rollouts(kSteps) == read_file(folder / str("c1/rollouts/step-", kSteps, ".jsonl")));
}

TEST_CASE("a policy that does not learn is sampled the same, ahead or not") {
  const Folder folder;
  const auto still = [](rl::RlConfig& config) { config.optimizer.learning_rate = 0; };
  AheadRun now(folder, "now", 0, still), ahead(folder, "ahead", 2, still),
      parts(folder, "parts", 3, [&](rl::RlConfig& config) {
        still(config);
        continues(config);
      });
  now.go();
  ahead.go();
  parts.go();
  for (int64_t step = 1; step <= kSteps; ++step) {
    // But for who sampled it.
    const auto without_version = [](const std::string& text) {
      std::vector<Json> rows;
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) {
        rows.push_back(parse_json(line, "rollouts"));
        rows.back().erase("policy_version");
        rows.back().erase("version_tokens");
      }
      return rows;
    };
    const std::vector<Json> expected = without_version(now.rollouts(step));
    CHECK((without_version(ahead.rollouts(step)) == expected));
    CHECK((without_version(parts.rollouts(step)) == expected));
  }
  for (const MetricsRow& row : ahead.metrics()) {
    CHECK(row.number("mismatch_kl") == 0);
    CHECK(row.number("mismatch_fraction") == 0);
  }
}

TEST_CASE("a run that samples ahead goes on to the same bits wherever it stops") {
  const Folder folder;
  for (const int kind : {0, 1, 2, 3}) {
    const bool several = kind % 2 == 1, parts = kind >= 2;
    const auto set = [&](rl::RlConfig& config) {
      if (several) two_updates(config);
      if (parts) continues(config);
    };
    for (const int64_t staleness : {1, 3}) {
      if (parts && staleness == 1 && !several) continue;
      const std::string name = str(several ? "two-" : "one-", parts ? "parts-" : "", staleness);
      CAPTURE(name);
      AheadRun whole(folder, name, staleness, set);
      whole.go();
      AheadRun again(folder, name + "-again", staleness, set);
      again.config.rollout.threads = 1;
      again.go();
      CHECK((again.weights() == whole.weights()));
      CHECK((again.rows() == whole.rows()));
      for (const int64_t stop : {1, 2, 3, 5}) {
        AheadRun cut(folder, name + "-cut", staleness, set);
        cut.go(stop);
        CHECK(cut.outcome.interrupted);
      }
      AheadRun cut(folder, name + "-cut", staleness, set);
      cut.go();
      CHECK((cut.weights() == whole.weights()));
      CHECK((cut.rows() == whole.rows()));
      CHECK(cut.rollouts(kSteps) == whole.rollouts(kSteps));
    }
  }
}

TEST_CASE("what fails while sampling ahead ends the run, and the last step is kept") {
  const Folder folder;
  AheadRun good(folder, "run", 1);
  good.go(3);
  AheadRun bad(folder, "run", 1, {}, ", \"fails\": true");
  CHECK_THROWS_AS(bad.go(), RunError);
  AheadRun last(folder, "run", 1);
  last.go();
  CHECK(last.outcome.steps == kSteps);
}

// Two threads would make them in another order on each rank, which then wait for each other.
TEST_CASE("the collectives of sampling and of evaluations are made by one thread") {
  const Folder folder;
  const auto evaluates = [](rl::RlConfig& config) {
    config.data.eval = config.data.train;
    config.train.eval_every = 2;
    config.train.eval_at_start = true;
  };
  for (const bool parts : {false, true}) {
    const auto set = [&](rl::RlConfig& config) {
      evaluates(config);
      if (parts) continues(config);
    };
    AheadRun alone(folder, str("alone", parts), 2, set), run(folder, str("twin", parts), 2, set);
    alone.go();
    Twin twin;
    run.go(0, twin, [&] { twin.take_threads(); });
    const std::set<std::thread::id> threads = twin.take_threads();
    CHECK(threads.size() == 1);
    CHECK_FALSE(threads.contains(std::this_thread::get_id()));
    CHECK((run.rows() == alone.rows()));
    std::vector<int64_t> evaluated;
    for (const MetricsRow& row : run.metrics())
      if (row.find("eval/reward_mean")) evaluated.push_back(row.step());
    CHECK(evaluated == std::vector<int64_t>{0, 2, 4, 6, kSteps});
  }
}

TEST_CASE("an evaluation samples with the policy as it is, whatever samples ahead") {
  const Folder folder;
  const auto set = [](rl::RlConfig& config) {
    config.data.eval = config.data.train;
    config.train.eval_every = 3;
    config.train.max_steps = 3;
  };
  AheadRun run(folder, "run", 3, set);
  run.go();
  const MetricsRow evaluated = run.metrics().back();
  // The same prompts, sampled by what was trained.
  tiny::Silent silent;
  rl::SyncSource source(run.config, run.roles->policy, tiny::alone(), silent);
  train::EvaluationSums sums(train::set_names(data::evaluation_sources(run.config.data, 0)));
  REQUIRE(source.evaluate(sums, [] { return false; }));
  REQUIRE(sums.reduce(tiny::alone(), false));
  MetricsRow expected(3);
  sums.write(expected);
  for (const char* name : {"eval/reward_mean", "eval/completion_length_mean"})
    CHECK(evaluated.number(name) == expected.number(name));
}

TEST_CASE("a failure ends the run at its next evaluation") {
  const Folder folder;
  AheadRun bad(
      folder, "run", 1,
      [](rl::RlConfig& config) {
        config.data.eval = config.data.train;
        config.train.eval_every = 1;
      },
      ", \"fails\": true");
  CHECK_THROWS_WITH_AS(bad.go(), doctest::Contains("this row has no reward"), RunError);
}

TEST_CASE(
    "the processors are divided while both threads work, and one has all while the other waits") {
  const int before = omp_get_max_threads();
  omp_set_num_threads(4);
  const Folder folder;
  AheadRun run(folder, "run", 1, [](rl::RlConfig& config) { config.rollout.threads = 1; });
  run.config.resolve("grpo");
  train::Roles roles(tiny::policy(models::LoraConfig{.rank = 4}), run.config.optimizer);
  // As a matrix product finds it out.
  const auto threads = [] {
    kernels::take_processors();
    return omp_get_max_threads();
  };
  {
    rl::SnapshotPolicy snapshots(run.config, roles.policy);
    generate::CompletionSource& completions = snapshots.completions();
    WorkQueue sampling;
    snapshots.share_processors(true);
    CHECK(threads() == 4);
    // Sampling begins and ends without a word to this thread.
    generate::Request request{.prompt = {1, 2, 3}};
    request.options.max_new_tokens = 64;
    generate::RequestId asked = 0;
    CHECK(sampling
              .run([&] {
                asked = completions.submit(request, {});
                return completions.step({}) ? threads() : 0;
              })
              .get() == 1);
    CHECK(threads() == 3);
    snapshots.share_processors(false);  // this thread waits
    CHECK(sampling.run(threads).get() == 4);
    snapshots.share_processors(true);
    CHECK(sampling.run(threads).get() == 1);
    CHECK(threads() == 3);
    sampling
        .run([&] {
          completions.cancel(asked);
          while (completions.step({})) {
          }
        })
        .get();
    CHECK(threads() == 4);  // nothing is left to sample
    sampling.run([&] { completions.rest(); }).get();
    CHECK(threads() == 4);
  }
  omp_set_num_threads(before);
}

TEST_CASE("samples that were judged are let go while their rewards wait to be collected") {
  const auto first = std::make_shared<std::weak_ptr<const Json>>();
  std::atomic<bool> gone{false};
  auto rewards = hooked_rewards([&](const rewards::Sample& sample) {
    if (sample.row->contains("second")) gone = first->expired();
  });
  rl::RewardWorker worker(rewards);
  auto row = std::make_shared<const Json>(Json{{"first", 1}});
  *first = row;
  worker.submit(0, sample_of(std::move(row)), [] {});
  worker.submit(1, sample_of(std::make_shared<const Json>(Json{{"second", 2}})), [] {});
  CHECK(worker.collect([] {}).size() == 2);
  CHECK(gone);
}

TEST_CASE("who waits for rewards hears of a run that ends") {
  std::promise<void> opened;
  const std::shared_future<void> open = opened.get_future().share();
  auto rewards = hooked_rewards([&](const rewards::Sample&) { open.wait(); });
  rl::RewardWorker worker(rewards);
  const auto row = std::make_shared<const Json>(Json::object());
  const auto ends = [] { throw RunError("the run is ending"); };
  int64_t submitted = 0;
  const auto submit_many = [&] {
    for (; submitted < 3000; ++submitted) worker.submit(submitted, sample_of(row), ends);
  };
  CHECK_THROWS_WITH_AS(submit_many(), "the run is ending", RunError);  // no room is left
  CHECK(submitted > 1000);
  CHECK_THROWS_WITH_AS(worker.collect(ends), "the run is ending", RunError);
  opened.set_value();
}

TEST_CASE("no more groups wait for rewards than may") {
  std::promise<void> opened;
  const std::shared_future<void> open = opened.get_future().share();
  auto rewards = hooked_rewards([&](const rewards::Sample&) { open.wait(); });
  rl::RewardWorker worker(rewards, 2);
  const auto row = std::make_shared<const Json>(Json::object());
  const auto ends = [] { throw RunError("full"); };
  int64_t submitted = 0;
  const auto submit_many = [&] {
    for (; submitted < 100; ++submitted) worker.submit(submitted, sample_of(row), ends);
  };
  CHECK_THROWS_WITH_AS(submit_many(), "full", RunError);
  CHECK(submitted == 3);  // one is being judged
  opened.set_value();
  CHECK(worker.collect([] {}).size() == 3);
}

TEST_CASE("a stale sampler cannot be stopped at") {
  rl::RlConfig config;
  const std::vector<std::string> arguments{"output_dir=run", "model.path=m", "data.train=rows",
                                           "rewards=[{name: exact}]", "rl.max_staleness=1"};
  read_run_config(config, arguments, "grpo");
  CHECK((config.rl.on_mismatch == rl::RlSection::OnMismatch::kCorrect));
  CHECK(config.defaulted.at("rl.on_mismatch") == "correct");
  std::vector<std::string> stop = arguments;
  stop.push_back("rl.on_mismatch=stop");
  rl::RlConfig refused;
  CHECK_THROWS_AS(read_run_config(refused, stop, "grpo"), ConfigError);
  // Nor can it continue where nothing is sampled ahead, or where episodes are sampled whole.
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"rl.max_staleness=0"},
                                             {"rl.algorithm=dapo"},
                                             {"environment.name=grid_world"},
                                             {"rollout.server.urls=[http://127.0.0.1:8000]"}}) {
    std::vector<std::string> parts = arguments;
    parts.push_back("rollout.update=continue");
    parts.insert(parts.end(), more.begin(), more.end());
    rl::RlConfig none;
    CHECK_THROWS_WITH_AS(read_run_config(none, parts, "grpo"), doctest::Contains("rollout.update"),
                         ConfigError);
  }
}
