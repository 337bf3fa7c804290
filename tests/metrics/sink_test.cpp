#include "temper/metrics/sink.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/metrics/activity.h"

using namespace temper;

namespace {

// An empty directory for one test.
class Directory {
 public:
  Directory()
      : path_(std::filesystem::temp_directory_path() /
              ("temper-sinks-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }
  std::string text(const std::string& name) const { return read_file(path_ / name); }
  bool has(const std::string& name) const { return std::filesystem::exists(path_ / name); }
  void append(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::app) << text;
  }

 private:
  std::filesystem::path path_;
};

const std::vector<MetricInfo> kMetrics = {
    {"loss", "", "Loss", "what is minimized", "", true},
    {"reward_mean", "", "Reward", "mean of a rollout batch", "", true, "reward"},
    {"rewards/*", "", "Rewards", "of each reward", "", true},
    {"grad_norm", "", "Gradient norm", "before clipping", "", true, "grad"},
    {"learning_rate", "", "Learning rate", "of the step", "", true, "lr"},
    {"tokens_per_second", "tokens/s", "Speed", "of the step", "", true},
    {"rollout_seconds", "s", "Seconds", "sampling", "", true, "rollout"},
    {"train_seconds", "s", "Seconds", "updating", "", true, "train"},
    {"entropy", "", "Entropy", "nats a token"},
};

MetricsRow train_row(int64_t step, float loss) {
  MetricsRow row(step);
  row.set("loss", loss);
  return row;
}

MetricsRow eval_row(int64_t step, double loss) {
  MetricsRow row(step);
  row.set("eval/loss", loss);
  return row;
}

}  // namespace

TEST_CASE("jsonl appends a line a row at full precision") {
  const Directory dir;
  const auto sink = sinks().find("jsonl")({.output_dir = dir.path()});
  MetricsRow row(1);
  row.set("loss", 0.1f);
  row.set("grad_norm", 0.1);
  row.set("tokens", int64_t{1} << 60);
  row.set("bad", std::nan(""));
  row.set("note", MetricsRow::Value(std::string("a \"b\"\n")));
  sink->log(row);
  CHECK(dir.text("metrics.jsonl") ==
        "{\"step\": 1, \"loss\": 0.1, \"grad_norm\": 0.1, \"tokens\": 1152921504606846976, "
        "\"bad\": null, "
        "\"note\": \"a \\\"b\\\"\\n\"}\n");
}

TEST_CASE("jsonl is cut back to a step, byte for byte, and goes on behind it") {
  const Directory dir;
  dir.append("metrics.jsonl",
             "{\"step\":1,\"loss\":0.30000001192092896}\n{\"step\": 2, \"eval/loss\": "
             "1}\n{\"step\": 3}\n{\"step\": 4, \"lo");
  const auto sink = sinks().find("jsonl")({.output_dir = dir.path()});
  sink->truncate_after(2);
  sink->log(train_row(3, 1.5f));
  CHECK(dir.text("metrics.jsonl") ==
        "{\"step\":1,\"loss\":0.30000001192092896}\n{\"step\": 2, \"eval/loss\": 1}\n{\"step\": 3, "
        "\"loss\": 1.5}\n");
  sink->truncate_after(-1);
  CHECK(dir.text("metrics.jsonl").empty());
}

TEST_CASE("the evaluation rows of a step are removed, and no others") {
  const Directory dir;
  const auto jsonl = sinks().find("jsonl")({.output_dir = dir.path()});
  const auto csv = sinks().find("csv")({.output_dir = dir.path()});
  for (Sink* sink : {jsonl.get(), csv.get()}) {
    for (int64_t step = 1; step <= 2; ++step) {
      sink->log(train_row(step, 1.5f));
      sink->log(eval_row(step, 2.0));
    }
    sink->remove_evaluation(2);
    sink->log(train_row(3, 1.5f));
  }
  CHECK(dir.text("metrics.jsonl") ==
        "{\"step\": 1, \"loss\": 1.5}\n{\"step\": 1, \"eval/loss\": 2}\n"
        "{\"step\": 2, \"loss\": 1.5}\n{\"step\": 3, \"loss\": 1.5}\n");
  CHECK(dir.text("metrics.csv") == "step,loss\n1,1.5\n2,1.5\n3,1.5\n");
  CHECK(dir.text("eval.csv") == "step,eval/loss\n1,2\n");
}

TEST_CASE("csv keeps evaluation rows apart, and later names become new columns") {
  const Directory dir;
  const SinkOptions options{.output_dir = dir.path()};
  {
    const auto sink = sinks().find("csv")(options);
    sink->log(train_row(1, 0.1f));
    sink->log(eval_row(1, 2.0));
    MetricsRow wide = train_row(2, 0.2f);
    wide.set("a,b", MetricsRow::Value(std::string("x \"y\"\nz")));
    sink->log(wide);
    sink->log(train_row(3, 0.3f));
  }
  CHECK(dir.text("metrics.csv") == "step,loss,\"a,b\"\n1,0.1,\n2,0.2,\"x \"\"y\"\" z\"\n3,0.3,\n");
  CHECK(dir.text("eval.csv") == "step,eval/loss\n1,2\n");

  dir.append("metrics.csv", "4,0.");  // as a crash would
  const auto sink = sinks().find("csv")(options);
  sink->truncate_after(2);
  MetricsRow narrow(3);
  narrow.set("a,b", 5);
  sink->log(narrow);
  CHECK(dir.text("metrics.csv") == "step,loss,\"a,b\"\n1,0.1,\n2,0.2,\"x \"\"y\"\" z\"\n3,,5\n");
  sink->truncate_after(-1);
  CHECK_FALSE(dir.has("metrics.csv"));
  sink->log(narrow);
  CHECK(dir.text("metrics.csv") == "step,\"a,b\"\n3,5\n");
}

TEST_CASE("the console prints plain lines when piped") {
  std::ostringstream out;
  const auto sink =
      sinks().find("console")({.total_steps = 100, .console = &out, .metrics = kMetrics});
  MetricsRow row(1);
  row.set("loss", 2.5f);
  row.set("grad_norm", 0.5);
  row.set("learning_rate", 2e-5);
  row.set("step_seconds", 2.0);
  row.set("entropy", 4.0);
  row.set("tokens_per_second", 12345.6);
  sink->log(row);
  sink->log(eval_row(1, 0.123456789));
  sink->warn("careful");
  sink->finish();
  CHECK(out.str() ==
        "step 1/100  loss 2.500  grad 0.5000  lr 2e-05  12,346 tokens/s  left 3:18\n"
        "step 1/100  eval/loss 0.1235\n"
        "warning: careful\n");
}

TEST_CASE("piped, short steps are printed now and then, the first and the last always") {
  std::ostringstream out;
  const auto sink =
      sinks().find("console")({.total_steps = 9, .console = &out, .metrics = kMetrics});
  for (int step = 1; step <= 9; ++step) {
    MetricsRow row(step);
    row.set("step_seconds", 0.3);
    row.set("rollout_seconds", 0.1);
    row.set("train_seconds", 0.2);
    sink->log(row);
  }
  sink->note("look");
  CHECK(out.str() ==
        "step 1/9  rollout 0.1s  train 0.2s  left 2.4s\n"
        "step 5/9  rollout 0.1s  train 0.2s  left 1.2s\n"
        "step 9/9  rollout 0.1s  train 0.2s\n"
        "look\n");
}

TEST_CASE("the console shows what is declared, in that order") {
  std::ostringstream out;
  const auto sink =
      sinks().find("console")({.console = &out,
                               .metrics = {{"b", "tokens", "", "", "", true, "length"},
                                           {"quiet", "", "", ""},
                                           {"rewards/*", "", "", "", "", true},
                                           {"a", "", "", "", "", true}}});
  MetricsRow row(1);
  for (const char* name : {"a", "quiet", "rewards/x", "rewards/y", "unknown"}) row.set(name, 0.25);
  row.set("b", 7);
  row.set("rewards/\x1b[2J\nz", 1.5);  // names of rows' groups are others' text
  sink->log(row);
  MetricsRow eval(1);
  eval.set("eval/b", 1234567);
  eval.set("eval/rows", 30);
  eval.set("eval/rewards/\x1b[2J\nz", 1.5);
  sink->log(eval);
  CHECK(out.str() ==
        "step 1  length 7  x 0.2500  y 0.2500  \\x1b[2J\\nz 1.500  a 0.2500\n"
        "step 1  eval/b 1,234,567  eval/rows 30  eval/rewards/\\x1b[2J\\nz 1.500\n");
}

TEST_CASE("on a terminal one line is redrawn, and other lines stand above it") {
  std::ostringstream out;
  const auto sink = sinks().find("console")(
      {.total_steps = 2, .console = &out, .terminal = true, .columns = 32, .metrics = kMetrics});
  sink->log(train_row(1, 1));
  sink->warn("careful");
  sink->log(train_row(2, 2));
  sink->finish();
  CHECK(out.str() ==
        "\r\033[Kstep 1/2  loss 1.000  left 0.0s"
        "\r\033[Kwarning: careful\nstep 1/2  loss 1.000  left 0.0s"
        "\r\033[Kstep 2/2  loss 2.000\n");
}

TEST_CASE(
    "a terminal's line leaves out what does not fit, the least important first, never the time "
    "left") {
  MetricsRow row(7);
  row.set("step_seconds", 5.9);
  row.set("rollout_seconds", 4.2);
  row.set("train_seconds", 1.7);
  row.set("tokens_per_second", 12345.6);
  row.set("learning_rate", 1e-5);
  row.set("grad_norm", 0.1234);
  row.set("rewards/gsm8k", 0.0625);
  row.set("reward_mean", 0.0601);
  row.set("loss", 1e-9);
  const auto drawn = [&](int columns) {
    std::ostringstream out;
    sinks()
        .find("console")({.total_steps = 200,
                          .console = &out,
                          .terminal = true,
                          .columns = columns,
                          .metrics = kMetrics})
        ->log(row);
    return out.str().substr(4);
  };
  CHECK(drawn(80) == "step 7/200  loss 0  reward 0.06010  gsm8k 0.06250  grad 0.1234  left 18:59");
  for (int columns = 5; columns < 140; ++columns) {
    CAPTURE(columns);
    CHECK(drawn(columns).size() < static_cast<size_t>(columns));
    if (columns > 24) CHECK(drawn(columns).ends_with("  left 18:59"));
  }
  CHECK(drawn(140).find("rollout 4.2s  train 1.7s  left") != std::string::npos);
}

TEST_CASE("a run names the sinks of this build") {
  const Directory dir;
  const auto error = [&](const std::vector<std::string>& names) {
    try {
      Metrics(names, {.output_dir = dir.path()}, "run.yaml:3: metrics.sinks");
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(error({"jsonl", "tensorbord"}) ==
        "run.yaml:3: metrics.sinks: unknown metrics sink `tensorbord`; expected one of console, "
        "csv, jsonl, prometheus, tensorboard, wandb; did you mean `tensorboard`?");
  CHECK(error({"csv", "csv"}) == "run.yaml:3: metrics.sinks: `csv` is listed twice");
}

TEST_CASE("another program's sink gets the rows, and what they may hold") {
  struct Plain : Sink {
    explicit Plain(std::ostream& stream) : out(stream) {}
    void log(const MetricsRow& row) override { out << row.json(); }
    std::ostream& out;
  };
  sinks().add({"plain",
               [](const SinkOptions& options) {
                 for (const MetricInfo& info : options.metrics)
                   *options.console << info.name << " ";
                 return std::make_unique<Plain>(*options.console);
               },
               "rows on the console, for a test"});
  std::ostringstream out;
  const std::vector<std::string> names = {"plain"};
  Metrics metrics(names, {.console = &out, .metrics = {{"loss"}}});
  metrics.log(train_row(1, 1));
  CHECK(out.str() == "loss {\"step\": 1, \"loss\": 1}");
  CHECK_THROWS_WITH_AS(sinks().add({"csv", sinks().find("csv"), "another"}),
                       "metrics sink `csv` exists already", ConfigError);
}

TEST_CASE("prometheus has the newest value of every metric") {
  const Directory dir;
  std::vector<MetricInfo> metrics = kMetrics;
  metrics[0].help = "line\nand \\";
  const auto sink = sinks().find("prometheus")({.output_dir = dir.path(), .metrics = metrics});
  CHECK_FALSE(dir.has("metrics.prom"));
  MetricsRow row(1);
  row.set("loss", 0.1f);
  row.set("note", MetricsRow::Value(std::string("no number")));
  row.set("rewards/a\"b", 0.5);
  row.set("other", std::nan(""));
  row.set("rewards/c", -HUGE_VAL);
  row.set("x-y", 1);
  row.set("x.y", 2);
  sink->log(row);
  MetricsRow eval(1);
  eval.set("eval/loss", 2.5);
  eval.set("eval/set/rewards/c", 1);
  sink->log(eval);
  sink->log(train_row(2, 0.25f));
  const std::string run = "{run=\"" + dir.path() + "\"";
  const std::string text = dir.text("metrics.prom");
  CHECK(text == "# HELP temper_step step\n# TYPE temper_step gauge\ntemper_step" + run +
                    "} 2\n"
                    "# HELP temper_loss line\\nand \\\\\n# TYPE temper_loss gauge\ntemper_loss" +
                    run +
                    "} 0.25\n"
                    "# HELP temper_rewards of each reward\n# TYPE temper_rewards gauge\n"
                    "temper_rewards" +
                    run + ",name=\"a\\\"b\"} 0.5\ntemper_rewards" + run +
                    ",name=\"c\"} -Inf\n"
                    "# HELP temper_other other\n# TYPE temper_other gauge\ntemper_other" +
                    run + "} NaN\n# HELP temper_x_y x-y\n# TYPE temper_x_y gauge\ntemper_x_y" +
                    run +
                    "} 1\n"
                    "# HELP temper_eval_loss Evaluation: line\\nand \\\\\n"
                    "# TYPE temper_eval_loss gauge\ntemper_eval_loss" +
                    run +
                    "} 2.5\n"
                    "# HELP temper_eval_set_rewards Evaluation: of each reward\n"
                    "# TYPE temper_eval_set_rewards gauge\ntemper_eval_set_rewards" +
                    run + ",name=\"c\"} 1\n");
  sink->truncate_after(1);
  CHECK_FALSE(dir.has("metrics.prom"));
  sink->log(train_row(2, 0.5f));
  CHECK(dir.text("metrics.prom").find("temper_eval") == std::string::npos);
  sink->truncate_after(1);
  sink->restore(eval);
  CHECK_FALSE(dir.has("metrics.prom"));
  sink->log(train_row(2, 0.5f));
  CHECK(dir.text("metrics.prom").find("temper_eval_loss" + run + "} 2.5") != std::string::npos);
}

TEST_CASE("a sink that cannot start ends the run; one that fails later is off after one warning") {
  std::ostringstream out;
  const std::vector<std::string> names = {"jsonl", "csv"};
  CHECK_THROWS_AS(Metrics(names, {.output_dir = "/nowhere/at/all"}), RunError);

  const Directory dir;
  Metrics metrics(names, {.output_dir = dir.path(), .console = &out});
  std::filesystem::create_directory(dir.path() +
                                    "/metrics.csv");  // where csv wants to write a file
  metrics.log(train_row(1, 1));
  metrics.log(train_row(2, 2));
  CHECK(dir.text("metrics.jsonl") == "{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"loss\": 2}\n");
  CHECK(out.str().starts_with("warning: the metrics sink csv failed and is off: "));
  CHECK(out.str().find('\n') == out.str().size() - 1);
}

TEST_CASE("every sink of the table takes training rows, evaluation rows and a cut") {
  for (const auto& entry : sinks().list()) {
    CAPTURE(entry.name);
    const Directory dir;
    std::ostringstream out;
    const auto sink = entry.value({.output_dir = dir.path(), .console = &out});
    sink->log(train_row(1, 1.25f));
    sink->truncate_after(1);
    sink->log(eval_row(2, 3.5));
    sink->finish();
    std::string all = out.str();
    for (const auto& file : std::filesystem::recursive_directory_iterator(dir.path()))
      if (file.is_regular_file()) all += read_file(file.path());
    CHECK(all.find("loss") != std::string::npos);
    CHECK(
        (all.find("eval/loss") != std::string::npos || all.find("eval_loss") != std::string::npos));
    CHECK(entry.help.size() > 10);
  }
}

TEST_CASE("what goes on within a step is shown behind the last row, and cleared") {
  std::ostringstream out;
  SinkOptions options{.total_steps = 40, .console = &out, .terminal = true, .columns = 90};
  options.metrics = kMetrics;
  const auto console = sinks().find("console", "test")(options);
  const auto drawn = [&] {
    const std::string all = out.str();
    return all.substr(all.rfind("\r\033[K") + 4);
  };
  const std::string row = "step 2/40  loss 0.5000  left 0.0s";
  console->log(train_row(2, 0.5F));
  CHECK(drawn() == row);
  set_activity_step(3);
  {
    Activity sampling("sampling", 1319);
    std::this_thread::sleep_for(std::chrono::milliseconds(210));
    sampling.advance(40);
    CHECK(drawn() == row + "  step 3/40: sampling 40 of 1,319");
    console->warn("mind");  // lines stand above it
    CHECK(drawn() == "warning: mind\n" + row + "  step 3/40: sampling 40 of 1,319");
  }
  CHECK(drawn() == row);
}

TEST_CASE("a narrow terminal's line has what goes on, and what else fits") {
  std::ostringstream out;
  SinkOptions options{.total_steps = 40, .console = &out, .terminal = true, .columns = 40};
  options.metrics = kMetrics;
  const auto console = sinks().find("console", "test")(options);
  console->log(train_row(2, 0.5F));
  set_activity_step(3);
  Activity sampling("sampling", 64);
  std::this_thread::sleep_for(std::chrono::milliseconds(210));
  sampling.advance(12);
  CHECK(out.str().ends_with("\r\033[Kstep 2/40  step 3/40: sampling 12 of 64"));
}

TEST_CASE("in a log what goes on within a step is a line now and then") {
  std::ostringstream out;
  SinkOptions options{.console = &out, .activity_seconds = 0.05};
  options.metrics = kMetrics;
  const auto console = sinks().find("console", "test")(options);
  set_activity_step(1);
  Activity evaluating("evaluating", 3);
  const Activity training("training: pass", 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  evaluating.advance(2);
  CHECK(out.str() == "step 1: evaluating 2 of 3; training: pass 0 of 2\n");
}

TEST_CASE("a loss that rounding alone keeps from 0 is 0 on the console, and itself in the files") {
  const Directory dir;
  std::ostringstream out;
  SinkOptions options{.output_dir = dir.path(), .console = &out};
  options.metrics = kMetrics;
  const auto console = sinks().find("console", "test")(options),
             file = sinks().find("jsonl", "test")(options);
  MetricsRow row(1);
  row.set("loss", -6.985e-9);
  row.set("learning_rate", 6.985e-9);
  console->log(row);
  file->log(row);
  CHECK(out.str() == "step 1  loss 0  lr 6.985e-09\n");
  CHECK(dir.text("metrics.jsonl").find("-6.985e-09") != std::string::npos);
}
