#include "temper/rl/observer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/image/thumbnail.h"
#include "temper/rl/quantile.h"
#include "temper/text/unicode.h"
#include "temper/train/group_means.h"

namespace temper::rl {
namespace {

constexpr double kBlownUpKl = 10;        // nats per token; a policy above it has left its reference
constexpr double kMostMismatchKl = 0.1;  // nats per token; a sampler of other weights is above it
constexpr size_t kSamplesInReport = 50;
constexpr double kBetweenSamples = 20;  // seconds between two samples on the console
constexpr size_t kReportBytes = 600;
// bytes of a prompt's end and of a completion's beginning that are shown
constexpr size_t kSampleBytes = 160;
constexpr double kNoDeviation = 1e-12;  // standard deviations up to this count as 0
constexpr double kMostTruncated = 0.5;  // share of truncated completions above which the run warns

}  // namespace

void BatchStatistics::add_to(MetricsRow& row, bool compares_groups) const {
  row.set("reward_mean", reward_mean);
  row.set("reward_std", reward_std);
  row.set("reward_min", reward_min);
  row.set("reward_max", reward_max);
  for (const auto& [name, mean] : reward_means) row.set("rewards/" + name, mean);
  for (const auto& [name, mean] : group_means) row.set(train::group_metric("reward", name), mean);
  row.set("completion_length_mean", length_mean);
  row.set("completion_length_p50", length_p50);
  row.set("completion_length_p95", length_p95);
  row.set("truncated_fraction", truncated);
  if (turns_mean > 0) row.set("turns_mean", turns_mean);
  if (compares_groups) row.set("zero_std_groups", zero_std_groups);
}

BatchStatistics describe(const std::vector<EpisodeGroup>& groups, const Algorithm& algorithm) {
  BatchStatistics s;
  double count = 0;
  std::vector<float> lengths;
  std::vector<double> rewards;
  for (const EpisodeGroup& group : groups) count += static_cast<double>(group.episodes.size());
  for (const EpisodeGroup& group : groups) {
    for (const Episode& e : group.episodes) {
      s.reward_mean += e.reward / count;
      s.reward_min = lengths.empty() ? e.reward : std::min(s.reward_min, e.reward);
      s.reward_max = lengths.empty() ? e.reward : std::max(s.reward_max, e.reward);
      lengths.push_back(static_cast<float>(group.sampled_tokens(e)));
      rewards.push_back(e.reward);
      s.length_mean += static_cast<double>(group.sampled_tokens(e)) / count;
      s.truncated += (e.stopped ? 0 : 1) / count;
      s.turns_mean += static_cast<double>(e.turns);
      for (const auto& [name, value] : e.rewards) s.reward_means[name] += value / count;
    }
    s.zero_std_groups += !algorithm.keep(group);
    ++s.groups;
  }
  s.rewards = histogram_of(rewards);
  s.lengths = histogram_of(std::vector<double>(lengths.begin(), lengths.end()));
  if (!lengths.empty()) {
    s.length_p50 = interpolated_quantile(lengths, 0.5);
    s.length_p95 = interpolated_quantile(lengths, 0.95);
  }
  if (count > 0) s.turns_mean /= count;    // at once: that of equal numbers is the same number
  std::map<std::string, double> in_group;  // episodes
  for (const EpisodeGroup& group : groups) {
    if (group.rows.empty()) continue;
    for (const Episode& e : group.episodes) s.group_means[group.rows] += e.reward;
    in_group[group.rows] += static_cast<double>(group.episodes.size());
  }
  for (auto& [name, mean] : s.group_means) mean /= in_group[name];
  double squares = 0;
  for (const EpisodeGroup& group : groups)
    for (const Episode& e : group.episodes)
      squares += (e.reward - s.reward_mean) * (e.reward - s.reward_mean);
  s.reward_std = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
  return s;
}

std::vector<MetricInfo> rl_metrics() {
  return {
      {"reward_mean", "", "reward", "mean reward of the batch's completions", "rises", true,
       "reward"},
      {"reward_std", "", "reward", "standard deviation of the rewards", "above 0"},
      {"reward_min", "", "rewards", "smallest reward"},
      {"reward_max", "", "rewards", "largest reward"},
      {"rewards/*", "", "rewards", "mean of one reward, unweighted"},
      {"prompt_coverage", "", "prompt coverage", "share of the prompts sampled so far"},
      {"prompts_passed_over", "", "prompts passed over",
       "prompts that rl.difficulty passed over while the batch was drawn"},
      train::group_metric_info("reward", "", "mean reward of a group of rows (data.balance)"),
      {"kl", "nats", "KL to the reference",
       "KL to the reference, mean over completion tokens; absent where rl.beta is 0",
       "below 0.1 is close; above 10 a warning is printed", true},
      {"entropy", "nats", "entropy", "mean entropy of the policy's next-token distribution",
       "falls slowly; near 0 the policy no longer explores", true},
      {"completion_length_mean", "tokens", "completion length", "sampled tokens per completion",
       "a jump often means that a reward is exploited", true, "length"},
      {"completion_length_p50", "tokens", "completion length", "median"},
      {"completion_length_p95", "tokens", "completion length", "95th percentile"},
      {"turns_mean", "", "turns", "turns of the policy in an episode"},
      {"reward_timeouts", "", "reward failures",
       "answers of reward programs that timed out, since the run began",
       "0; a run ends where all fail in three rollouts in a row"},
      {"reward_crashes", "", "reward failures", "reward programs that crashed", "0"},
      {"reward_malformed", "", "reward failures", "answers that are malformed", "0"},
      {"completions_dropped", "", "reward failures", "completions left out by on_failure: drop",
       "0"},
      {"environment_timeouts", "", "environment failures",
       "answers of environments and tools that timed out, since the run began", "as rewards"},
      {"environment_crashes", "", "environment failures", "programs that crashed", "0"},
      {"environment_malformed", "", "environment failures", "answers that are malformed", "0"},
      {"tool_calls_unread", "", "environment failures",
       "tool calls that could not be parsed, name an unknown tool or lack an argument",
       "falls to 0"},
      {"truncated_fraction", "", "truncated completions",
       "share of completions truncated at rollout.max_new_tokens",
       "below 0.1; above 0.5 a warning is printed"},
      {"clip_fraction", "", "clipping", "share of tokens whose importance ratio is clipped",
       "0 at a batch's first update; 0.01 to 0.2 later"},
      {"zero_std_groups", "", "groups without reward variance",
       "groups whose rewards are all equal, so that they teach nothing; not under ppo",
       "well below rl.prompts_per_rollout"},
      {"groups_sampled", "", "groups_sampled", "rl.dynamic_sampling: groups sampled"},
      {"refills", "", "refills", "rl.dynamic_sampling: rounds of refilling",
       "below rl.max_refills"},
      {"speculative_accepted", "", "speculative decoding",
       "share of drafted tokens that the sampler chose; absent where none was drafted",
       "above 0.5 saves time"},
      {"sampler_trainer_max_abs_diff", "nats", "sampler_trainer_max_abs_diff",
       "largest difference of the sampler's and the trainer's log-probabilities, in the first "
       "update of a batch that the current weights sampled",
       "0; rounding with model.backend: aten"},
      {"staleness_mean", "updates", "staleness",
       "mean updates between the behavior policy and the policy at the start of the batch",
       "at most rl.max_staleness"},
      {"staleness_max", "updates", "staleness",
       "updates between the oldest policy that sampled a token of the batch and the policy at its "
       "start",
       "likewise"},
      {"mismatch_kl", "nats", "sampler and trainer",
       "with servers or staleness: estimate of KL(sampler ‖ trainer) per token",
       "below 0.01; growing: lower staleness or the rate; above 0.1 a warning is printed"},
      {"mismatch_fraction", "", "importance weights out of bounds",
       "share of tokens whose importance weight is truncated or masked", "below 0.05"},
      {"rollout_wait_seconds", "s", "time", "rl.max_staleness: training waiting for rollouts",
       "near 0 if sampling keeps up"},
      {"rollout_seconds", "s", "time", "sampling completions"},
      {"rollout_latency_p50", "s", "latency",
       "from a rollout's start to a completion's end: median"},
      {"rollout_latency_p95", "s", "latency", "95th percentile"},
      {"reward_seconds", "s", "time", "computing rewards, in the background"},
      {"train_seconds", "s", "time", "forward and backward passes and the update"}};
}

void Observer::warn_of(const BatchStatistics& about, double kl, double mismatch,
                       bool compares_groups) {
  const bool constant = compares_groups
                            ? about.zero_std_groups == about.groups
                            : about.reward_std <= kNoDeviation * std::abs(about.reward_mean);
  constant_batches_ = constant ? constant_batches_ + 1 : 0;
  if (constant_batches_ == 3)
    messages_.warn_once("constant",
                        str("no learning signal: in three consecutive batches all of ",
                            compares_groups ? "each group's" : "the", " rewards were equal (mean ",
                            about.reward_mean, "); look at the rollouts and the rewards"));
  if (about.truncated > kMostTruncated)
    messages_.warn_once("truncated",
                        str(std::lround(100 * about.truncated),
                            " % of the completions were truncated at rollout.max_new_tokens ",
                            max_new_tokens_, ": answers that come later are never rewarded"));
  if (mismatch > kMostMismatchKl)
    messages_.warn_once("mismatch",
                        str("the sampler is far from the policy: mismatch_kl is ", mismatch,
                            " nats per token, expected at most ", kMostMismatchKl,
                            ": it samples with other weights or sampling options (look at the "
                            "servers of rollout.server), or the policy moves too fast for "
                            "rl.max_staleness (lower that or optimizer.learning_rate)"));
  if (kl > kBlownUpKl)
    messages_.warn_once("kl",
                        str("the KL to the reference is unusually high, ", kl,
                            " nats per token; a lower optimizer.learning_rate or a larger rl.beta "
                            "may help"));
}

std::string Observer::prompt_end(const std::vector<int32_t>& prompt, size_t most) const {
  if (!tokenizer_) return {};
  const std::string text = tokenizer_->decode(prompt, true);
  return repair_utf8(text.substr(text.size() - std::min(text.size(), most)));
}

// Small ones of the first images, as data: URIs.
std::string Observer::pictures_of(const EpisodeGroup& group, const Episode& episode) const {
  constexpr int64_t kSide = 96, kMostPictures = 4;
  std::string uris;
  int64_t count = 0;
  for (const ImageSpan& span : group.images(episode)) {
    if (span.first > 0 || ++count > kMostPictures) continue;
    try {
      uris += (uris.empty() ? "" : " ") + data_uri(to_png(shrunk(span.image->decode(), kSide)));
    } catch (const DataError&) {  // its file has changed since it was sampled from
    }
  }
  return uris;
}

void Observer::log_sample(const EpisodeGroup& group, const Episode& episode) {
  if (batches_++ % show_every_ == 0) {
    if (shown_.size() == kSamplesInReport) {
      for (size_t i = 1; 2 * i < shown_.size(); ++i) shown_[i] = std::move(shown_[2 * i]);
      shown_.resize(shown_.size() / 2);
      show_every_ *= 2;
    }
    shown_.push_back({{std::to_string(group.id), prompt_end(group.prompt(episode), kReportBytes),
                       repair_utf8(episode.text.substr(0, kReportBytes)), str(episode.reward),
                       std::to_string(group.sampled_tokens(episode))},
                      pictures_of(group, episode),
                      episode.turns > 0 ? turns_of(group, episode) : std::vector<TableRow>()});
  }
  const double now = steady_seconds();
  if (!tokenizer_ || now - console_sample_at_ < kBetweenSamples) return;
  console_sample_at_ = now;
  // Written as JSON, which is one line and holds no control characters.
  messages_.note(str("sample, reward ", episode.reward, ": ",
                     dump_json(prompt_end(group.prompt(episode), kSampleBytes)), " -> ",
                     dump_json(episode.text.substr(0, kSampleBytes))));
}

std::vector<Report::Table> Observer::samples() const {
  if (shown_.empty()) return {};
  Report::Table samples{"Samples", {"group", "prompt", "completion", "reward", "tokens"}, {}};
  Report::Table turns{"Turn by turn", {"group", "who", "what it says", "tokens"}, {}};
  const bool sees = std::any_of(shown_.begin(), shown_.end(),
                                [](const Shown& shown) { return !shown.pictures.empty(); });
  if (sees) samples.header.emplace_back("images");
  if (sees) samples.pictures = samples.header.size() - 1;
  for (const Shown& shown : shown_) {
    samples.rows.push_back(shown.sample);
    if (sees) samples.rows.back().push_back(shown.pictures);
    turns.rows.insert(turns.rows.end(), shown.turns.begin(), shown.turns.end());
  }
  std::vector<Report::Table> tables{std::move(samples)};
  if (!turns.rows.empty()) tables.push_back(std::move(turns));
  return tables;
}

// The texts of an episode, special tokens included: a row for each turn and each answer.
std::vector<Observer::TableRow> Observer::turns_of(const EpisodeGroup& group,
                                                   const Episode& episode) const {
  std::vector<TableRow> rows;
  if (!tokenizer_) return rows;
  const auto add = [&](const char* who, std::span<const int32_t> all, const ImageSpans& images) {
    std::vector<int32_t> tokens(all.begin(), all.end());
    for (size_t i = images.size(); i-- > 0;)  // an image's tokens say nothing
      tokens.erase(tokens.begin() + images[i].begin,
                   tokens.begin() + images[i].begin + images[i].count);
    rows.push_back({rows.empty() ? std::to_string(group.id) : "", who,
                    repair_utf8(tokenizer_->decode(tokens).substr(0, kReportBytes)),
                    std::to_string(all.size())});
  };
  add("prompt", group.prompt(episode), group.prompt_images(episode));
  int32_t before = group.segments[static_cast<size_t>(episode.path[0])].parent;
  for (const int32_t s : episode.path) {
    const Segment& segment = group.segments[static_cast<size_t>(s)];
    add(segment.sampled            ? "policy"
        : segment.parent == before ? "environment"
                                   : "environment, earlier turns rewritten",
        std::span(segment.tokens).subspan(static_cast<size_t>(segment.repeated)),
        spans_within(segment.images, segment.repeated, std::ssize(segment.tokens)));
    before = s;
  }
  rows.push_back({"", "reward", str(episode.reward), ""});
  return rows;
}

}  // namespace temper::rl
