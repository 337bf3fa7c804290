// Whole runs in a directory: what is interrupted goes on to the same bits, and what looks on at a
// run.
#include "temper/base/file.h"
#include "temper/io/safetensors.h"
#include "tests/train/tiny.h"

using namespace temper;
using tiny::Folder;
using tiny::RowsTask;
using tiny::Run;

namespace {

train::OptimizerSection settings() {
  train::OptimizerSection section;
  section.learning_rate = 1e-2;  // that falls by the cosine: a resumed run must know its plan
  section.weight_decay = 0.1;
  return section;
}

// What a run leaves: weights, moments, rows of metrics.
struct Left {
  tiny::Weights weights, moments;
  std::vector<std::string> rows;
  bool operator==(const Left&) const = default;
};

// Runs until the run is whole; each number is the step after which one process is interrupted.
Left run_until(const std::string& directory, const std::vector<int64_t>& interrupted,
               const std::function<void(Run&, RowsTask&)>& set = {}) {
  for (size_t i = 0; i <= interrupted.size(); ++i) {
    const int64_t stop_after = i < interrupted.size() ? interrupted[i] : 0;
    Run run(directory, settings());
    RowsTask task(run.roles, tiny::alone());
    if (set) set(run, task);
    run.go(task, stop_after);
    CHECK(run.outcome.interrupted == (stop_after > 0));
    CHECK(run.outcome.steps == (stop_after > 0 ? stop_after : task.steps));
    if (stop_after == 0) return {run.weights(), run.moments(), tiny::logged(directory)};
  }
  return {};
}

}  // namespace

TEST_CASE("a run that is interrupted ends with the bits of one that is not") {
  const Folder folder;
  const Left whole = run_until(folder / "whole", {});
  CHECK(whole.rows.size() == 6);
  CHECK((run_until(folder / "twice", {1, 4}) == whole));
  const auto saving = [](Run& run, RowsTask&) { run.config.train.save_every = 2; };
  CHECK((run_until(folder / "saving", {5}, saving) == whole));
  CHECK(read_file(folder / "whole/final/model.safetensors") ==
        read_file(folder / "twice/final/model.safetensors"));
}

TEST_CASE("a step that an error ended is made again: the run goes on to the same bits") {
  const Folder folder;
  const Left whole = run_until(folder / "whole", {});
  for (const char* what : {"next", "loss", "nan"}) {
    CAPTURE(what);
    const std::string directory = folder / what;
    {
      Run run(directory, settings());
      RowsTask task(run.roles, tiny::alone());
      task.max_tokens = 30;
      if (what == std::string("next"))
        task.fail_at_next = {4};
      else if (what == std::string("loss"))
        task.fail_at_loss = {4};
      else
        task.nan_at = {4};
      CHECK_THROWS_AS(run.go(task), RunError);
      CHECK(std::filesystem::exists(directory + "/checkpoints/step-3/state.json"));
      CHECK_FALSE(std::filesystem::exists(directory + "/final"));
    }
    const auto split = [](Run&, RowsTask& task) { task.max_tokens = 30; };
    const Left whole_split = run_until(folder / (std::string("whole-") + what), {}, split);
    CHECK((run_until(directory, {}, split) == whole_split));
  }
}

TEST_CASE("a complete run is not run again, and goes on where its plan grows") {
  const Folder folder;
  run_until(folder / "run", {});
  Run again(folder / "run", settings());
  RowsTask task(again.roles, tiny::alone());
  task.fail_at_next = {1, 2, 3, 4, 5, 6, 7};
  CHECK_FALSE(again.go(task).interrupted);
  CHECK(again.console.str().find("is complete") != std::string::npos);
  Run more(folder / "run", settings());
  RowsTask longer(more.roles, tiny::alone());
  longer.steps = 8;
  CHECK(more.go(longer).steps == 8);
  CHECK(tiny::logged(folder / "run").size() == 8);
}

namespace {

// Writes down what it is called for.
struct Recorder : train::Hook {
  explicit Recorder(std::vector<std::string>& calls) : log(calls) {}
  void on_begin(train::RunDirectory&) override { log.push_back("begin"); }
  void before_step(int64_t step) override { log.push_back(str("before ", step)); }
  void after_step(const MetricsRow& row) override { log.push_back(str("after ", row.step())); }
  void on_evaluation(const MetricsRow& row, train::RunDirectory&, train::Roles&) override {
    log.push_back(str("evaluation ", row.step()));
  }
  void on_save(int64_t step, const std::string&) override { log.push_back(str("save ", step)); }
  bool wants_end() const override { return end_after && log.back() == *end_after; }
  std::string name() const override { return "recorder"; }
  Json state() const override { return log.size(); }
  void restore(const Json& state) override { log.push_back(str("restored ", state.dump())); }
  std::vector<std::string>& log;
  std::optional<std::string> end_after;
};

std::vector<std::unique_ptr<train::Hook>> recorder(std::vector<std::string>& calls,
                                                   std::optional<std::string> end_after = {}) {
  auto hook = std::make_unique<Recorder>(calls);
  hook->end_after = std::move(end_after);
  std::vector<std::unique_ptr<train::Hook>> hooks;
  hooks.push_back(std::move(hook));
  return hooks;
}

}  // namespace

TEST_CASE("hooks are called in order, keep state, and may end the run") {
  const Folder folder;
  std::vector<std::string> calls;
  {
    Run run(folder / "run", settings());
    run.config.train.eval_every = 2;
    RowsTask task(run.roles, tiny::alone());
    task.evaluations = {1, 2, 3};
    run.go(task, 3, recorder(calls));
  }
  CHECK((calls == std::vector<std::string>{"begin", "before 1", "after 1", "before 2", "after 2",
                                           "evaluation 2", "before 3", "after 3", "save 3"}));
  calls.clear();
  Run run(folder / "run", settings());
  RowsTask task(run.roles, tiny::alone());
  task.evaluations = {1, 2, 3};
  run.go(task, 0, recorder(calls, "after 5"));
  CHECK((calls == std::vector<std::string>{"restored 8", "begin", "before 4", "after 4", "before 5",
                                           "after 5", "evaluation 5"}));
  CHECK(run.outcome.steps == 5);
  CHECK_FALSE(run.outcome.interrupted);
  CHECK(std::filesystem::exists(folder / "run/final/model.safetensors"));
}

TEST_CASE("early stopping ends a run whose evaluations stall, also a resumed one") {
  const Folder folder;
  const auto set = [](Run& run, RowsTask& task) {
    run.config.train.eval_every = 1;
    run.config.train.early_stopping.metric = "eval/score";
    run.config.train.early_stopping.patience = 2;
    task.evaluations = {1, 3, 2, 3, 9, 9, 9};  // none better than 3 at steps 3 and 4
  };
  for (const int64_t interrupted : {0, 3}) {
    CAPTURE(interrupted);
    const std::string directory = folder / std::to_string(interrupted);
    for (const int64_t stop_after : {interrupted, int64_t{0}}) {
      Run run(directory, settings());
      RowsTask task(run.roles, tiny::alone());
      set(run, task);
      run.go(task, stop_after);
      CHECK(run.outcome.steps == (stop_after > 0 ? 3 : 4));
      if (interrupted == 0) break;
    }
    CHECK(std::filesystem::exists(directory + "/final"));
  }
}

TEST_CASE("keep_best leaves the best evaluation's weights in final/, also of a run that was cut") {
  const Folder folder;
  const auto weights_after = [&](int64_t steps) {
    Run run(folder / str("plain-", steps), settings());
    RowsTask task(run.roles, tiny::alone());
    task.steps = 6;
    run.go(task, steps);
    return run.weights();
  };
  const tiny::Weights best = weights_after(3);
  const auto final_weights = [](const std::string& directory) {
    tiny::Weights out;
    for (const auto& [name, view] : read_safetensors(directory + "/model.safetensors")) {
      out[name].resize(view.num_bytes / sizeof(float));
      std::memcpy(out[name].data(), view.data, view.num_bytes);
    }
    return out;
  };
  for (const int64_t stop_after : {0, 4}) {
    CAPTURE(stop_after);
    const std::string directory = folder / str("run-", stop_after);
    // What another run left here does not count.
    std::filesystem::create_directories(directory + "/best");
    write_file_atomic(directory + "/best/model.safetensors", "another run's");
    for (const int64_t stop : {stop_after, int64_t{0}}) {
      Run run(directory, settings());
      run.config.train.eval_every = 1;
      run.config.train.keep_best.metric = "eval/score";
      RowsTask task(run.roles, tiny::alone());
      // A nan is no best; after the cut nothing better comes.
      task.evaluations = {std::nan(""), 0.2, 0.7, 0.1, 0.6, 0.7};
      run.go(task, stop);
      if (stop_after == 0) break;
    }
    CHECK((final_weights(directory + "/final") == best));
  }
}

TEST_CASE("what the last evaluation said is known to a run that goes on") {
  const Folder folder;
  const auto go = [&](int64_t steps, double score) {
    Run run(folder / "run", settings());
    run.config.train.save_every = 6;
    run.config.train.keep_best.metric = "eval/score";
    RowsTask task(run.roles, tiny::alone());
    task.steps = steps;
    task.evaluations = {score, score};
    run.go(task);
  };
  go(6, 0.9);
  const std::string best = read_file(folder / "run/final/model.safetensors");
  go(8, 0.1);
  CHECK(read_file(folder / "run/final/model.safetensors") == best);
}

TEST_CASE("a damaged state of the task is passed over for an older checkpoint") {
  const Folder folder;
  const Left whole = run_until(folder / "whole", {});
  const auto saving = [](Run& run, RowsTask&) { run.config.train.save_every = 1; };
  {
    Run run(folder / "run", settings());
    RowsTask task(run.roles, tiny::alone());
    saving(run, task);
    run.go(task, 3);
  }
  const std::string state = folder / "run/checkpoints/step-3/state.json";
  Json values = read_json_file(state);
  values.erase("task");
  write_file_atomic(state, values.dump());
  CHECK((run_until(folder / "run", {}, saving) == whole));
}

TEST_CASE("a signal during the last step leaves a whole run") {
  const Folder folder;
  Run run(folder / "run", settings());
  RowsTask task(run.roles, tiny::alone());
  CHECK_FALSE(run.go(task, 6).interrupted);
  CHECK(std::filesystem::exists(folder / "run/final/model.safetensors"));
}

TEST_CASE("keep_best leaves the last weights where no evaluation has its metric") {
  const Folder folder;
  const std::string directory = folder / "run";
  std::filesystem::create_directories(directory + "/best");
  write_file_atomic(directory + "/best/model.safetensors", "another run's");
  Run run(directory, settings());
  run.config.train.eval_every = 3;
  run.config.train.keep_best.metric = "eval/other";
  RowsTask task(run.roles, tiny::alone());
  task.evaluations = {1, 2};
  run.go(task);
  CHECK(read_file(directory + "/final/model.safetensors") != "another run's");
}

TEST_CASE("a run that is cut after its last evaluation still leaves the best weights") {
  const Folder folder;
  const std::string directory = folder / "run";
  const auto set = [](Run& run, RowsTask& task) {
    run.config.train.eval_every = 3;
    run.config.train.save_every = 3;
    run.config.train.keep_best.metric = "eval/score";
    task.evaluations = {2, 1};  // at steps 3 and 6
  };
  {
    Run run(directory, settings());
    RowsTask task(run.roles, tiny::alone());
    set(run, task);
    run.go(task);
  }
  // As a kill before final/ was written leaves it.
  std::filesystem::remove_all(directory + "/final");
  const std::string state = directory + "/checkpoints/step-6/state.json";
  Json values = read_json_file(state);
  values["complete"] = false;
  write_file_atomic(state, values.dump());
  Run run(directory, settings());
  RowsTask task(run.roles, tiny::alone());
  set(run, task);
  run.go(task);
  CHECK(read_file(directory + "/final/model.safetensors") ==
        read_file(directory + "/best/model.safetensors"));
}

namespace {

// One number that learns the mean target id of the rows, as a critic learns returns.
struct Critic : nn::Module {
  Critic() : weight(*this, "weight", {1}, {}) {
    weight.set_value(at::zeros({1}));
    weight.set_trainable(true);
  }
  nn::Parameter weight;
};

struct CriticRun : Run {
  Critic critic;
  RowsTask task;
  explicit CriticRun(const std::string& directory)
      : Run(directory, settings()), task(roles, tiny::alone()) {
    roles.trainables.push_back(std::make_unique<train::Trainable>(
        "critic", tiny::constant_rate(0.5), train::trainable_parameters(critic),
        [this](const std::string& into) {
          write_file_atomic(into + "/value.txt", str(critic.weight.value().item<float>()));
        }));
    task.extra = [this](train::Loss& loss, const train::ForwardPass& pass) {
      at::Tensor ids_M = at::empty({pass.num_targets()}, at::kFloat);
      for (int64_t i = 0; i < pass.num_targets(); ++i)
        ids_M[i] = static_cast<float>(pass.target_M[static_cast<size_t>(i)]);
      const at::Tensor error_M = critic.weight.value() - ids_M;
      loss.terms.push_back({.name = "critic", .value = error_M * error_M, .denominator = 50});
    };
  }
};

}  // namespace

TEST_CASE("a second trainable has its own rate, is kept by its name, and is restored") {
  const Folder folder;
  CriticRun whole(folder / "whole");
  whole.go(whole.task);
  {
    CriticRun cut(folder / "cut");
    cut.go(cut.task, 2);
    CHECK(std::filesystem::exists(folder / "cut/checkpoints/step-2/critic.safetensors"));
    CHECK(std::filesystem::exists(folder / "cut/checkpoints/step-2/critic.optimizer.safetensors"));
  }
  CriticRun cut(folder / "cut");
  cut.go(cut.task);
  CHECK(tiny::same_bits(cut.critic.weight.value(), whole.critic.weight.value()));
  CHECK((tiny::moments(cut.roles.trainables[1]->optimizer) ==
         tiny::moments(whole.roles.trainables[1]->optimizer)));
  CHECK((cut.weights() == whole.weights()));
  CHECK((tiny::logged(folder / "cut") == tiny::logged(folder / "whole")));
  CHECK(std::filesystem::exists(folder / "whole/critic/value.txt"));
  for (const MetricsRow& row : read_metrics_file(folder / "whole/metrics.jsonl")) {
    CHECK(row.number("critic_learning_rate") == 0.5);
    CHECK(row.number("learning_rate").value() <= 1e-2);
    CHECK(row.number("critic_grad_norm").value() > 0);
    CHECK(row.number("loss/critic").value() > 0);
  }
  CHECK(whole.critic.weight.value().item<float>() > 1);  // towards the ids' mean

  // A checkpoint that lacks one of them changes nothing.
  std::filesystem::remove_all(folder / "cut/final");
  const std::string checkpoint = folder / "cut/checkpoints/step-6";
  write_file_atomic(checkpoint + "/critic.optimizer.safetensors",
                    read_file(checkpoint + "/critic.safetensors"));
  CriticRun damaged(folder / "damaged");
  const tiny::Weights before = damaged.weights(), moments = damaged.moments();
  CHECK_THROWS_AS(train::Checkpoints::load(checkpoint, damaged.roles.trainables), DataError);
  CHECK((damaged.weights() == before));
  CHECK((damaged.moments() == moments));
  CHECK(damaged.roles.trainables[0]->optimizer.steps() == 0);
}
