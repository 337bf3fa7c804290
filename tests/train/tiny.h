// What tests of training share: a model of random weights and rows of tokens that need no file, a
// task that trains on them, a directory of its own for each test, and ranks that are threads.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/files/load.h"
#include "temper/train/run/run_directory.h"
#include "temper/train/trainer.h"

namespace tiny {

using namespace temper;

constexpr int kVocabulary = 61;

inline std::unique_ptr<models::CausalLM> model(uint64_t seed = 3) {
  const char* config = R"({"model_type": "qwen3", "vocab_size": 61, "hidden_size": 32,
    "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": true, "eos_token_id": 2})";
  auto made = models::init_model(models::HfConfig::parse(parse_json(config, "tiny"), "tiny"), seed);
  made->each_parameter([](const std::string&, nn::Parameter& p) {
    p.own();
    p.set_trainable(true);
  });
  return made;
}

inline train::Policy policy(std::optional<models::LoraConfig> lora = {}, uint64_t seed = 3) {
  train::Policy made;
  made.model = model(seed);
  made.lora = lora;
  if (lora) models::add_lora(*made.model, *lora, seed);
  return made;
}

inline train::OptimizerSection constant_rate(double rate) {
  train::OptimizerSection section;
  section.learning_rate = rate;
  section.schedule = train::OptimizerSection::Schedule::kConstant;
  return section;
}

// A value of a golden as an argument KEY=VALUE has it.
inline std::string as_yaml(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

using Rows = std::vector<std::vector<int32_t>>;

// A pattern that can be learned, in rows of 4 to 14 tokens.
inline Rows rows(int64_t count, int64_t first = 0) {
  Rows out;
  for (int64_t i = first; i < first + count; ++i) {
    std::vector<int32_t>& row = out.emplace_back();
    for (int64_t k = 0; k < 4 + (5 * i) % 11; ++k)
      row.push_back(static_cast<int32_t>(3 + (7 * i + 3 * k) % (kVocabulary - 3)));
  }
  return out;
}

// Bytes of every parameter by name.
using Weights = std::map<std::string, std::vector<float>>;

inline Weights weights(nn::Module& module) {
  Weights out;
  module.each_parameter([&](const std::string& name, nn::Parameter& p) {
    const at::Tensor value = p.whole_value().detach().contiguous();
    out[name].assign(value.const_data_ptr<float>(), value.const_data_ptr<float>() + value.numel());
  });
  return out;
}

inline std::map<std::string, std::vector<float>> moments(train::Optimizer& optimizer) {
  std::map<std::string, std::vector<float>> out;
  for (const auto& [name, saved] : optimizer.save()) {
    const TensorView view = saved.make ? saved.make() : saved;
    out[name].resize(view.num_bytes / sizeof(float));
    std::memcpy(out[name].data(), view.data, view.num_bytes);
  }
  return out;
}

// ||a - b|| / ||b|| over everything.
inline double distance(const Weights& a, const Weights& b) {
  double difference = 0, norm = 0;
  for (const auto& [name, values] : b)
    for (size_t i = 0; i < values.size(); ++i) {
      const double d = static_cast<double>(a.at(name).at(i)) - values[i];
      difference += d * d;
      norm += static_cast<double>(values[i]) * values[i];
    }
  return std::sqrt(difference / norm);
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.sizes() == y.sizes() &&
         std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

// A row of metrics without what the clock and the machine say.
inline std::string numbers(const MetricsRow& row) {
  static const std::set<std::string> ignored{
      "step_seconds",        "tokens_per_second",   "peak_memory_bytes", "rollout_seconds",
      "rollout_latency_p50", "rollout_latency_p95", "reward_seconds",    "train_seconds"};
  MetricsRow kept;
  for (const auto& [name, value] : row.values())
    if (!ignored.contains(name)) kept.set(name, value);
  return kept.json();
}

inline std::vector<std::string> logged(const std::string& directory) {
  std::vector<std::string> out;
  for (const MetricsRow& row : read_metrics_file(directory + "/metrics.jsonl"))
    out.push_back(numbers(row));
  return out;
}

// A directory that goes with the test.
struct Folder {
  std::filesystem::path path;
  Folder() {
    static int count = 0;
    path = std::filesystem::temp_directory_path() /
           temper::str("temper-test-", ::getpid(), "-", ++count);
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
};

struct Silent : train::Messages {
  void warn_once(const std::string& what, const std::string&) override { warned.insert(what); }
  void note(const std::string&) override {}
  std::set<std::string> warned;
};

// Ranks that are threads of this process.
class ThreadRanks {
 public:
  explicit ThreadRanks(int size, bool in_step = false)
      : in_step_(in_step), given_(static_cast<size_t>(size)), barrier_(size) {}

  // Runs the work once a rank; throws what the first rank threw.
  void run(const std::function<void(dist::Group&)>& work) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> errors(given_.size());
    for (size_t r = 0; r < given_.size(); ++r)
      threads.emplace_back([&, r] {
        Rank rank(*this, static_cast<int>(r));
        try {
          work(rank);
        } catch (...) {
          errors[r] = std::current_exception();
          barrier_.arrive_and_drop();
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
  }

 private:
  class Rank : public dist::Group {
   public:
    Rank(ThreadRanks& ranks, int rank) : ranks_(ranks), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(ranks_.given_.size()); }
    bool in_step() const override { return ranks_.in_step_; }
    void all_reduce_sum(at::Tensor& tensor) override {
      const at::NoGradGuard no_grad;
      ranks_.given_[static_cast<size_t>(rank_)] = tensor;
      barrier();
      at::Tensor sum = ranks_.given_[0].clone();
      for (size_t r = 1; r < ranks_.given_.size(); ++r) sum += ranks_.given_[r];
      barrier();
      tensor.copy_(sum);
      barrier();
    }
    void barrier() override { ranks_.barrier_.arrive_and_wait(); }

   private:
    ThreadRanks& ranks_;
    int rank_;
  };

  bool in_step_;
  std::vector<at::Tensor> given_;
  std::barrier<> barrier_;
};

inline dist::Group& alone() {
  static const std::shared_ptr<dist::Group> group = dist::Group::from_environment();
  return *group;
}

// The mean negative log-likelihood of rows that follow a pattern, and what a test asks for besides.
class RowsTask : public train::Task {
 public:
  int64_t batch = 6, max_tokens = 64, steps = 6;
  double dropout = 0;
  bool recompute = false;
  bool two_terms = false;  // a second term with another denominator and weights
  std::set<int64_t> nan_at, fail_at_next, fail_at_loss;  // steps
  std::vector<double> evaluations;  // eval/score of each; empty: eval/loss of rows
  std::function<void(train::Loss&, const train::ForwardPass&)> extra;  // adds terms

  RowsTask(train::Roles& roles, dist::Group& group) : roles_(roles), group_(group) {}

  int64_t planned_steps() const override { return steps; }
  std::optional<train::StepPlan> next(int64_t step) override {
    step_ = step;
    check(!fail_at_next.contains(step), "no rows of step ", step);
    rows_ = rows(batch, (step - 1) * batch);
    train::StepPlan plan;
    std::vector<train::PackUnit> units;
    for (size_t r = 0; r < rows_.size(); ++r) {
      plan.tokens += static_cast<double>(rows_[r].size());
      units.push_back({{{-1, rows_[r], rows_[r], static_cast<int64_t>(r)}}});
    }
    plan.supervised_tokens = plan.tokens - static_cast<double>(rows_.size());
    supervised_ = plan.supervised_tokens;
    plan.passes = train::plan_passes(units, max_tokens, group_);
    return plan;
  }
  train::Loss loss(const train::ForwardPass& pass) override {
    check(!(fail_at_loss.contains(step_) && losses_++ > 0), "no loss of step ", step_);
    const at::Tensor logp_M =
        train::token_logp(*roles_.policy.model, pass,
                          {.recompute = recompute, .dropout = dropout > 0, .watched = true})
            .logp;
    train::Loss loss;
    loss.terms.push_back({.name = "nll",
                          .value = nan_at.contains(step_) ? -logp_M * std::nan("") : -logp_M,
                          .denominator = supervised_});
    if (two_terms) {
      at::Tensor weight_M = at::empty({pass.num_targets()}, at::kFloat);
      for (int64_t i = 0; i < pass.num_targets(); ++i)
        weight_M[i] = static_cast<float>(pass.target_M[static_cast<size_t>(i)] % 3);
      loss.terms.push_back({.name = "square",
                            .coefficient = 0.1,
                            .value = logp_M * logp_M,
                            .weight = weight_M,
                            .denominator = static_cast<double>(batch)});
    }
    double ids = 0;
    for (const int64_t id : pass.target_M) ids += static_cast<double>(id);
    loss.means.push_back({"mean_target", ids, static_cast<double>(pass.num_targets())});
    if (extra) extra(loss, pass);
    return loss;
  }
  void describe_step(MetricsRow& row) override {
    row.set("drawn", drawn_ += batch);
    losses_ = 0;
  }
  bool evaluate(MetricsRow& row, const std::function<bool()>& stop) override {
    if (!evaluations.empty() && stop()) return false;
    if (evaluated_ < evaluations.size()) row.set("eval/score", evaluations[evaluated_++]);
    return evaluated_ > 0;
  }
  train::TaskState state() const override {
    train::TaskState state;
    state.values = {{"drawn", drawn_}, {"evaluated", evaluated_}};
    return state;
  }
  void restore(const train::TaskState& state, const std::string&) override {
    drawn_ = state.values["drawn"];
    evaluated_ = state.values["evaluated"];
  }

 private:
  train::Roles& roles_;
  dist::Group& group_;
  Rows rows_;
  double supervised_ = 0;
  int64_t step_ = 0, drawn_ = 0, losses_ = 0;
  size_t evaluated_ = 0;
};

// A whole run in a directory, as a process of its own would make it: models, task and trainer are
// new.
struct Run {
  train::RunConfig config;
  std::ostringstream console;
  train::Roles roles;
  train::RunOutcome outcome;

  Run(const std::string& output_dir, const train::OptimizerSection& optimizer,
      std::optional<models::LoraConfig> lora = {})
      : roles(policy(lora), optimizer) {
    config.output_dir = output_dir;
    config.verb = "test";
    config.metrics.sinks = {"jsonl"};
    roles.trainables[0]->save = [this](const std::string& directory) {
      models::save_weights(*roles.policy.model, directory, at::kFloat);
    };
  }
  // Ends after `stop_after` steps, as a signal would end it; 0: not.
  const train::RunOutcome& go(train::Task& task, int64_t stop_after = 0,
                              std::vector<std::unique_ptr<train::Hook>> hooks = {}) {
    for (auto& hook : train::configured_hooks(config.train)) hooks.push_back(std::move(hook));
    train::Trainer* made = nullptr;
    train::RunDirectory directory(
        config,
        {console, false,
         [&] { return stop_after > 0 && made != nullptr && made->steps_made() >= stop_after; }},
        alone());
    train::Trainer trainer(config.train, static_cast<uint64_t>(config.seed), roles, alone(), task,
                           std::move(hooks));
    made = &trainer;
    return outcome = trainer.run(directory);
  }
  Weights weights() { return tiny::weights(*roles.policy.model); }
  Weights moments() { return tiny::moments(roles.trainables[0]->optimizer); }
};

}  // namespace tiny
