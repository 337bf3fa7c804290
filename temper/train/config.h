// The config of a training run: what every training verb has in common. A verb's own config derives
// from RunConfig and adds its sections (rl/config.h).
//
// A config that a program fills in C++ is as sound as one that was read from YAML: `complete` and
// `validate` run before a trainer is built, whichever way it came.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/base/error.h"
#include "temper/data/config.h"
#include "temper/data/loader.h"
#include "temper/data/rows/row_survey.h"
#include "temper/dist/config.h"
#include "temper/dist/roles.h"
#include "temper/metrics/config.h"
#include "temper/models/config.h"
#include "temper/models/device.h"
#include "temper/ops/layers/attention.h"
#include "temper/rewards/config.h"

namespace temper::generate {
struct RolloutSection;
}

namespace temper::train {

// Config keys that one optimizer alone has: the section `optimizer.NAME`.
class OptimizerKeys {
 public:
  virtual ~OptimizerKeys() = default;
  virtual void fields(Fields& f) = 0;
  virtual std::unique_ptr<OptimizerKeys> clone() const = 0;
};

// A section's keys of every optimizer that has its own, with their defaults at first. Copies are
// deep.
class OwnOptimizerKeys {
 public:
  OwnOptimizerKeys();
  OwnOptimizerKeys(const OwnOptimizerKeys& other);
  OwnOptimizerKeys& operator=(const OwnOptimizerKeys& other);

  void fields(Fields& f);
  template <class Keys>
  const Keys& of(const std::string& name) const {
    return dynamic_cast<const Keys&>(*by_name_.at(name));
  }

 private:
  std::map<std::string, std::unique_ptr<OptimizerKeys>> by_name_;
};

enum class Goal { kAuto, kMinimize, kMaximize };

struct EarlyStoppingSection {
  std::optional<std::string> metric;  // of the evaluation ("eval/loss"); none: off
  int64_t patience = 3;               // evaluations without an improvement
  double min_delta = 0;               // the smallest change that is an improvement
  Goal goal = Goal::kAuto;
  void fields(Fields& f);
};

struct KeepBestSection {
  std::optional<std::string> metric;  // none: final/ has the last weights
  Goal goal = Goal::kAuto;
  void fields(Fields& f);
};

// Which steps are profiled: a number of steps, or {first, steps}.
struct ProfileSteps {
  std::optional<int64_t> first;  // numbered from 1; none: the first one of this process
  int64_t steps = 0;             // 0: none
};

// max_steps, epochs or neither (one epoch); both are an error.
struct TrainSection {
  enum class Recompute { kNone, kBlocks };
  enum class Offload { kNone, kActivations, kOptimizer, kAll };
  std::optional<int64_t> max_steps;
  std::optional<double> epochs;
  int64_t batch_size = 8;
  int64_t micro_batch_tokens = 2048;
  Recompute recompute = Recompute::kNone;
  Offload offload = Offload::kNone;
  std::optional<std::string> offload_dir;  // none: output_dir
  bool offloads_inputs() const {
    return offload == Offload::kActivations || offload == Offload::kAll;
  }
  bool offloads_optimizer() const {
    return offload == Offload::kOptimizer || offload == Offload::kAll;
  }
  int64_t eval_every = 0;
  bool eval_at_start = false;
  int64_t eval_samples = 0;
  int64_t eval_sample_tokens = 128;
  std::vector<rewards::RewardSection> eval_rewards;
  int64_t eval_completions = 1;
  int64_t save_every = 0;
  double save_minutes = 15;
  std::optional<bool> save_in_background;
  int64_t keep_checkpoints = 3;
  bool keep_final_checkpoint = true;
  EarlyStoppingSection early_stopping;
  KeepBestSection keep_best;
  std::vector<std::string> freeze;  // patterns of parameter names
  double neftune_alpha = 0;
  double z_loss = 0;
  std::optional<double> router_aux_loss;
  ProfileSteps profile;
  std::optional<std::string> memory_limit;
  std::optional<int64_t> max_inflight;
  void fields(Fields& f);
};

// Parameters whose names match a pattern, with values of their own.
struct ParameterGroup {
  std::string match;
  std::optional<double> learning_rate, weight_decay;
  void fields(Fields& f);
};

// Keys that several optimizers read are members; those of one alone are in `own`. What an optimizer
// is, and which keys it reads with which defaults, is said in its own file (update_rule.h).
struct OptimizerSection {
  enum class Schedule { kCosine, kLinear, kConstant, kPolynomial, kInverseSqrt, kWsd };
  enum class DecayShape { kCosine, kLinear, kSqrt };
  std::string name = "adamw";
  double learning_rate = 2e-5;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double momentum = 0;
  double weight_decay = 0;
  double max_grad_norm = 1;
  Schedule schedule = Schedule::kCosine;
  int64_t warmup_steps = 0;
  double warmup_ratio = 0;
  double final_lr_fraction = 0;
  double power = 1;
  std::optional<int64_t> decay_steps;
  DecayShape decay_shape = DecayShape::kCosine;
  OwnOptimizerKeys own;
  std::vector<ParameterGroup> groups;
  void fields(Fields& f);
};

struct MissingKey {
  std::string key, expected;
};

struct RunConfig {
  virtual ~RunConfig() = default;

  std::string output_dir;
  int64_t seed = 0;
  std::string resume = "auto";
  std::optional<std::string> verb;
  models::ModelSection model;
  models::AdapterSection adapter;
  data::DataSection data;
  TrainSection train;
  OptimizerSection optimizer;
  MetricsSection metrics;
  dist::MeshSection mesh;
  dist::RolesSection roles;
  // In a resolved config: keys that nobody wrote and another key chose (rl.algorithm,
  // optimizer.name), with their values. Read back, they are as if they were not there, so that they
  // follow another choice.
  std::map<std::string, std::string> defaulted;
  virtual void fields(Fields& f);

  // Called between reading the tree and reading the fields: what a key that is written (an
  // algorithm's name) does to the fields and defaults of others.
  virtual void prepare();
  // complete(), no key missing(), validate(), once: what reading a config ends with, and a run
  // begins with.
  void resolve(std::string_view verb_name);

  // Whether the user wrote this key ("rl.beta") or left it to its default.
  bool was_set(std::string_view key) const { return find_key(written, key) != nullptr; }
  // How an error about this key begins: "run.yaml:3: rl.beta", or the key alone where it is a
  // default.
  std::string where(std::string_view key) const;
  // Whether an adapter trains, a new one or that of adapter.path, instead of all weights.
  bool has_adapter() const {
    return adapter.path || adapter.method != models::AdapterSection::Method::kNone;
  }
  // What the section `model` says, for models::use_device.
  models::DeviceChoice device_choice() const;
  // Throws ConfigError that begins with where(key) unless `cond`.
  template <class... Parts>
  void require(bool cond, std::string_view key, const Parts&... parts) const {
    if (!cond) fail(key, str(parts...));
  }
  // Whether training passes drop activations of adapters; a verb that must compute what its sampler
  // computed does not.
  virtual bool has_dropout() const { return true; }
  // The metrics of the verb's evaluations, without eval/ and the set's name; one that ends in *
  // stands for all that begin so.
  virtual std::vector<std::string> evaluated_metrics() const;
  // How completions are sampled, in training or to evaluate; null: the verb samples nothing.
  virtual const generate::RolloutSection* sampling() const { return nullptr; }
  // What the policy and its reference round keys and values to, as its sampler does.
  virtual ops::CacheDtype cache_dtype() const { return ops::CacheDtype::kFloat32; }
  // The ranks that train, of `ranks` ranks. Throws ConfigError where `roles` and `mesh` do not fit
  // that number.
  std::vector<int> training_ranks(int64_t ranks) const;
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;

  YamlNode written;                   // what the user wrote, files and overrides merged
  std::vector<std::string> warnings;  // printed when the run begins

 protected:
  // The metrics, and those of `grouped` by group where data.balance makes groups.
  std::vector<std::string> with_groups(std::vector<std::string> metrics,
                                       const std::vector<std::string>& grouped) const;
  // Sets what follows from other keys where the user left it open.
  virtual void complete();
  // Keys without a default that this verb needs and nobody wrote.
  virtual std::vector<MissingKey> missing() const;
  // For a verb that samples for train.eval_rewards alone: warns of a section `rollout` in vain.
  void warn_of_idle_rollout();
  // Everything that can be checked without a file. Throws ConfigError.
  virtual void validate() const;
  // Why ranks of their own for a role would be in vain; empty: the verb has such ranks.
  virtual std::string no_rollout_role() const;
  virtual std::string no_reference_role() const;
  virtual std::string no_reward_role() const { return "this verb has no rewards"; }

 private:
  void warn_of_adapter();
  void complete_numbers();
  void complete_optimizer();
  void complete_eval_rewards();
  void validate_roles() const;
  bool resolved_ = false;
};

// What the data section says to a loader of `batch_size` rows a step, and a loader's place in a
// checkpoint.
data::LoaderOptions loader_options(const RunConfig& config, int64_t batch_size);
data::LoaderState loader_state(const Json& values, const std::string& where);

// The rows of a verb, declared once for its run and for `temper check`: how those that it trains on
// and those that it is evaluated on are read, and how the former are drawn.
template <class Row>
struct VerbRows {
  typename data::Loader<Row>::Read train, evaluation;
  data::LoaderOptions options;
  data::Pieces pieces = {};  // what rows of a source become; empty: each is one

  std::vector<data::SourceSpec> training_sources(const RunConfig& config) const {
    return in_pieces(data::training_sources(config.data, static_cast<uint64_t>(config.seed)));
  }
  std::vector<data::SourceSpec> evaluation_sources(const RunConfig& config) const {
    return in_pieces(data::evaluation_sources(config.data, static_cast<uint64_t>(config.seed)));
  }

 private:
  std::vector<data::SourceSpec> in_pieces(std::vector<data::SourceSpec> sources) const {
    for (data::SourceSpec& source : sources) source.pieces = pieces;
    return sources;
  }
};

// Reads the rows before they are dealt, so that a wrong one ends the run before it costs time, and
// counts those that will be left out; of large data the first part. Throws DataError.
template <class Row>
data::RowSurvey survey_rows(const data::RowOrder& order, typename data::Loader<Row>::Read read) {
  constexpr int64_t kBytes = int64_t{16} << 20;  // seconds, at worst
  data::RowSurveyor surveyor(order, data::RowSurveyor::counting<Row>(std::move(read)),
                             {.max_bytes = kBytes});
  return surveyor.result();
}

// Most tokens of a forward pass; 0: a row a pass, where packing is off.
int64_t pass_tokens(const RunConfig& config);

// Reads files and overrides in order, later ones win, into `config`, completes and checks it.
// Sections and keys that only other verbs have (`elsewhere`: "ppo", "rollout.server") are passed
// over with a warning, so that verbs may share a file. Throws ConfigError.
void read_run_config(RunConfig& config, std::span<const std::string> arguments,
                     std::string_view verb, std::span<const std::string> elsewhere = {});

// The resolved config: YAML that reads back to the same values.
std::string dump_run_config(RunConfig& config, bool with_help = false);

// Every key with type, default and help.
std::string describe_run_config(RunConfig& config);

}  // namespace temper::train

namespace temper::config_detail {

template <>
struct Traits<train::ProfileSteps> {
  static std::string type(const Rule&) { return "integer >= 0, or {first, steps}"; }
  static void read(const YamlNode& node, const std::string& path, const Rule&,
                   train::ProfileSteps& value);
  static YamlNode write(train::ProfileSteps& value);
  static std::vector<Field> children() { return {}; }
};

}  // namespace temper::config_detail
