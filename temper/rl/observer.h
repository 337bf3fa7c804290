// The metrics, samples and warnings of a run of reinforcement learning.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "temper/metrics/metric_info.h"
#include "temper/metrics/report/report.h"
#include "temper/rl/algorithms/algorithm.h"
#include "temper/rl/episode.h"
#include "temper/text/tokenizer/tokenizer.h"
#include "temper/train/messages.h"

namespace temper::rl {

// Metrics of a rollout batch, which are the same in the rows of all its updates.
struct BatchStatistics {
  double reward_mean = 0, reward_std = 0;  // of the rewards before shaping
  double reward_min = 0, reward_max = 0;
  double length_p50 = 0, length_p95 = 0;       // quantiles of sampled tokens
  double length_mean = 0, truncated = 0;       // sampled tokens; share cut at max_new_tokens
  double turns_mean = 0;                       // in an environment; 0: there is none
  int64_t zero_std_groups = 0, groups = 0;     // groups without a learning signal; all of them
  Histogram rewards, lengths;                  // as reward_mean and length_mean have them
  std::map<std::string, double> reward_means;  // by reward, unweighted
  std::map<std::string, double> group_means;   // of rewards, by the prompt's group of rows

  // compares_groups: the algorithm learns only from differences of rewards within a group (GRPO),
  // so the number of groups without any is reported.
  void add_to(MetricsRow& row, bool compares_groups = true) const;
};
BatchStatistics describe(const std::vector<EpisodeGroup>& groups, const Algorithm& algorithm);

// The declarations of all metrics of reinforcement learning.
std::vector<MetricInfo> rl_metrics();

class Observer {
 public:
  Observer(train::Messages& messages, std::shared_ptr<const Tokenizer> tokenizer,
           int64_t max_new_tokens)
      : messages_(messages), tokenizer_(std::move(tokenizer)), max_new_tokens_(max_new_tokens) {}

  // One episode of a batch: some, from all over the run, stand in its report; one now and then on
  // the console.
  void log_sample(const EpisodeGroup& group, const Episode& episode);
  std::vector<Report::Table> samples() const;
  // Warns, once each, of what commonly goes wrong: rewards that never differ, completions cut
  // short, a policy that has left its reference. kl: nats per token, 0 without a reference.
  // compares_groups: as for BatchStatistics::add_to().
  void warn_of(const BatchStatistics& about, double kl, double mismatch,
               bool compares_groups = true);

 private:
  std::string pictures_of(const EpisodeGroup& group, const Episode& episode) const;
  std::string prompt_end(const std::vector<int32_t>& prompt, size_t most) const;

  train::Messages& messages_;
  std::shared_ptr<const Tokenizer> tokenizer_;  // null: samples have no prompts
  int64_t max_new_tokens_;
  int64_t constant_batches_ = 0, batches_ = 0, show_every_ = 1;
  // A row of the table of samples; of an episode in an environment, its turns as well.
  using TableRow = std::vector<std::string>;
  struct Shown {
    TableRow sample;
    std::string pictures;  // of its images; empty: it has none
    std::vector<TableRow> turns;
  };
  std::vector<TableRow> turns_of(const EpisodeGroup& group, const Episode& episode) const;
  std::vector<Shown> shown_;
  double console_sample_at_ = 0;
};

}  // namespace temper::rl
