// Hooks: observers of a run, called by the trainer at fixed places, on every rank.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/metrics/row.h"
#include "temper/train/config.h"

namespace temper::train {

class RunDirectory;
struct Roles;

class Hook {
 public:
  virtual ~Hook() = default;
  // Before the first step of this process, after restore().
  virtual void on_begin(RunDirectory& /*directory*/) {}
  virtual void before_step(int64_t /*step*/) {}
  virtual void after_step(const MetricsRow& /*row*/) {}
  // Adds metrics of its own that begin with "eval/" to an evaluation; `stop` as Task::evaluate()
  // has it. All ranks call it, and all give the same.
  enum class Evaluated { kNothing, kYes, kCutShort };
  virtual Evaluated evaluate(MetricsRow& /*row*/, const std::function<bool()>& /*stop*/) {
    return Evaluated::kNothing;
  }
  virtual void on_evaluation(const MetricsRow& /*row*/, RunDirectory& /*directory*/,
                             Roles& /*roles*/) {}
  // Before a checkpoint or the final weights are written: an error keeps them from being written.
  virtual void before_save(int64_t /*step*/) {}
  // A checkpoint of that step is whole; the run may be some steps further.
  virtual void on_save(int64_t /*step*/, const std::string& /*output_dir*/) {}
  // Asked after each step and evaluation: true ends the run as if its plan had ended here.
  virtual bool wants_end() const { return false; }
  // The name of the state that a checkpoint keeps for the hook; "" keeps nothing.
  virtual std::string name() const { return {}; }
  virtual Json state() const { return {}; }
  virtual void restore(const Json& /*state*/) {}
};

// Whether larger values of a metric are better: `goal`, or by its name where that is auto (losses,
// perplexities and times are better small).
bool larger_is_better(Goal goal, const std::string& metric);

// Ends the run when a metric of the evaluation has not improved for some evaluations.
std::unique_ptr<Hook> early_stopping(const EarlyStoppingSection& section);
// Keeps the weights of the best evaluation in OUTPUT_DIR/best, and leaves them in final/.
std::unique_ptr<Hook> keep_best(const KeepBestSection& section);

// Records the spans of time (metrics/trace.h) of those steps of this process in
// OUTPUT_DIR/trace.json; other ranks in trace.rankN.json.
std::unique_ptr<Hook> profile(const ProfileSteps& steps);

// The hooks that the config asks for.
std::vector<std::unique_ptr<Hook>> configured_hooks(const TrainSection& section);

}  // namespace temper::train
