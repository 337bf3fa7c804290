#include "temper/rl/observer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/rl/group.h"
#include "temper/text/unicode.h"

namespace temper::rl {
namespace {

constexpr double kBlownUpKl = 10;  // nats a token
constexpr size_t kSamplesInReport = 50;
constexpr double kBetweenSamples = 20;  // seconds, on the console
constexpr size_t kReportBytes = 600;
constexpr size_t kSampleBytes = 160;    // of a prompt's end and of a completion's beginning
constexpr double kMostTruncated = 0.5;  // share of completions

}  // namespace

BatchStatistics describe(const RolloutBatch& batch) {
  BatchStatistics s;
  const double count = static_cast<double>(batch.rollouts.size());
  for (const Rollout& r : batch.rollouts) {
    s.reward_mean += r.reward / count;
    s.length_mean += static_cast<double>(r.length()) / count;
    s.truncated += (r.stopped ? 0 : 1) / count;
    for (const auto& [name, value] : r.rewards) s.reward_means[name] += value / count;
  }
  double squares = 0;
  for (const Rollout& r : batch.rollouts)
    squares += (r.reward - s.reward_mean) * (r.reward - s.reward_mean);
  s.reward_std = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
  const std::vector<size_t> bounds = batch.bounds();
  for (size_t g = 0; g + 1 < bounds.size(); ++g) {
    s.zero_std_groups +=
        without_signal(std::span(batch.rollouts).subspan(bounds[g], bounds[g + 1] - bounds[g]));
    ++s.groups;
  }
  return s;
}

void Observer::warn_once(const char* what, const std::string& message) {
  if (warned_.insert(what).second) run_.warn(message);
}

void Observer::point_out(const BatchStatistics& about, double kl) {
  constant_batches_ = about.zero_std_groups == about.groups ? constant_batches_ + 1 : 0;
  if (constant_batches_ == 3)
    warn_once(
        "constant",
        temper::str("in three batches in a row every group's rewards were all equal (mean ",
                    about.reward_mean,
                    "): there is nothing to learn from; look at the rollouts and the rewards"));
  if (about.truncated > kMostTruncated)
    warn_once("truncated", temper::str(std::lround(100 * about.truncated),
                                       " % of the completions were cut at rollout.max_new_tokens ",
                                       run_.config.rollout.max_new_tokens,
                                       ": answers that come later are never rewarded"));
  if (kl > kBlownUpKl)
    warn_once("kl", temper::str("the KL to the reference is ", kl,
                                " a token: the policy has left it; a lower optimizer.learning_rate "
                                "or a larger rl.beta may help"));
}

std::string Observer::prompt_end(const Rollout& rollout, size_t most) const {
  if (!run_.policy.tokenizer) return {};
  const std::string prompt = run_.policy.tokenizer->decode(rollout.prompt_tokens, true);
  return repair_utf8(prompt.substr(prompt.size() - std::min(prompt.size(), most)));
}

void Observer::show(const Rollout& rollout) {
  if (batches_++ % show_every_ == 0) {
    if (shown_.size() == kSamplesInReport) {
      for (size_t i = 1; 2 * i < shown_.size(); ++i) shown_[i] = std::move(shown_[2 * i]);
      shown_.resize(shown_.size() / 2);
      show_every_ *= 2;
    }
    shown_.push_back(rollout);
  }
  const double now = train::wall_seconds();
  if (!run_.policy.tokenizer || now - console_sample_at_ < kBetweenSamples) return;
  console_sample_at_ = now;
  // As JSON, which is one line and holds no control characters.
  run_.note(temper::str("sample, reward ", rollout.reward, ": ",
                        dump_json(prompt_end(rollout, kSampleBytes)), " -> ",
                        dump_json(rollout.text.substr(0, kSampleBytes))));
}

std::vector<Report::Table> Observer::samples() const {
  Report::Table table{"Samples", {"group", "prompt", "completion", "reward", "tokens"}, {}};
  for (const Rollout& r : shown_)
    table.rows.push_back({std::to_string(r.group), prompt_end(r, kReportBytes),
                          repair_utf8(r.text.substr(0, kReportBytes)), temper::str(r.reward),
                          std::to_string(r.length())});
  if (table.rows.empty()) return {};
  return {table};
}

}  // namespace temper::rl
