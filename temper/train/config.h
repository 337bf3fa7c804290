// The config of a training run: what every training verb has in common. A verb's own config derives
// from RunConfig and adds its sections (rl/config.h).
//
// A config that a program fills in C++ is as sound as one that was read from YAML: `complete` and
// `validate` run before a trainer is built, whichever way it came.
#pragma once

#include <cstdint>
#include <map>
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
#include "temper/train/config/optimizer_section.h"
#include "temper/train/config/train_section.h"

namespace temper::generate {
struct RolloutSection;
}

namespace temper::train {

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
  // Throws ConfigError where no evaluation of the run has the metric ("eval/loss") that `key`
  // names.
  void check_evaluated(const char* key, const std::string& metric) const;
  // How completions are sampled, in training or to evaluate; null: the verb samples nothing.
  virtual const generate::RolloutSection* sampling() const { return nullptr; }
  // Whether the ranks of mesh.tensor divide the models' layers among them.
  virtual bool divides_layers() const { return true; }
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
