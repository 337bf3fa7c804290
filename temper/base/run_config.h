// The config of a training run: every key that a user can write, with its default. The fields'
// help, ranges and choices stand in run_config.cpp; what several keys must agree on in
// run_config_checks.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/config.h"

namespace temper {

struct ModelSection {
  enum class Dtype { kFloat32, kBfloat16 };
  enum class Device { kAuto, kCpu, kCuda };
  std::string path;  // empty: not given
  Dtype dtype = Dtype::kFloat32;
  Device device = Device::kAuto;
  void fields(Fields& f);
};

struct AdapterSection {
  enum class Method { kNone, kLora, kQlora };
  Method method = Method::kNone;
  int64_t rank = 16;
  double alpha = 32;
  double dropout = 0;
  std::vector<std::string> target_modules = {"all-linear"};
  bool use_rslora = false;
  std::optional<std::string> path;
  void fields(Fields& f);
};

// One file of rows and how often it is drawn from.
struct DataSource {
  std::string path;
  double weight = 1;
  std::string name;  // empty: the path
  void fields(Fields& f);
};

struct DataSection {
  enum class Overlong { kTruncate, kDrop, kError };
  enum class TrainOn { kAuto, kAll, kCompletion, kAssistant };
  std::vector<DataSource> train;               // empty: not given
  std::vector<DataSource> eval;                // empty: none
  std::map<std::string, std::string> columns;  // what a row's field is called here -> in the file
  int64_t max_length = 1024;
  Overlong overlong = Overlong::kTruncate;
  bool shuffle = true;
  bool packing = true;
  TrainOn train_on = TrainOn::kAuto;
  void fields(Fields& f);
};

// max_steps, epochs or neither (one epoch); both are an error.
struct TrainSection {
  enum class Recompute { kNone, kBlocks };
  std::optional<int64_t> max_steps;
  std::optional<double> epochs;
  int64_t batch_size = 8;
  int64_t micro_batch_tokens = 2048;
  Recompute recompute = Recompute::kNone;
  int64_t eval_every = 0;
  int64_t save_every = 0;
  int64_t keep_checkpoints = 3;
  void fields(Fields& f);
};

struct OptimizerSection {
  enum class Schedule { kCosine, kLinear, kConstant };
  std::string name = "adamw";
  double learning_rate = 2e-5;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double momentum = 0;
  double weight_decay = 0;
  double max_grad_norm = 1;
  Schedule schedule = Schedule::kCosine;
  int64_t warmup_steps = 0;
  double final_lr_fraction = 0;
  void fields(Fields& f);
};

struct RlSection {
  enum class KlEstimator { kK1, kK2, kK3 };
  enum class Importance { kToken, kSequence };
  enum class Aggregation { kTokenMean, kSeqMeanTokenSum, kSeqMeanTokenMean, kSeqMeanTokenSumNorm };
  enum class OnMismatch { kStop, kCorrect };
  std::string algorithm = "grpo";
  int64_t group_size = 8;
  int64_t prompts_per_rollout = 8;
  int64_t minibatches = 1;
  int64_t iterations = 1;
  double beta = 0.04;
  KlEstimator kl_estimator = KlEstimator::kK3;
  double epsilon_low = 0.2;
  double epsilon_high = 0.2;
  Importance importance = Importance::kToken;
  Aggregation loss_aggregation = Aggregation::kSeqMeanTokenMean;
  bool scale_rewards = true;
  std::optional<std::string> replay;
  OnMismatch on_mismatch = OnMismatch::kStop;
  bool dynamic_sampling = false;
  int64_t max_refills = 10;
  int64_t overlong_buffer = 0;
  double entropy_bonus = 0;
  double dual_clip = 0;
  double importance_cap = 2;
  void fields(Fields& f);
};

struct RolloutSection {
  int64_t max_new_tokens = 256;
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::optional<int64_t> cache_bytes;
  void fields(Fields& f);
};

// A built-in reward by name, or a command.
struct RewardSection {
  enum class OnFailure { kZero, kDrop, kStop };
  std::string name;  // of a command: what its metrics are called; empty: the program's name
  double weight = 1;
  std::string field = "answer";        // of the row: what the completion is compared with
  std::optional<std::string> pattern;  // of regex
  std::vector<std::string> command;    // empty: a built-in
  double timeout_seconds = 10;
  double start_timeout_seconds = 30;
  int64_t workers = 2;
  std::optional<int64_t> memory_bytes;
  OnFailure on_failure = OnFailure::kZero;
  void fields(Fields& f);
  // What metrics call it: its name, or that of its program without the folders.
  std::string label() const;
};

struct PreferenceSection {
  enum class TrainOn { kCompletion, kAll };
  std::string loss = "sigmoid";
  double beta = 0.1;
  double lambda = 0.1;
  TrainOn train_on = TrainOn::kCompletion;
  void fields(Fields& f);
};

struct MetricsSection {
  std::vector<std::string> sinks = {"console", "jsonl"};
  void fields(Fields& f);
};

struct RunConfig {
  std::string output_dir;
  int64_t seed = 0;
  std::string resume = "auto";
  std::optional<std::string> verb;
  ModelSection model;
  AdapterSection adapter;
  DataSection data;
  TrainSection train;
  OptimizerSection optimizer;
  RlSection rl;
  RolloutSection rollout;
  std::vector<RewardSection> rewards;
  PreferenceSection preference;
  MetricsSection metrics;
  void fields(Fields& f);

  // Whether the user wrote this key ("rl.beta") or left it to its default.
  bool was_set(std::string_view key) const { return find_key(written, key) != nullptr; }
  // How an error about this key begins: "run.yaml:3: rl.beta", or the key alone where it is a
  // default.
  std::string where(std::string_view key) const;

  YamlNode written;  // what the user wrote, files and overrides merged
};

// Reads files and overrides in order, sets what rl.algorithm makes of the keys that are silent, and
// checks everything that needs no files. `verb` ("sft", "grpo", ...), or else the written one,
// decides what is required; without either nothing but output_dir is. Throws ConfigError.
RunConfig load_run_config(std::span<const std::string> arguments, std::string_view verb = {});

// The resolved config: YAML that load_run_config reads back to the same values.
std::string dump_run_config(RunConfig config, bool with_help = false);

// Every key with type, default and help.
std::string describe_run_config();

}  // namespace temper
