// temper fork: a run that goes on from another one's checkpoint, with other settings.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/sha256.h"
#include "temper/cli/parts/run_files.h"
#include "temper/cli/training.h"
#include "temper/cli/verbs.h"
#include "temper/train/manifest/manifest.h"
#include "temper/train/run/best_weights.h"
#include "temper/train/run/checkpoint/checkpoint.h"

namespace temper::cli {
namespace {
namespace fs = std::filesystem;

constexpr const char *kConfigCopy = "/fork/config.yaml", *kOrigin = "/fork/origin.json";
constexpr size_t kMostDigits = 15;

// RUN@STEP: the step is behind the last @, where there is no such directory.
std::pair<std::string, std::optional<int64_t>> split_place(const std::string& word) {
  const size_t at = word.rfind('@');
  const std::string digits = at == word.npos ? "" : word.substr(at + 1);
  if (at == word.npos || fs::exists(word)) return {word, {}};
  check<ConfigError>(!digits.empty() && digits.size() <= kMostDigits &&
                         digits.find_first_not_of("0123456789") == digits.npos,
                     "fork: found ", word, ", expected RUN or RUN@STEP with the number of a step");
  return {word.substr(0, at), std::stoll(digits)};
}

int64_t step_of(const std::string& checkpoint) {
  return train::Checkpoints::record(checkpoint).step;
}

class Fork : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Starts a run that goes on from a checkpoint of another one, with other settings, the same "
        "rows and the same random numbers. Without a setting it ends as the other one does, bit "
        "for bit. The other run is not touched; the same command resumes.\n"
        "examples:\n"
        "  temper fork runs/a@200 --output runs/b optimizer.learning_rate=1e-5\n"
        "  temper fork runs/a --output runs/longer train.max_steps=500\n"
        "  temper report runs/a runs/b");
    f.add("RUN", words_, "RUN[@STEP] key=value ...: default: the newest checkpoint", required());
    f.add("--output", output_, "directory of the new run", required());
    f.add("--nproc", ranks_, "ranks of the new run", at_least(1));
  }

  int run() override {
    const auto [run, step] = split_place(words_[0]);
    check<ConfigError>(is_run(run), run, ": expected the directory of a run (config.yaml)");
    const Arguments settings(words_.begin() + 1, words_.end());
    for (const std::string& setting : settings)
      for (const char* key : {"output_dir=", "resume=", "verb="})
        check<ConfigError>(!setting.starts_with(key), "fork: found ", setting,
                           "; the new run's directory is that of --output");
    const RunFiles files(run);
    const YamlNode* const verb = find_key(files.config, "verb");
    const TrainingVerb* const training = verb ? find_training_verb(verb->text) : nullptr;
    check<ConfigError>(training != nullptr, run, "/config.yaml: names no training verb");
    const bool is_new = prepare(run, step);
    Arguments arguments{output_ + kConfigCopy};
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    arguments.insert(arguments.end(), {"output_dir=" + output_, "resume=auto"});
    if (ranks_ > 1) arguments.insert(arguments.end(), {"--nproc", std::to_string(ranks_)});
    try {
      return run_training(*training, arguments);
    } catch (...) {
      if (is_new) undo();
      throw;
    }
  }

 private:
  // Copies what the run begins with, or finds it there from an earlier start (false).
  bool prepare(const std::string& run, std::optional<int64_t> step) const {
    const std::string found = checkpoint_before(run, step);
    const int64_t from = found.empty() ? 0 : step_of(found);
    const Json origin{{"run", fs::absolute(run).lexically_normal().string()},
                      {"step", from},
                      {"asked", step ? Json(*step) : Json()}};
    if (fs::exists(output_ + kOrigin)) {
      check_same(origin, step);
      return false;
    }
    check<ConfigError>(!fs::exists(output_) || fs::is_empty(output_), "--output: found ", output_,
                       ", which is not empty, and holds no fork; expected a directory of its own");
    if (step && from != *step)
      std::cout << run << " has no checkpoint of step " << *step << ": the fork goes on from step "
                << from << std::endl;
    fs::create_directories(output_ + "/fork");
    if (!found.empty()) {
      train::Checkpoints(output_, 1).begin_at(found, line_of(run, from));
      if (train::has_best_of(run, found)) train::copy_best(run, output_);
    }
    fs::copy_file(run + "/config.yaml", output_ + kConfigCopy,
                  fs::copy_options::overwrite_existing);
    write_file_atomic(output_ + kOrigin, dump_json(origin) + "\n");  // last: all else is there
    return true;
  }

  // A fork that made no step leaves nothing, so that the next try may have other settings.
  void undo() const {
    std::error_code none;
    if (fs::exists(output_ + "/checkpoints", none) || fs::exists(output_ + "/final", none)) return;
    fs::remove_all(output_, none);
    std::cerr << "temper: the fork made no step and is removed; its settings must be such that the "
                 "checkpoint's state still fits"
              << std::endl;
  }

  // The newest whole checkpoint of at most that step; "": the fork begins where the run did.
  static std::string checkpoint_before(const std::string& run, std::optional<int64_t> step) {
    std::string damaged;
    for (const std::string& checkpoint : train::Checkpoints(run, 1).all()) {
      try {
        if (step && step_of(checkpoint) > *step) continue;
        if (train::Checkpoints::is_record_alone(checkpoint)) continue;
        train::Checkpoints::check_files(checkpoint);
        return checkpoint;
      } catch (const DataError& e) {
        std::cerr << "temper: passed over a checkpoint: " << e.what() << std::endl;
      }
    }
    check<ConfigError>(step.has_value(), run, ": it has no checkpoint to go on from; ", run,
                       "@0 begins where it began");
    return "";
  }

  void check_same(const Json& origin, std::optional<int64_t> step) const {
    const Json kept = read_json_file(output_ + kOrigin);
    const Json of = kept.value("step", Json());
    const bool same = kept.value("run", Json()) == origin["run"] &&
                      (kept.value("asked", Json()) == origin["asked"] || (step && of == *step));
    check<ConfigError>(same, "--output: ", output_, " holds a fork of ",
                       dump_json(kept.value("run", Json())), " at step ", dump_json(of),
                       "; choose another directory");
  }

  static std::string line_of(const std::string& run, int64_t step) {
    try {
      for (const train::ManifestLine& line : train::read_manifest(run + "/manifest.jsonl"))
        if (line.is_step() && line.step() == step) return sha256_hex(line.text);
    } catch (const train::BrokenManifest& e) {
      std::cerr << "temper: " << e.what() << std::endl;
    }
    return "";
  }

  Arguments words_;
  std::string output_;
  int64_t ranks_ = 1;
};

}  // namespace

std::unique_ptr<Command> fork_command() { return std::make_unique<Fork>(); }

}  // namespace temper::cli
