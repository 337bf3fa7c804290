// The section `train` of a run's config: its length, batches, evaluation and checkpoints.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/rewards/config.h"

namespace temper::train {

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

}  // namespace temper::train

namespace temper {

template <>
inline constexpr std::array enum_names<train::TrainSection::Recompute> = {"none", "blocks"};
template <>
inline constexpr std::array enum_names<train::TrainSection::Offload> = {"none", "activations",
                                                                        "optimizer", "all"};
template <>
inline constexpr std::array enum_names<train::Goal> = {"auto", "minimize", "maximize"};

}  // namespace temper

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
