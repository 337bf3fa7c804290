#include "temper/check/memory/disk.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "temper/data/read/compress.h"
#include "temper/models/files/save.h"
#include "temper/rl/rollout/prompts.h"
#include "temper/rl/rollout/rollout_files.h"
#include "temper/rl/rollout/rollout_lines.h"

namespace temper::checks {
namespace {

constexpr int64_t kStateBytes = 4000;  // state.json and headers
// Bytes per step of metrics.jsonl (supervised, RL), and of report.html: fixed and per step.
constexpr int64_t kRowBytes = 750, kRlRowBytes = 1400, kReportBytes = 60000, kReportRowBytes = 700;

constexpr int64_t kPromptsRead = 32;

// The bytes that saving a role writes: all of a model's weights, or the adapter's.
int64_t saved_bytes(const ModelRole& role, const ModelBytes& bytes) {
  if (role.adapters == 0) return kFloat * role.shape.parameters();
  return bytes.trained / std::max<int64_t>(1, role.trained_copies);
}

// Prompts spread evenly over the first source.
std::vector<std::vector<int32_t>> some_prompts(const rl::RlConfig& config,
                                               const train::Policy& policy,
                                               const data::RowOrder& order) {
  const data::RowSet& rows = order.rows_of(0);
  const auto read = rl::prompt_rows(config, policy).train;
  std::vector<std::vector<int32_t>> prompts;
  for (int64_t i = 0; i < std::min(kPromptsRead, rows.size()); ++i) {
    const int64_t r = i * rows.size() / std::min(kPromptsRead, rows.size());
    if (auto row = data::read_one(read, rows, r)) prompts.push_back(std::move(row->tokens));
  }
  return prompts;
}

// A made-up completion of full length: tokens of prompts, from `place` on, and log-probabilities
// with as many digits as those of samples.
// `kept`: tokens that truncation leaves of each distribution; 0: it is not recorded.
rl::CompletionTokens made_up(const std::vector<int32_t>& words, size_t place, int64_t length,
                             int64_t kept, std::mt19937_64& random) {
  rl::CompletionTokens completion;
  for (int64_t t = 0; t < length; ++t) {
    completion.tokens.push_back(words[(place + static_cast<size_t>(t)) % words.size()]);
    const auto drawn = static_cast<float>((random() >> 40) + 1) * 0x1p-24F;
    completion.logprobs.push_back(std::log(drawn) * 3);
    if (kept > 0) completion.kept.emplace_back(static_cast<size_t>(kept), completion.tokens.back());
  }
  completion.sampled.assign(completion.tokens.size(), true);
  completion.old_logp = completion.ref_logp = completion.value = completion.logprobs;
  return completion;
}

}  // namespace

int64_t DiskPlan::left_bytes() const {
  int64_t sum = 0;
  for (const auto& [name, bytes] : left) sum = saturated_sum(sum, bytes);
  return sum;
}

DiskPlan plan_disk(const RunShape& run, const train::RunConfig& config, int64_t steps) {
  const Ranks one;
  const train::TrainSection& t = config.train;
  const int64_t files = models::tokenizer_file_bytes(config.model.path);
  DiskPlan plan;
  int64_t trained = 0;  // directories of trained models
  const auto add = [&](const ModelRole& role) {
    const ModelBytes bytes = model_bytes(role, run.optimizer, one);
    plan.checkpoint += bytes.trained + bytes.optimizer;
    trained += saved_bytes(role, bytes) + files;
  };
  plan.checkpoint = kStateBytes + run.disk.batch_state + run.disk.reference;
  add(run.policy);
  for (const ModelRole& other : run.others)
    if (other.trains) add(other);
  trained += run.disk.merged;
  const int64_t final = trained * (t.keep_best.metric ? 2 : 1);
  const int64_t saves = t.save_every > 0 ? quotient_up(steps, t.save_every) : 1;
  const int64_t kept = std::min(saves, t.keep_checkpoints);
  // A run's last checkpoint is made between rollout batches.
  const int64_t last = plan.checkpoint - run.disk.batch_state;
  const bool samples = run.disk.rollouts > 0;
  const int64_t metrics = saturated_sum(
      kReportBytes,
      saturated_product(steps, (samples ? kRlRowBytes : kRowBytes) + kReportRowBytes));
  const int64_t checkpoints = saturated_sum(saturated_product(kept - 1, plan.checkpoint), last);
  plan.left = {{"checkpoints", t.keep_final_checkpoint ? checkpoints : kStateBytes},
               {"final", final},
               {"rollouts", run.disk.rollouts},
               {"metrics", metrics}};
  // One checkpoint more while it is written; final/ is written after the last checkpoint.
  plan.peak = saturated_sum(checkpoints, std::max(saves > kept ? plan.checkpoint : 0, final));
  for (const int64_t more : {run.disk.rollouts, run.disk.rollout_file, metrics})
    plan.peak = saturated_sum(plan.peak, more);
  return plan;
}

DiskShape rollout_disk(const rl::RlConfig& config, const train::Policy& policy,
                       const data::RowOrder& order, int64_t updates) {
  const std::vector<std::vector<int32_t>> prompts = some_prompts(config, policy, order);
  std::vector<int32_t> words;
  for (const std::vector<int32_t>& prompt : prompts)
    words.insert(words.end(), prompt.begin(), prompt.end());
  if (words.empty()) return {};
  std::mt19937_64 random(1);
  // How many tokens top_p or min_p leave is not known before; few, where the policy is sure.
  constexpr int64_t kUsuallyKept = 20;
  const int64_t usual =
      config.rollout.sampling.top_k > 0 ? config.rollout.sampling.top_k : kUsuallyKept;
  const int64_t left = config.rollout.options(config.seed).record_kept ? usual : 0;
  std::string lines;
  int64_t state_bytes = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    rl::EpisodeGroup group{.id = 1000 + static_cast<int64_t>(i)};
    rl::Episode episode{.sample = 1, .reward = 1, .stopped = false};
    for (const rewards::RewardSection& reward : config.rewards)
      episode.rewards.emplace_back(reward.label(), 1);
    const rl::CompletionTokens completion =
        made_up(words, random() % words.size(), config.rollout.max_new_tokens, left, random);
    if (policy.tokenizer) episode.text = policy.tokenizer->decode(completion.tokens, true);
    rl::add_episode(group, prompts[i], std::move(episode), completion, 100);
    group.set_advantage(group.episodes[0], -0.7071067690849304);
    lines += rl::to_line(group, group.episodes[0]) + "\n";
    state_bytes += std::ssize(rl::to_line(group, group.episodes[0], true)) + 1;
  }
  const int64_t completions = config.rl.prompts_per_rollout * config.rl.group_size;
  const auto of_batch = [&](int64_t bytes) { return bytes * completions / std::ssize(prompts); };
  DiskShape disk;
  disk.rollout_file =
      of_batch(std::ssize(config.rl.compress_rollouts ? data::compress_zstd(lines) : lines));
  const int64_t updates_of_batch = config.rl.updates_per_batch();
  const int64_t batches = quotient_up(updates, updates_of_batch);
  const auto kept = rl::RolloutRetention::parse(config.rl.save_rollouts);
  const int64_t files = kept ? kept->files_of(batches) : batches;
  disk.rollouts = saturated_product(files, disk.rollout_file);
  if (files == 0) disk.rollout_file = 0;
  if (updates_of_batch > 1) disk.batch_state = of_batch(state_bytes);
  return disk;
}

}  // namespace temper::checks
