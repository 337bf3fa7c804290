// The questions that every training verb is asked before it starts. Nothing here begins the run,
// and nothing is written.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/check/check_list.h"
#include "temper/check/memory/memory.h"
#include "temper/check/row_sizes.h"
#include "temper/check/shown_row.h"
#include "temper/generate/config.h"
#include "temper/models/files/hf_config.h"
#include "temper/train/roles/roles.h"

namespace temper::checks {

struct CheckOptions {
  int64_t ranks = 0;  // of the run; 0: as the environment says, else as many as mesh asks for
  int64_t program_bytes = 0;  // what the program takes before it has a model
  int64_t show = 0;           // the row of data.train to show, from 1; 0: none
  bool longest_row = false;   // also finds the longest row that fits, which plans dozens of passes
  // If given: row sizes by key, "data.train" and "data.eval". Rows whose key is here are not read,
  // and the others' sizes are put here, for checks of further runs with the same rows.
  std::map<std::string, RowSizes>* measured = nullptr;
};

struct LearningRate {
  int64_t step;  // from 1
  double rate;
};

inline constexpr const char* kNoModel = "model.path names no model that can be read";

class RunChecks {
 public:
  RunChecks(train::RunConfig& config, const CheckOptions& options);

  // "config", "device", "model", where it is asked for "router_aux_loss", "weights", "tokenizer",
  // "chat_template", "adapter", for quantized weights "arithmetic", "mesh"; sets has_model.
  // `scalar`: a reward model's verb.
  void model(bool scalar = false);
  // "config", "device", "model", "adapter" alone, of a config.json that may have no weights beside
  // it.
  bool model_shape(bool scalar = false);
  // Makes a check that asks for the model, or says that there is none.
  void with_model(const std::string& name, const std::function<Finding()>& work);
  // A model that runs along, by its directory; gives its shape. Throws ConfigError, DataError.
  ModelShape other_model(const std::string& directory, bool scalar = false) const;
  // Such a model that does not train.
  ModelRole frozen_role(const std::string& role, const train::FrozenSource& source) const;
  // "reference", of a verb that has one.
  void reference(const std::function<train::FrozenSource()>& declared);

  // "data.train", "data.duplicates", where there are rows to evaluate on "data.eval" and
  // "data.overlap", "bos", "lengths" and, where rows are supervised, "labels". Sets `shown`
  // where options.show asks for a row; throws ConfigError where data.train has fewer. `declared`
  // is called where there is a model.
  struct Rows {
    std::unique_ptr<data::RowOrder> order;
    RowSizes sizes;
    int64_t longest_prompt = 0;  // of both files, tokens
  };
  template <class Row, class SizeOf>
  std::optional<Rows> rows(const std::function<train::VerbRows<Row>()>& declared,
                           const SizeOf& size_of, bool supervised);

  // "rollout", once shape.sampling says what is sampled, and by whom; completes it by the limit of
  // the key-value cache.
  void rollout(const generate::RolloutSection& section);

  // "output_dir", "learning_rate", "disk", "memory", where there are "offload" and "memory_limit",
  // and "longest_row" where options ask for it, once the run's shape is known.
  void finish(int64_t planned_steps);

  train::RunConfig& config;
  const CheckOptions options;
  CheckList list;
  train::Policy policy;  // its model has no values
  bool has_model = false;
  Ranks ranks;
  RunShape shape;
  std::optional<MemoryPlan> plan;
  std::optional<ShownRow> shown;
  std::vector<LearningRate> rates;  // of steps from the first to the last

 private:
  std::unique_ptr<models::ScalarModel> scalar_;  // of a reward model's verb; without values
  train::Trainables trainables_;                 // of that model
  int64_t tokenizer_bytes_ = 0;                  // of memory
  // The model as the run trains it.
  models::Model& trained();
  // The ranks, as they divide the models' layers.
  Ranks dividing() const;
  void device();
  bool read_config(bool scalar);
  void tokenizer();
  void adapter();
  void add_tower_to_shape();
  void arithmetic();
  void mesh();
  Finding describe(const char* key, const Rows& rows, int64_t steps) const;
  static Finding duplicates(const Rows& train);
  static Finding overlap(const Rows& train, const Rows& eval);
  // "data.prompts_as", "data.control_tokens" and "tools", where there is anything to say.
  void notices(const RowSizes& sizes);
  Finding beginnings(const Rows& train) const;
  Finding balanced(const Rows& train) const;
  Finding learning_rates(int64_t planned_steps);
  template <class Row>
  void show(const Rows& train, const typename data::Loader<Row>::Read& read);
  void lengths(const RowSizes& sizes, bool supervised);
  Finding output_dir(int64_t planned_steps);
  Finding disk(int64_t planned_steps) const;
  Finding memory() const;
  Finding memory_limit() const;
  Finding offload(int64_t planned_steps) const;
  Finding longest_row(int64_t program_bytes) const;
};

template <class Row, class SizeOf>
std::optional<RunChecks::Rows> RunChecks::rows(
    const std::function<train::VerbRows<Row>()>& declared, const SizeOf& size_of, bool supervised) {
  if (!has_model) {
    for (const char* name : {"data.train", "lengths", "labels"})
      if (supervised || name != std::string_view("labels")) list.skip(name, kNoModel);
    return {};
  }
  const train::VerbRows<Row> verb = declared();
  const auto measure = [&](const char* key, std::vector<data::SourceSpec> sources,
                           const data::LoaderOptions& how,
                           const typename data::Loader<Row>::Read& reader) {
    Rows found{std::make_unique<data::RowOrder>(std::move(sources), how), {}};
    if (options.measured && options.measured->contains(key)) {
      found.sizes = options.measured->at(key);
    } else {
      found.sizes = measure_rows<Row>(*found.order, reader, size_of);
      if (options.measured) options.measured->emplace(key, found.sizes);
    }
    return found;
  };
  std::optional<Rows> train;
  list.run("data.train", [&] {
    train = measure("data.train", verb.training_sources(config), verb.options, verb.train);
    const int64_t steps = config.train.max_steps.value_or(
        train->order->steps(config.train.epochs.value_or(1), train->sizes.counts));
    return describe("data.train", *train, steps);
  });
  if (train)
    list.run("data.duplicates", [&] { return duplicates(*train); });
  else
    list.skip("data.duplicates", "data.train cannot be read");
  std::vector<data::SourceSpec> held_out = verb.evaluation_sources(config);
  std::optional<Rows> eval;
  if (!held_out.empty()) {
    list.run("data.eval", [&] {
      eval = measure("data.eval", std::move(held_out), {}, verb.evaluation);
      return describe("data.eval", *eval, 0);
    });
    if (train && eval)
      list.run("data.overlap", [&] { return overlap(*train, *eval); });
    else
      list.skip("data.overlap", "data.train or data.eval cannot be read");
  }
  if (train) notices(train->sizes);
  if (const std::string share = train ? about_held_out(*train->order) : ""; !share.empty())
    list.add("data.validation_fraction", Finding::warn(share));
  if (train && config.data.balance.groups())
    list.run("data.balance", [&] { return balanced(*train); });
  if (train && options.show > 0) show<Row>(*train, verb.train);
  if (train)
    list.run("bos", [&] { return beginnings(*train); });
  else
    list.skip("bos", "data.train cannot be read");
  if (train) {
    train->longest_prompt =
        std::max(eval ? eval->sizes.longest_prompt() : 0, train->sizes.longest_prompt());
    lengths(train->sizes, supervised);
  } else {
    list.skip("lengths", "data.train cannot be read");
    if (supervised) list.skip("labels", "data.train cannot be read");
  }
  return train;
}

template <class Row>
void RunChecks::show(const Rows& train, const typename data::Loader<Row>::Read& read) {
  int64_t row = options.show - 1;
  for (size_t s = 0; s < train.order->sources().size(); ++s) {
    const data::RowSet& rows = train.order->rows_of(s);
    if (row >= rows.size()) {
      row -= rows.size();
      continue;
    }
    const std::optional<Row> found = data::read_one(read, rows, row);
    shown = {rows.where(row), found ? shown_paths(*found) : std::vector<ShownPath>()};
    return;
  }
  throw ConfigError(
      str("--show ", options.show, ": data.train has ", train.order->rows(), " rows"));
}

}  // namespace temper::checks
