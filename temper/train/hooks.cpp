#include "temper/train/hooks.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/metrics/format.h"
#include "temper/metrics/trace.h"
#include "temper/train/roles/roles.h"
#include "temper/train/run/best_weights.h"
#include "temper/train/run/run_directory.h"

namespace temper::train {

bool larger_is_better(Goal goal, const std::string& metric) {
  if (goal != Goal::kAuto) return goal == Goal::kMaximize;
  for (const char* small : {"loss", "perplexity", "nll", "kl", "seconds", "error"})
    if (metric.find(small) != std::string::npos) return false;
  return true;
}

namespace {

// A field of a checkpoint's state, whatever that holds; null where there is none.
Json field(const Json& state, const char* name) {
  return state.is_object() ? state.value(name, Json()) : Json();
}

// The best value of one metric so far.
class Best {
 public:
  Best(std::string metric, Goal goal, double min_delta)
      : metric_(std::move(metric)), larger_(larger_is_better(goal, metric_)), delta_(min_delta) {}

  // Whether the row improves on it; none: the row lacks the metric.
  std::optional<bool> see(const MetricsRow& row, RunDirectory& directory) {
    const std::optional<double> value = row.number(metric_);
    if (!value) {
      directory.warn_once("metric " + metric_, str("the evaluation has no metric ", metric_,
                                                   ": train.early_stopping and train.keep_best "
                                                   "have nothing to go by"));
      return {};
    }
    if (!std::isfinite(*value)) return false;
    const double gain = best_ ? (larger_ ? *value - *best_ : *best_ - *value) : 0;
    if (best_ && !(gain > delta_)) return false;
    best_ = *value;
    return true;
  }

  bool seen() const { return best_.has_value(); }
  void forget() { best_.reset(); }
  // "eval/loss 0.4245"
  std::string text() const { return best_ ? metric_ + " " + format_value(*best_, "") : ""; }
  Json state() const {
    return {{"best", best_ ? Json(*best_) : Json()}, {"metric", metric_}, {"goal", goal()}};
  }
  // False: the state is of another metric or goal, and says nothing about this one. An earlier
  // version's names neither.
  bool restore(const Json& state) {
    const Json value = field(state, "best"), metric = field(state, "metric");
    const Json goal_then = field(state, "goal");
    const bool same = !metric.is_string() || (metric == metric_ && goal_then == goal());
    best_ = same && value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
    other_.clear();
    if (!same && value.is_number())
      other_ = str(dump_json(metric), ", goal ", dump_json(goal_then));
    return same;
  }
  // Once the run has begun; `key`: of the metric.
  void warn_of_other(RunDirectory& directory, const char* key) const {
    if (!other_.empty())
      directory.warn(str(key, ": found ", dump_json(metric_), ", goal ", dump_json(goal()),
                         ", and the checkpoint has the best of ", other_,
                         ": evaluations before it do not count"));
  }

 private:
  const char* goal() const {
    return enum_names<Goal>[static_cast<size_t>(larger_ ? Goal::kMaximize : Goal::kMinimize)];
  }

  std::string metric_;
  bool larger_;
  double delta_;
  std::optional<double> best_;
  std::string other_;  // by what the state that was restored goes, if by another metric or goal
};

class EarlyStopping : public Hook {
 public:
  explicit EarlyStopping(const EarlyStoppingSection& section)
      : best_(*section.metric, section.goal, section.min_delta), patience_(section.patience) {}
  void on_evaluation(const MetricsRow& row, RunDirectory& directory, Roles&) override {
    const std::optional<bool> improved = best_.see(row, directory);
    if (!improved) return;
    stalled_ = *improved ? 0 : stalled_ + 1;
    if (wants_end())
      directory.note(str("early stopping: no improvement in ", stalled_, " evaluations"));
  }
  void on_begin(RunDirectory& directory) override {
    best_.warn_of_other(directory, "train.early_stopping.metric");
  }
  bool wants_end() const override { return stalled_ >= patience_; }
  std::string name() const override { return "early_stopping"; }
  Json state() const override {
    Json state = best_.state();
    state["stalled"] = stalled_;
    return state;
  }
  void restore(const Json& state) override {
    const Json stalled = field(state, "stalled");
    stalled_ = best_.restore(state) && stalled.is_number_integer() ? stalled.get<int64_t>() : 0;
  }

 private:
  Best best_;
  int64_t patience_, stalled_ = 0;
};

class KeepBest : public Hook {
 public:
  explicit KeepBest(const KeepBestSection& section) : best_(*section.metric, section.goal, 0) {}
  void on_evaluation(const MetricsRow& row, RunDirectory& directory, Roles& roles) override {
    if (!best_.see(row, directory).value_or(false)) return;
    step_ = row.step();
    if (!roles.trainables[0]->save) return;
    // The others first: `best` says that all are there.
    const bool takes_part = directory.is_writer() || is_shared_out(roles.trainables);
    for (size_t i = roles.trainables.size(); i-- > 0 && takes_part;)
      if (const Trainable& trainable = *roles.trainables[i]; trainable.save)
        directory.write(i == 0 ? "best" : "best-" + trainable.name, [&](const std::string& to) {
          trainable.save(to);
          if (i == 0 && !to.empty())
            write_file_atomic(to + "/" + kBestRecord, dump_json(state()) + "\n");
        });
    choose(directory);
  }
  void on_begin(RunDirectory& directory) override {
    best_.warn_of_other(directory, "train.keep_best.metric");
    if (best_.seen() && !directory.take_best()) {
      directory.warn(str("the weights of the best evaluation before this step, ", best_.text(),
                         ", are gone (best/): the best of the evaluations from here on counts"));
      best_.forget();
      step_ = -1;
    }
    choose(directory);
  }
  std::string name() const override { return "keep_best"; }
  Json state() const override {
    Json state = best_.state();
    state["step"] = step_;
    return state;
  }
  void restore(const Json& state) override {
    const Json step = field(state, "step");
    step_ = best_.restore(state) && step.is_number_integer() ? step.get<int64_t>() : -1;
  }

 private:
  // Another run may have left its best weights here: they count once this one has seen its own.
  void choose(RunDirectory& directory) const {
    const bool kept = best_.seen() && std::filesystem::exists(directory.path() + "/best");
    directory.final_from = kept ? "best" : "";
    directory.final_step = kept ? step_ : -1;
    directory.final_reason = kept ? best_.text() : "";
  }

  Best best_;
  int64_t step_ = -1;  // of the best; -1: an older version's checkpoint does not say
};

class Profile : public Hook {
 public:
  explicit Profile(const ProfileSteps& steps) : steps_(steps) {}
  ~Profile() override {
    try {
      write();
    } catch (const std::exception&) {
      // The run has ended, and reports its end without the trace.
    }
  }
  void on_begin(RunDirectory& directory) override {
    rank_ = directory.rank();
    wanted_ = directory.path() + (rank_ == 0 ? "/trace.json" : str("/trace.rank", rank_, ".json"));
    if (!steps_.first) begin();
  }
  void before_step(int64_t step) override {
    if (!steps_.first) steps_.first = step;
    end_ = *steps_.first + steps_.steps;
    if (file_.empty() && step >= *steps_.first && step < end_) begin();
  }
  void after_step(const MetricsRow& row) override {
    if (row.step() + 1 >= end_) write();
  }

 private:
  void write() {
    if (!file_.empty()) trace::write(std::exchange(file_, {}), rank_);
  }
  void begin() {
    if (wanted_.empty()) return;
    file_ = std::exchange(wanted_, {});
    trace::start();
  }
  ProfileSteps steps_;
  int64_t end_ = 0;  // the step behind the last one
  int rank_ = 0;
  std::string wanted_, file_;  // of the trace, before it begins and then; empty: written
};

}  // namespace

std::unique_ptr<Hook> early_stopping(const EarlyStoppingSection& section) {
  return std::make_unique<EarlyStopping>(section);
}
std::unique_ptr<Hook> keep_best(const KeepBestSection& section) {
  return std::make_unique<KeepBest>(section);
}

std::unique_ptr<Hook> profile(const ProfileSteps& steps) {
  return std::make_unique<Profile>(steps);
}

std::vector<std::unique_ptr<Hook>> configured_hooks(const TrainSection& section) {
  std::vector<std::unique_ptr<Hook>> hooks;
  if (section.early_stopping.metric) hooks.push_back(early_stopping(section.early_stopping));
  if (section.keep_best.metric) hooks.push_back(keep_best(section.keep_best));
  if (section.profile.steps > 0) hooks.push_back(profile(section.profile));
  return hooks;
}

}  // namespace temper::train
