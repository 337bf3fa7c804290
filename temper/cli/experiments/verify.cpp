// temper verify: repeats steps of a run, and compares with its manifest.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/random.h"
#include "temper/base/sha256.h"
#include "temper/cli/experiments/recorded_run.h"
#include "temper/cli/experiments/repetition.h"
#include "temper/cli/experiments/rollout_names.h"
#include "temper/cli/launch.h"
#include "temper/cli/parts/shared_config.h"
#include "temper/cli/training.h"
#include "temper/cli/verbs.h"
#include "temper/process/scratch.h"
#include "temper/text/unicode.h"
#include "temper/train/manifest/changed_images.h"

namespace temper::cli {
namespace {
namespace fs = std::filesystem;

// Steps (from, to] of a run, from a checkpoint's directory, or "" for its beginning.
struct Part {
  std::string start;
  int64_t from = 0, to = 0;
};

// Of `steps`, so many by lot, ascending.
std::vector<int64_t> draw(std::vector<int64_t> steps, int64_t count, uint64_t seed) {
  const RandomStream stream(seed, RandomPurpose::kVerification);
  for (int64_t i = 0; i < count; ++i)
    std::swap(steps[static_cast<size_t>(i)],
              steps[static_cast<size_t>(i) +
                    stream.below(static_cast<uint64_t>(i), steps.size() - static_cast<size_t>(i))]);
  steps.resize(static_cast<size_t>(count));
  std::sort(steps.begin(), steps.end());
  return steps;
}

// A run goes on from one of the steps to the next, unless a checkpoint between them is nearer.
std::vector<Part> parts_of(const std::vector<int64_t>& steps,
                           const std::map<int64_t, std::string>& starts) {
  std::vector<Part> parts;
  for (const int64_t step : steps) {
    const auto start = std::prev(starts.lower_bound(step));
    if (parts.empty() || start->first > parts.back().to)
      parts.push_back({start->second, start->first, step});
    else
      parts.back().to = step;
  }
  return parts;
}

class Verify : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Checks a run: the chain of its manifest.jsonl, its rows, base and other inputs, and what "
        "it "
        "left. Then repeats steps that are drawn by lot, each from the checkpoint before, and "
        "compares losses, gradient norms, rollouts, weights and final/.\n"
        "Exit status 0 when all is as recorded, 1 with manifest.jsonl:LINE, the step and what "
        "differs. Inputs that were moved are named by their keys.\n"
        "examples:\n"
        "  temper verify runs/a\n"
        "  temper verify runs/a --steps 20\n"
        "  temper verify moved/a --fraction 0.05 data.train=elsewhere/rows.jsonl");
    f.add("RUN", words_, "directory of a run, and key=value ... of moved inputs", required());
    f.add("--steps", steps_, "number of steps to repeat; default: all", at_least(1));
    f.add("--fraction", fraction_, "share of the steps to repeat", between(0, 1));
    f.add("--seed", seed_, "of the lot; default: another one each time");
    f.add("--nproc", ranks_,
          "ranks that repeat; default: as many as the run had. On another number losses and norms "
          "are compared within rounding, and weights not at all",
          at_least(1));
    f.excludes("--steps", {"--fraction"});
  }

  int run() override {
    try {
      run_.emplace(words_[0]);
    } catch (const train::BrokenManifest& e) {
      std::cerr << "temper: " << printable(e.what()) << std::endl;
      return 1;
    }
    settings_ = {words_.begin() + 1, words_.end()};
    std::visit([&](auto type) { find_config<typename decltype(type)::type>(); },
               run_->verb().config);
    if (found_ == 0) look_at_files();
    if (found_ == 0 && asks_servers_)
      std::cout << "no step is repeated: servers sampled the completions (rollout.server), which "
                   "need not answer the same again"
                << std::endl;
    else if (found_ == 0)
      repeat();
    if (found_ > 0 || stopped_ > 0) return found_ > 0 ? 1 : stopped_;
    std::cout << words_[0] << ": as recorded; " << repeated_ << " of " << run_->steps().size()
              << " steps were repeated" << lot_ << std::endl;
    return 0;
  }

 private:
  void differs(const train::ManifestLine& line, const std::string& what) {
    ++found_;
    std::cerr << "temper: " << printable(run_->where(line)) << ": "
              << (line.is_step() ? str("step ", line.step(), ": ") : "") << printable(what)
              << std::endl;
  }

  // Whether settings and inputs are those of the run.
  template <class Config>
  void find_config() {
    const train::ManifestLine& inputs = run_->inputs();
    Config config;
    read_verb_config(config, {run_->directory + "/config.yaml"}, run_->verb().name);
    if (train::settings_digest(config) != inputs.value.value("config", Json()))
      return differs(inputs, run_->directory +
                                 "/config.yaml: its settings are not those that the "
                                 "manifest has");
    Config moved;
    Arguments arguments{run_->directory + "/config.yaml"};
    arguments.insert(arguments.end(), settings_.begin(), settings_.end());
    read_verb_config(moved, arguments, run_->verb().name);
    for (const std::string& file : train::changed_files(moved, inputs.value)) differs(inputs, file);
    for (const auto& [line, what] : train::changed_images(run_->steps(), config.data, moved.data))
      differs(*line, what);
    output_ = config.output_dir;
    evaluates_ = moved.train.early_stopping.metric || moved.train.keep_best.metric;
    serving_ = moved.roles.serving();
    if constexpr (requires { moved.rollout.server.used(); })
      asks_servers_ = moved.rollout.server.used();
  }

  // What the run left, as it is now.
  void look_at_files() {
    for (const auto& [line, what] : run_->changed_outputs()) differs(*line, what);
    if (const Json program = train::program_of();
        program != run_->inputs().value.value("program", Json()))
      std::cout << "the run was made by another build of Temper, "
                << dump_json(run_->inputs().value.value("program", Json())) << std::endl;
  }

  void repeat() {
    const std::map<int64_t, std::string> starts = run_->starts();
    std::vector<int64_t> steps;
    for (const train::ManifestLine* line : run_->steps())
      if (!starts.empty() && line->step() > starts.begin()->first) steps.push_back(line->step());
    const auto out = std::ssize(run_->steps()) - std::ssize(steps);
    if (out > 0)
      std::cout << "steps up to " << run_->steps()[static_cast<size_t>(out) - 1]->step()
                << " are not repeated: they were made with other settings or inputs, or no "
                   "checkpoint before them is left"
                << std::endl;
    int64_t count = std::ssize(steps);
    if (steps_) count = std::min(count, *steps_);
    if (fraction_)
      count = std::min(count, static_cast<int64_t>(std::ceil(*fraction_ * double(count))));
    const uint64_t seed = seed_ ? static_cast<uint64_t>(*seed_) : std::random_device()();
    if (count < std::ssize(steps)) lot_ = str(" (--seed ", seed, ")");
    for (const Part& part : parts_of(draw(steps, count, seed), starts)) {
      repeat(part);
      if (found_ > 0 || stopped_ > 0) return;
    }
    repeated_ = count;
  }

  void repeat(const Part& part) {
    const process::ScratchDirectory scratch;
    const std::string output = scratch.path() + "/run";
    Repetition what{.saves = {}, .is_silent = true};
    const train::ManifestLine* const last = run_->steps().back();
    for (const train::ManifestLine* line : run_->steps())
      if (line->step() > part.from && line->step() <= part.to && line->value.contains("weights"))
        what.saves.insert(line->step());
    // The run ends by itself where it did, unless it was ended.
    const bool ends = part.to == last->step() && last->value.contains("final");
    what.finishes = ends && last->value.value(train::kEndedEarly, Json()) == true;
    what.end = ends && !what.finishes ? part.to + 1 : part.to;
    if (ends) what.saves.erase(part.to);
    const int64_t ranks = ranks_.value_or(run_->ranks());
    Repetition::tell(what);
    check_nproc(static_cast<int>(ranks));
    const int status =
        launch_ranks(static_cast<int>(ranks),
                     ranks == run_->ranks() ? serving_ : std::vector<int>(), run_->verb().name,
                     repeated_arguments(*run_, settings_, part.start, output, ranks, evaluates_));
    Repetition::tell({});
    if (status > 128) {
      stopped_ = status;
      return;
    }
    if (status != 0) {
      differs(run_->line_of(part.from + 1),
              str("cannot be repeated from ", part.start.empty() ? "the beginning" : part.start,
                  ", as was said"));
      return;
    }
    compare(part, output, ranks == run_->ranks());
  }

  ReadImages read_images() const {
    ReadImages read;
    for (const train::ManifestLine* line : run_->steps())
      for (const auto& [path, digest] : train::images_of_line(*line)) read[path].insert(digest);
    return read;
  }

  // The digest of the repeated step's rollout becomes the recorded one where the files differ only
  // in the paths of the same images.
  void name_images_alike(const train::ManifestLine& line, Json& again,
                         const std::string& output) const {
    const Json recorded = line.value.value("rollout", Json());
    if (!recorded.is_string() || again.value("rollout", Json()) == recorded) return;
    for (const char* ending : {".jsonl", ".jsonl.zst"}) {
      const std::string name = str("/rollouts/step-", line.step(), ending);
      if (!fs::exists(output + name)) continue;
      const bool is_kept = fs::exists(run_->directory + name);
      if (is_recorded_rollout(output + name, recorded.get<std::string>(),
                              {run_->directory + "/rollouts", output_ + "/rollouts"},
                              is_kept ? run_->directory + name : "", read_images()))
        again["rollout"] = recorded;
    }
  }

  // Reports the first step that differs: those after it follow from it.
  void compare(const Part& part, const std::string& output, bool exactly) {
    std::map<int64_t, Json> again;
    for (const train::ManifestLine& line : train::read_manifest(output + "/manifest.jsonl"))
      if (line.is_step()) again[line.step()] = line.value;
    for (int64_t step = part.from + 1; step <= part.to; ++step) {
      const train::ManifestLine& line = run_->line_of(step);
      if (!again.contains(step)) return differs(line, "the repeated run ended before it");
      if (exactly) name_images_alike(line, again[step], output);
      std::string what;
      for (const std::string& one : differences(line.value, again[step], exactly))
        what += (what.empty() ? "" : "; ") + one;
      if (!what.empty()) return differs(line, what);
    }
    if (again.size() > static_cast<size_t>(part.to - part.from))
      differs(run_->line_of(part.to), "the repeated run has more steps");
  }

  Arguments words_, settings_;
  std::optional<int64_t> steps_, seed_, ranks_;
  std::optional<double> fraction_;
  std::optional<RecordedRun> run_;
  std::vector<int> serving_;
  bool evaluates_ = false, asks_servers_ = false;
  int64_t found_ = 0, repeated_ = 0;
  int stopped_ = 0;
  std::string lot_, output_;  // output_: output_dir of the run's config
};

}  // namespace

std::unique_ptr<Command> verify_command() { return std::make_unique<Verify>(); }

}  // namespace temper::cli
