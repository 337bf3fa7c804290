// temper sweep: a run for each combination of settings.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/memory.h"
#include "temper/check/check_run.h"
#include "temper/check/text.h"
#include "temper/cli/experiments/combinations.h"
#include "temper/cli/experiments/joint_sweep.h"
#include "temper/cli/experiments/repetition.h"
#include "temper/cli/experiments/worst_runs.h"
#include "temper/cli/launch.h"
#include "temper/cli/parts/run_files.h"
#include "temper/cli/parts/shared_config.h"
#include "temper/cli/training.h"
#include "temper/cli/verbs.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {
namespace fs = std::filesystem;

constexpr int kFirstSignalStatus = 128;

class Sweep : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Trains a run for each combination of settings, each in OUTPUT_DIR/NAME with the files and "
        "the bits that it has alone. All are checked before the first one starts; "
        "OUTPUT_DIR/report.html compares them; the same command resumes.\n"
        "examples:\n"
        "  temper sweep sft configs/lora.yaml --over optimizer.learning_rate=1e-4,3e-4 --over "
        "adapter.rank=8,32 --seeds 0,1\n"
        "  temper sweep grpo configs/grpo_gsm8k.yaml --over rl.beta=0,0.04 --stop-worst 0.5 --by "
        "reward_mean --after 50");
    f.add("VERB", words_, "VERB file.yaml ... dotted.key=value ...", required());
    f.add("--over", over_, "KEY=A,B,..: the values of a key");
    f.add("--seeds", seeds_, "values of the key seed: 0,1,..");
    f.add("--stop-worst", worst_.share, "share of the runs that end after --after", between(0, 1));
    f.add("--by", worst_.by, "the metric, in the row of that step, by which they are the worst");
    f.add("--after", worst_.after, "the step", at_least(1));
    f.add("--nproc", ranks_, "ranks of each run", at_least(1));
    for (const char* flag : {"--by", "--after"}) f.needs("--stop-worst", flag);
    for (const char* flag : {"--by", "--after"}) f.needs(flag, "--stop-worst");
  }

  int run() override {
    verb_ = find_training_verb(words_[0]);
    check<ConfigError>(verb_ != nullptr, "sweep: found ", words_[0],
                       ", expected a training verb, as in temper sweep sft CONFIG");
    configs_ = {words_.begin() + 1, words_.end()};
    if (!seeds_.empty()) over_.push_back("seed=" + seeds_);
    runs_ = combinations_of(over_);
    check_not_fixed(configs_, over_);
    check_nproc(static_cast<int>(ranks_));
    std::visit([&](auto type) { check_all<typename decltype(type)::type>(); }, verb_->config);
    fs::create_directories(output_);
    if (worst_.share) {
      std::vector<Part> first;
      for (Combination& one : runs_)
        if (!compared_value(worst_, directory_of(one)))
          first.push_back({&one, Repetition{{worst_.after}, worst_.after}});
      if (!train_all(first)) return status_;
      choose_worst(worst_, runs_, [this](const Combination& one) { return directory_of(one); });
    }
    std::vector<Part> rest;
    for (Combination& one : runs_) {
      std::optional<Repetition> what;
      if (one.is_worst) what = Repetition{{}, worst_.after, true};
      if (!one.failed) rest.push_back({&one, what});
    }
    if (!train_all(rest)) return status_;
    return tell_end();
  }

 private:
  // What a process makes of a run; nullopt: all of it.
  struct Part {
    Combination* run;
    std::optional<Repetition> what;
  };

  Arguments arguments_of(const Combination& one) const {
    Arguments arguments = configs_;
    arguments.insert(arguments.end(), one.settings.begin(), one.settings.end());
    if (!output_.empty()) arguments.push_back("output_dir=" + directory_of(one));
    return arguments;
  }
  std::string directory_of(const Combination& one) const { return output_ + "/" + one.name; }

  // Throws ConfigError for the first combination that is wrong.
  template <class Config>
  void check_all() {
    Config first;
    read_verb_config(first, arguments_of(runs_[0]), verb_->name);
    output_ = first.output_dir;
    const int64_t program = peak_memory_bytes();
    // Runs with the same rows one after another, so that the sizes of one set of rows are kept.
    std::vector<Combination*> by_rows;
    for (Combination& one : runs_) by_rows.push_back(&one);
    std::ranges::stable_sort(by_rows, {}, [](const auto* one) { return row_settings(*one); });
    std::map<std::string, checks::RowSizes> measured;
    std::map<std::string, std::string> known;
    std::string settings;
    for (Combination* const combination : by_rows) {
      Combination& one = *combination;
      if (row_settings(one) != std::exchange(settings, row_settings(one))) measured.clear();
      try {
        Config config;
        read_verb_config(config, arguments_of(one), verb_->name);
        const auto [same, is_new] = known.try_emplace(
            settings_text(parse_yaml(train::dump_run_config(config), one.name)), one.name);
        if (worst_.share) check_comparable(worst_, config);
        check<ConfigError>(is_new, "the same run as ", same->second, "; leave one of them out");
        if (ranks_ == 1) one.base = shared_base(*verb_, config);
        one.pass_tokens = config.train.micro_batch_tokens;
        checks::RunChecks checks(config, {.ranks = ranks_ > 1 ? static_cast<int>(ranks_) : 0,
                                          .program_bytes = program,
                                          .measured = &measured});
        checks::check_run(checks, config);
        plan(one, checks);
        for (const checks::CheckList::Check& check : checks.list.checks())
          if (check.finding.status == checks::Finding::Status::kFail)
            throw ConfigError(check.finding.message);
      } catch (const ConfigError& e) {
        throw ConfigError(str("sweep: ", one.name, ": ", e.what(), "; no run was started"));
      } catch (const DataError& e) {
        throw DataError(str("sweep: ", one.name, ": ", e.what(), "; no run was started"));
      }
    }
  }

  // Adapter, gradients, moments and the copy that a checkpoint is written from are the run's own.
  static void plan(Combination& one, const checks::RunChecks& checks) {
    if (!checks.plan) return;
    one.peak_bytes = checks.plan->peak_bytes();
    const checks::ModelBytes bytes =
        checks::model_bytes(checks.shape.policy, checks.config.optimizer, checks.ranks);
    one.own_bytes = 2 * (bytes.trained + bytes.optimizer) + 2 * bytes.gradients;
  }

  void say_begin(const Combination& one) const {
    std::cout << "sweep: " << printable(one.name) << " (" << &one - runs_.data() + 1 << " of "
              << runs_.size() << ")" << std::endl;
  }

  // Runs that share a base together, as many at once as memory holds; the others one after the
  // other. False: the sweep was asked to stop.
  bool train_all(const std::vector<Part>& parts) {
    std::vector<Part> left = parts;
    while (!left.empty()) {
      const std::vector<Part> together = take_together(left);
      if (together.size() > 1 ? !train_jointly(together)
                              : !train(*together[0].run, together[0].what))
        return false;
    }
    return true;
  }

  // The first one, and those that share its base and fit into memory with it.
  static std::vector<Part> take_together(std::vector<Part>& left) {
    const Combination& first = *left[0].run;
    const int64_t usable = usable_memory_bytes();
    int64_t peak = 0, own = 0;
    std::vector<Part> together;
    std::erase_if(left, [&](const Part& part) {
      const Combination& one = *part.run;
      const int64_t most = std::max(peak, one.peak_bytes), all = own + one.own_bytes;
      const bool fits = together.empty() ||
                        (!first.base.empty() && one.base == first.base && most + all <= usable);
      if (!fits) return false;
      peak = most;
      own = all;
      together.push_back(part);
      return true;
    });
    return together;
  }

  bool train_jointly(const std::vector<Part>& parts) {
    std::vector<JointSweepRun> joint;
    int64_t most_tokens = 0, peak = 0, own = 0;
    for (const Part& part : parts) {
      say_begin(*part.run);
      joint.push_back({part.run->name, arguments_of(*part.run), part.what});
      most_tokens = std::max(most_tokens, part.run->pass_tokens);
      peak = std::max(peak, part.run->peak_bytes);
      own += part.run->own_bytes;
    }
    std::cout << "sweep: " << parts.size() << " runs share a base, planned memory "
              << checks::megabytes(static_cast<double>(peak + own)) << std::endl;
    status_ = run_jointly(*verb_, joint, most_tokens, [this] { write_report(); });
    for (size_t i = 0; i < parts.size(); ++i) parts[i].run->failed = joint[i].failed;
    return status_ == 0;
  }

  // False: the sweep was asked to stop.
  bool train(Combination& one, const std::optional<Repetition>& what) {
    say_begin(one);
    Repetition::tell(what);
    status_ = launch_ranks(static_cast<int>(ranks_), {}, verb_->name, arguments_of(one));
    Repetition::tell({});
    one.failed = status_ != 0;
    if (status_ > kFirstSignalStatus) return false;
    write_report();
    return true;
  }

  void write_report() const {
    std::vector<ComparedRun> shown;
    std::vector<MetricInfo> infos;
    Report::Table table{"Runs", {"run", "settings", "steps", "loss", "end"}, {}};
    for (const Combination& one : runs_) {
      if (!is_run(directory_of(one))) continue;
      const RunFiles files(directory_of(one));
      if (files.rows.empty()) continue;
      if (infos.empty()) infos = files.report.metrics;
      std::string settings, loss;
      for (const std::string& setting : one.settings)
        settings += (settings.empty() ? "" : " ") + setting;
      for (const MetricsRow& row : files.rows)
        if (const MetricsRow::Value* value = row.find("loss")) loss = temper::to_text(*value);
      const char* end = one.failed                               ? "failed"
                        : one.is_worst                           ? "among the worst"
                        : fs::exists(files.directory + "/final") ? "done"
                                                                 : "";
      table.rows.push_back(
          {one.name, settings, std::to_string(files.rows.back().step()), loss, end});
      shown.push_back({one.name, files.rows});
    }
    if (!shown.empty())
      write_file_atomic(output_ + "/report.html",
                        render_comparison("sweep of " + output_, shown, infos, {table}));
  }

  int tell_end() const {
    write_report();
    int failed = 0;
    for (const Combination& one : runs_) {
      if (!one.failed) continue;
      ++failed;
      std::cerr << "temper: sweep: " << printable(one.name) << " failed; its error is above"
                << std::endl;
    }
    std::cout << output_ << "/report.html" << std::endl;
    return failed > 0 ? 1 : 0;
  }

  Arguments words_, configs_;
  std::vector<std::string> over_;
  std::string seeds_, output_;
  WorstRule worst_;
  int64_t ranks_ = 1;
  const TrainingVerb* verb_ = nullptr;
  std::vector<Combination> runs_;
  int status_ = 0;
};

}  // namespace

std::unique_ptr<Command> sweep_command() { return std::make_unique<Sweep>(); }

}  // namespace temper::cli
