// A run and its manifest, for who looks whether they agree.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "temper/cli/training.h"
#include "temper/train/manifest/manifest.h"
#include "temper/train/manifest/manifest_inputs.h"

namespace temper::cli {

class RecordedRun {
 public:
  // Throws ConfigError where there is no run with a manifest, and train::BrokenManifest.
  explicit RecordedRun(const std::string& directory);

  const TrainingVerb& verb() const { return *verb_; }
  // The line of inputs and settings that the config describes: the last one.
  const train::ManifestLine& inputs() const { return lines_[inputs_]; }
  const std::vector<const train::ManifestLine*>& steps() const { return steps_; }
  const train::ManifestLine& line_of(int64_t step) const;
  // "RUN/manifest.jsonl:5"
  std::string where(const train::ManifestLine& line) const;
  int64_t ranks() const;
  // From which steps the run can be repeated with its last settings: directories of checkpoints, ""
  // for its beginning.
  std::map<int64_t, std::string> starts() const;
  // What metrics.jsonl, rollouts/, checkpoints/ and final/ hold that the manifest does not say.
  std::vector<std::pair<const train::ManifestLine*, std::string>> changed_outputs() const;

  const std::string directory;

 private:
  using Changes = std::vector<std::pair<const train::ManifestLine*, std::string>>;
  void compare_metrics(Changes& to) const;
  void compare_rollouts(Changes& to) const;
  void compare_checkpoints(Changes& to) const;
  void compare_final(Changes& to) const;

  const TrainingVerb* verb_ = nullptr;
  std::vector<train::ManifestLine> lines_;
  std::vector<const train::ManifestLine*> steps_;
  size_t inputs_ = 0;
  bool keeps_rollouts_ = true;
};

// The arguments with which its verb repeats steps of the run in another directory, from a
// checkpoint
// ("": from the beginning). settings: of moved inputs. ranks: that repeat, which may be others than
// the run's. evaluates: evaluations are made too.
Arguments repeated_arguments(const RecordedRun& run, const Arguments& settings,
                             const std::string& start, const std::string& output, int64_t ranks,
                             bool evaluates);

// What differs between a step's line and that of its repetition: "loss: found .., expected ..". Not
// `exactly`: losses to 1e-6 of max(1, |loss|), norms to 1e-4, and nothing else.
std::vector<std::string> differences(const Json& recorded, const Json& again, bool exactly);

}  // namespace temper::cli
