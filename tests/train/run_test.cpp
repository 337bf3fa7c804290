// Whole runs in a directory: what is interrupted goes on to the same bits, and what looks on at a
// run.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tuple>

#include "temper/base/file.h"
#include "temper/io/safetensors.h"
#include "temper/ops/backend.h"
#include "temper/train/run/earlier_run.h"
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
  for (const bool background : {false, true}) {
    const auto saving = [&](Run& run, RowsTask&) {
      run.config.train.save_every = 2;
      run.config.train.save_in_background = background;
    };
    CHECK((run_until(folder / (background ? "background" : "saving"), {5}, saving) == whole));
  }
  CHECK(read_file(folder / "whole/final/model.safetensors") ==
        read_file(folder / "twice/final/model.safetensors"));
}

TEST_CASE("a step that an error ended is made again: the run goes on to the same bits") {
  const Folder folder;
  const Left whole = run_until(folder / "whole", {});
  for (const char* what : {"next", "loss"}) {
    CAPTURE(what);
    const std::string directory = folder / what;
    {
      Run run(directory, settings());
      RowsTask task(run.roles, tiny::alone());
      task.max_tokens = 30;
      if (what == std::string("next"))
        task.fail_at_next = {4};
      else
        task.fail_at_loss = {4};
      CHECK_THROWS_AS(run.go(task), RunError);
      CHECK(std::filesystem::exists(directory + "/checkpoints/step-3/state.json"));
      CHECK_FALSE(std::filesystem::exists(directory + "/final"));
    }
    const auto split = [](Run&, RowsTask& task) { task.max_tokens = 30; };
    const Left whole_split = run_until(folder / (std::string("whole-") + what), {}, split);
    CHECK((run_until(directory, {}, split) == whole_split));
  }
}

TEST_CASE("rows of metrics that are gone are missed by the run that goes on") {
  const Folder folder;
  const std::string metrics = folder / "run/metrics.jsonl";
  const auto go = [&](int64_t stop_after, const std::string& sink = "jsonl") {
    Run run(folder / "run", settings());
    run.config.metrics.sinks = {"console", sink};
    RowsTask task(run.roles, tiny::alone());
    run.go(task, stop_after);
    return run.console.str();
  };
  go(3);
  CHECK(go(4).find("cut or edited") == std::string::npos);
  std::string text = read_file(metrics);
  write_file_atomic(metrics, text.substr(text.find('\n') + 1));
  const std::string said = go(5);
  CHECK(said.find("rows of 3 steps up to step 4, and the run wrote 4") != std::string::npos);
  CHECK(said.find("no row of step 1") != std::string::npos);
  // It is said once: what is there now is known.
  CHECK(go(0).find("cut or edited") == std::string::npos);
}

TEST_CASE("a row of metrics that cannot be read goes with those behind it, or is named") {
  const Folder folder;
  const std::string metrics = folder / "run/metrics.jsonl";
  const auto go = [&](int64_t stop_after) {
    Run run(folder / "run", settings());
    run.config.metrics.sinks = {"console", "jsonl"};
    RowsTask task(run.roles, tiny::alone());
    run.go(task, stop_after);
    return run.console.str();
  };
  go(3);
  const std::string text = read_file(metrics);
  write_file_atomic(metrics, text + "{\"step\": 4, \"lo\0\0\n{\"step\": 4}\n");
  CHECK(go(4).find("failed and is off") == std::string::npos);
  CHECK(tiny::logged(folder / "run").size() == 4);
  const size_t second = text.find('\n') + 1;
  write_file_atomic(metrics, text.substr(0, second) + "oops\n" + text.substr(second));
  CHECK_THROWS_WITH_AS(go(5), doctest::Contains("run/metrics.jsonl:2: "), ConfigError);
  CHECK_THROWS_WITH_AS(go(5), doctest::Contains("remove the line"), ConfigError);
  write_file_atomic(metrics, text);
  CHECK(go(5).find("resuming") != std::string::npos);
}

TEST_CASE("a complete run that kept no checkpoint says so where final/ is gone") {
  const Folder folder;
  const auto go = [&] {
    Run run(folder / "run", settings());
    run.config.train.keep_final_checkpoint = false;
    RowsTask task(run.roles, tiny::alone());
    run.go(task);
    return run.console.str();
  };
  go();
  CHECK(go().find("is complete") != std::string::npos);
  std::filesystem::remove_all(folder / "run/final");
  CHECK_THROWS_WITH_AS(go(), doctest::Contains("final, which alone had what it trained, is gone"),
                       ConfigError);
}

TEST_CASE("weights that give no finite gradient are not gone on from") {
  const Folder folder;
  const auto saving = [](Run& run, RowsTask&) { run.config.train.save_every = 2; };
  const Left whole = run_until(folder / "whole", {}, saving);
  // Those of step 3 were not saved yet, those of step 4 were.
  for (const int64_t nan_at : {4, 5}) {
    CAPTURE(nan_at);
    const std::string directory = folder / std::to_string(nan_at);
    {
      Run run(directory, settings());
      RowsTask task(run.roles, tiny::alone());
      saving(run, task);
      task.nan_at = {nan_at};
      CHECK_THROWS_WITH_AS(
          run.go(task),
          doctest::Contains(
              (str("the same command goes on from ", directory) + "/checkpoints/step-2").c_str()),
          RunError);
      CHECK_FALSE(std::filesystem::exists(directory + "/checkpoints/step-3"));
    }
    Run run(directory, settings());
    RowsTask task(run.roles, tiny::alone());
    saving(run, task);
    run.go(task);
    CHECK(run.console.str().find("resuming from " + directory + "/checkpoints/step-2") !=
          std::string::npos);
    CHECK((Left{run.weights(), run.moments(), tiny::logged(directory)} == whole));
  }
  // Who names it goes on from it; where there is no other one, the error says so.
  {
    Run run(folder / "only", settings());
    RowsTask task(run.roles, tiny::alone());
    task.steps = 2;
    run.go(task);
  }
  const auto go_on = [&](const std::string& resume, std::set<int64_t> nan_at) {
    Run run(folder / "only", settings());
    run.config.resume = resume;
    RowsTask task(run.roles, tiny::alone());
    task.nan_at = std::move(nan_at);
    return run.go(task).steps;
  };
  CHECK_THROWS_WITH_AS(go_on("auto", {3}), doctest::Contains("resume=never starts over"), RunError);
  CHECK_THROWS_WITH_AS(go_on("auto", {}), doctest::Contains("no finite gradient"), DataError);
  CHECK(go_on(folder / "only/checkpoints/step-2", {}) == 6);
}

TEST_CASE("weights that an update made infinite are not saved") {
  const Folder folder;
  for (const int64_t save_every : {0, 1}) {
    CAPTURE(save_every);
    const std::string directory = folder / std::to_string(save_every);
    Run run(directory, tiny::constant_rate(1e39));
    run.config.train.save_every = save_every;
    RowsTask task(run.roles, tiny::alone());
    task.steps = 1;
    CHECK_THROWS_WITH_AS(run.go(task), doctest::Contains("not finite after its update"), RunError);
    CHECK_FALSE(std::filesystem::exists(directory + "/checkpoints/step-1"));
    CHECK_FALSE(std::filesystem::exists(directory + "/final"));
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
    // The report says which step that is, and has its figures.
    const ReportRecord record =
        read_report_record(read_file(directory + "/report.json"), "report.json");
    CHECK(record.report.final_step == 3);
    using Line = std::pair<std::string, std::string>;
    const Line line{"final/", "weights of step 3: eval/score 0.7000"};
    CHECK(std::count(record.report.summary.begin(), record.report.summary.end(), line) == 1);
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

TEST_CASE("a bit that flips in a checkpoint is found, and the one before is gone on from") {
  const Folder folder;
  const auto saving = [](Run& run, RowsTask&) { run.config.train.save_every = 2; };
  const Left whole = run_until(folder / "whole", {}, saving);
  for (const char* name : {"policy.safetensors", "policy.optimizer.safetensors", "state.json"}) {
    CAPTURE(name);
    const std::string directory = folder / name;
    {
      Run run(directory, settings());
      RowsTask task(run.roles, tiny::alone());
      saving(run, task);
      run.go(task, 4);
    }
    const std::string path = directory + "/checkpoints/step-4/" + name;
    std::string bytes = read_file(path);
    // Of a tensor's last value, or of a number that stays one.
    const size_t place =
        name == std::string("state.json") ? bytes.find("\"drawn\": ") + 9 : bytes.size() - 3;
    bytes[place] = static_cast<char>(bytes[place] ^ 1);
    write_file_atomic(path, bytes);
    Run run(directory, settings());
    RowsTask task(run.roles, tiny::alone());
    saving(run, task);
    run.config.metrics.sinks = {"console", "jsonl"};
    run.go(task);
    const std::string said = run.console.str();
    CHECK(said.find("skipped a checkpoint: " + path) != std::string::npos);
    CHECK(said.find("resuming from " + directory + "/checkpoints/step-2") != std::string::npos);
    CHECK((Left{run.weights(), run.moments(), tiny::logged(directory)} == whole));
  }
}

TEST_CASE("a checkpoint of a version without hashes is gone on from, and that is said") {
  const Folder folder;
  const Left whole = run_until(folder / "whole", {});
  {
    Run run(folder / "run", settings());
    RowsTask task(run.roles, tiny::alone());
    run.go(task, 3);
  }
  const std::string state = folder / "run/checkpoints/step-3/state.json";
  Json values = read_json_file(state);
  for (const char* key : {"files", "hash", "inputs", "metrics_rows", "begun"}) values.erase(key);
  write_file_atomic(state, values.dump());
  Run run(folder / "run", settings());
  RowsTask task(run.roles, tiny::alone());
  run.config.metrics.sinks = {"console", "jsonl"};
  run.go(task);
  CHECK(run.console.str().find("step-3 has no hashes") != std::string::npos);
  CHECK((Left{run.weights(), run.moments(), tiny::logged(folder / "run")} == whole));
}

namespace {

// A run of two steps of six that reads files; what it says when it goes on after `change`.
std::string said_after(const std::string& directory, const std::function<void()>& change,
                       bool frozen = true) {
  std::string said;
  for (const int64_t stop_after : {2, 4}) {
    if (stop_after == 4) change();
    Run run(directory + "/run", settings());
    run.config.verb = "sft";
    run.config.metrics.sinks = {"console", "jsonl"};
    run.config.model.path = directory + "/model";
    run.config.data.train = {{.path = directory + "/rows"}};
    if (frozen) run.config.adapter.method = models::AdapterSection::Method::kLora;
    RowsTask task(run.roles, tiny::alone());
    try {
      run.go(task, stop_after);
      said = run.console.str();
    } catch (const ConfigError& e) {
      said = std::string("refused: ") + e.what();
    }
  }
  return said;
}

}  // namespace

TEST_CASE("files that have changed since the checkpoint are named, and another base is refused") {
  const Folder folder;
  int count = 0;
  std::string directory;
  const auto after = [&](const std::function<void()>& change, bool frozen = true) {
    directory = folder / std::to_string(++count);
    std::filesystem::create_directories(directory + "/model");
    std::filesystem::create_directories(directory + "/rows");
    write_file_atomic(directory + "/model/model.safetensors", std::string(1000, 'w'));
    write_file_atomic(directory + "/model/tokenizer.json", "{}");
    write_file_atomic(directory + "/rows/a.jsonl", "{\"text\": \"a\"}\n");
    write_file_atomic(directory + "/rows/b.jsonl", "{\"text\": \"b\"}\n");
    return said_after(directory, change, frozen);
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  };
  const auto write = [&](const char* name, const std::string& bytes) {
    write_file_atomic(directory + "/" + name, bytes);
  };
  // Written anew with the same bytes, or moved: nothing has changed.
  CHECK(after([] {}).find("changed") == std::string::npos);
  CHECK(after([&] { write("rows/a.jsonl", "{\"text\": \"a\"}\n"); }).find("changed") ==
        std::string::npos);
  const std::string other_rows = after([&] { write("rows/a.jsonl", "{\"text\": \"c\"}\n"); });
  contains(other_rows, "files that have changed since " + directory +
                           "/run/checkpoints/step-2: data.train[0].path (" + directory +
                           "/rows/a.jsonl)");
  contains(after([&] { write("rows/c.jsonl", "{\"text\": \"c\"}\n"); }), "c.jsonl), which is new");
  contains(after([&] { std::filesystem::remove(directory + "/rows/b.jsonl"); }),
           "b.jsonl), which is gone");
  const std::string renamed = after([&] {
    for (const char* name : {"a", "b"})
      std::filesystem::remove(directory + "/rows/" + name + ".jsonl");
    write("rows/c.jsonl", "{\"text\": \"c\"}\n");
  });
  for (const char* part : {"c.jsonl), which is new", "a.jsonl), which is gone"})
    contains(renamed, part);
  contains(after([&] { write("model/tokenizer.json", "[]"); }), "tokenizer.json)");
  // A large file may have no hash yet when the run is saved: then its time tells.
  const auto without_hashes = [&](const std::string& rows) {
    return after([&] {
      const std::string state = directory + "/run/checkpoints/step-2/state.json";
      Json values = Json::parse(read_file(state));
      for (Json& entry : values["inputs"]) entry["hash"] = "";
      values.erase("hash");
      write_file_atomic(state, values.dump());
      if (!rows.empty()) write("rows/a.jsonl", rows);
    });
  };
  CHECK(without_hashes("").find("changed") == std::string::npos);
  contains(without_hashes("{\"text\": \"a\"}\n"),
           "rows/a.jsonl), which may be another: it had no hash yet");
  contains(without_hashes("{\"text\": \"a\"}\n{\"text\": \"d\"}\n"), "rows/a.jsonl)");
  const auto other_base = [&] {
    std::string other(1000, 'w');
    other.back() = 'x';
    write("model/model.safetensors", other);
  };
  const std::string refused = after(other_base);
  contains(refused, "refused: the frozen weights are not those that " + directory +
                        "/run/checkpoints/step-2 was trained on: model.path (" + directory +
                        "/model/model.safetensors)");
  const std::string in_parts = after([&] {
    std::filesystem::remove(directory + "/model/model.safetensors");
    write("model/model-00001-of-00001.safetensors", std::string(1000, 'x'));
  });
  contains(in_parts, "refused: the frozen weights are not those");
  contains(in_parts, "model-00001-of-00001.safetensors), which is new");
  // Where all weights train, the checkpoint has them.
  CHECK(after(other_base, false).find("changed") == std::string::npos);
}

TEST_CASE("files of one name that one pattern matches are told apart") {
  const Folder folder;
  const auto record = [&] {
    Run run(folder / "run", settings());
    run.config.verb = "sft";
    run.config.data.train = {{.path = (folder / "rows") + "/*/x.jsonl"}};
    std::vector<train::InputFile> files = train::input_files(run.config);
    std::erase_if(files, [](const auto& file) { return !file.key.starts_with("data."); });
    return files;
  };
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directories((folder / "rows/") + name);
    write_file_atomic((folder / "rows/") + name + "/x.jsonl", std::string(name) + "\n");
  }
  const Json kept = train::InputHashes(record()).to_json();
  CHECK(kept.size() == 2);
  std::vector<train::InputFile> same = record();
  CHECK(train::compare_inputs(same, kept).others.empty());
  write_file_atomic(folder / "rows/b/x.jsonl", "c\n");
  std::vector<train::InputFile> other = record();
  CHECK(train::compare_inputs(other, kept).others ==
        std::vector<std::string>{"data.train[0].path (" + (folder / "rows/b/x.jsonl") + ")"});
}

TEST_CASE("checkpoints do not wait for the hashes of large files") {
  const Folder folder;
  train::InputFile large, small;
  std::tie(large.key, large.name, large.path) = std::tuple{"model.path", "fifo", folder / "fifo"};
  small = large;
  small.path = folder / "small";
  large.bytes = int64_t{1} << 30;
  small.bytes = 2;
  write_file_atomic(small.path, "ab");
  CHECK(::mkfifo(large.path.c_str(), 0600) == 0);  // reading it takes until someone writes
  train::InputHashes hashes({large, small});
  const Json kept = hashes.to_json();
  const int writer = ::open(large.path.c_str(), O_WRONLY);
  ::close(writer);
  CHECK(kept[0]["hash"] == "");
  CHECK(kept[1]["hash"] != "");
}

TEST_CASE("a signal during the last step leaves a whole run") {
  const Folder folder;
  Run run(folder / "run", settings());
  RowsTask task(run.roles, tiny::alone());
  CHECK_FALSE(run.go(task, 6).interrupted);
  CHECK(std::filesystem::exists(folder / "run/final/model.safetensors"));
}

TEST_CASE("an evaluation that no checkpoint knows of is made again, and logged once") {
  const Folder folder;
  {
    Run run(folder / "run", settings());
    RowsTask task(run.roles, tiny::alone());
    run.go(task, 4);
  }
  for (const bool fails : {true, false}) {  // after the evaluation of step 4, before step 5
    Run run(folder / "run", settings());
    run.config.train.eval_every = 4;
    RowsTask task(run.roles, tiny::alone());
    task.evaluations = {1, 2, 3};
    if (!fails) {
      run.go(task);
      continue;
    }
    task.fail_at_next = {5};
    CHECK_THROWS(run.go(task));
  }
  std::vector<int64_t> evaluated;
  for (const MetricsRow& row : read_metrics_file(folder / "run/metrics.jsonl"))
    if (row.is_eval()) evaluated.push_back(row.step());
  CHECK(evaluated == std::vector<int64_t>{4, 6});
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
  values.erase("hash");  // as it is edited
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

TEST_CASE("settings that changed are those of the user") {
  const Folder folder;
  train::RunConfig config;
  config.output_dir = folder / "run";
  config.model.path = folder / "model";
  const auto written = [&](const std::string& text) {
    write_file_atomic(config.output_dir + "/config.yaml", text);
    return train::changed_settings(config);
  };
  CHECK(train::changed_settings(config).empty());
  std::filesystem::create_directories(config.output_dir);
  const std::string now = train::dump_run_config(config);
  CHECK(written(now).empty());
  const auto with = [&](const std::string& key, const std::string& value) {
    std::string text = now;
    const size_t begin = text.find(key + ": ");
    REQUIRE(begin != std::string::npos);
    return written(text.replace(begin, text.find('\n', begin) - begin, key + ": " + value));
  };
  CHECK(with("seed", "7") == "seed: 7 -> 0");
  CHECK(with("defaulted", "{optimizer.weight_decay: '1.0'}").empty());
  const std::string usual = ops::default_cpu_backend().name();
  const std::string other = usual == "native" ? "aten" : "native";
  CHECK(with("backend", usual).empty());
  CHECK(with("device", "cpu").empty());  // as auto, on a machine without another device
  // A key that the version of the earlier run did not have.
  std::string older = now;
  older.erase(older.find("  backend: "),
              older.find('\n', older.find("  backend: ")) + 1 - older.find("  backend: "));
  CHECK(written(older).empty());
  CHECK(with("backend", other) == "model.backend: " + other + " -> auto");
}

TEST_CASE("a run does not write into the directory of its model or adapter") {
  const Folder folder;
  std::filesystem::create_directories(folder / "model");
  std::filesystem::create_directories(folder / "adapter");
  const auto error = [&](const std::string& output) {
    train::RunConfig config;
    config.output_dir = folder / output;
    config.model.path = folder / "model";
    config.adapter.path = folder / "adapter";
    try {
      train::check_separate_output(config);
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(error("model/").find("the directory of model.path") != std::string::npos);
  CHECK(error("adapter").find("the directory of adapter.path") != std::string::npos);
  CHECK(error("model/run") == "no error");

  // A run on the result of an earlier one does not replace it.
  std::filesystem::create_directories(folder / "run/final");
  const auto reading = [&](const std::string& model) {
    train::RunConfig config;
    config.output_dir = folder / "run";
    config.model.path = folder / model;
    try {
      train::check_separate_output(config);
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(reading("run/final").find("model.path: found ") != std::string::npos);
  CHECK(reading("run/final/").find("which this run would replace") != std::string::npos);
  CHECK(reading("model") == "no error");
}

TEST_CASE("a checkpoint records the backend, and a path that is none names the newest one") {
  const Folder folder;
  Run run(folder / "run", settings());
  RowsTask task(run.roles, tiny::alone());
  run.go(task);
  const std::string newest = folder / "run/checkpoints/step-6";
  CHECK(read_json_file(newest + "/state.json")["backend"] == ops::cpu_backend().name());
  for (const char* path : {"run", "run/", "run/final", "run/checkpoints", "run/checkpoints/step-9"})
    CHECK(train::Checkpoints::newest_hint(folder / path).ends_with(" is " + newest));
  CHECK(train::Checkpoints::newest_hint(folder / "elsewhere/x/y/z").empty());
}
