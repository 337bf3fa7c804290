// A rollout batch while it is sampled.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "temper/data/loader.h"
#include "temper/generate/sampling/speculation.h"
#include "temper/rl/episode.h"
#include "temper/rl/rollout/prompts.h"

namespace temper::rl {

// A completion while it grows. Its parts were sampled one after the other, by different versions of
// the policy.
struct PartialCompletion {
  std::vector<Segment> parts;
  std::string text;
  double seconds = 0;    // of sampling, since the restart of a run where it goes on
  bool stopped = false;  // ended by an end token, a stop text or its grammar's end

  std::vector<int32_t> tokens() const;
  int64_t length() const;
  void add(Segment part);  // joins the last one of the same version
};

// The completions of one prompt.
struct PartialGroup {
  const Prompt* prompt = nullptr;
  std::vector<PartialCompletion> completions;  // [samples] completions; empty in an environment
  EpisodeGroup episodes;                       // set once the completions or episodes are done
  int64_t unfinished = 0;                      // number of unfinished completions or episodes

  // Whether no completion has a token yet.
  bool is_fresh() const;
  // Makes `episodes` of the completions as they are.
  void assemble();
};

// Completions that a reward's server did not judge (RewardResult::unanswered), and why it did not
// judge the first of them.
struct Unanswered {
  int64_t completions = 0;
  std::string why;
};

// Counts of what happened while a batch was sampled.
struct BatchCounts {
  int64_t groups_sampled = 0, refills = 0;
  int64_t dropped = 0;                      // completions
  int64_t passed_over = 0;                  // prompts
  double coverage = 0;                      // share of the prompts that were sampled by then
  double latency_p50 = 0, latency_p95 = 0;  // of its completions, in seconds; 0: resumed after it
  generate::Speculation::Statistics speculation;
};

struct PartialBatch {
  std::vector<Prompt> prompts;           // prompts of all ranks
  std::map<int64_t, PartialGroup> mine;  // groups of this rank's prompts, by key
  // The prompts' loader before and after they were drawn.
  data::LoaderState state_before, state_after;
  BatchCounts counts;  // of this rank until SyncSource::finish
  // Completions that rewards judged, and those of them that have none (RewardResult::failed);
  // episodes in an environment, and those that it failed.
  int64_t judged = 0, unrewarded = 0, episodes = 0, failed_episodes = 0;
  double rollout_seconds = 0, reward_seconds = 0;
  std::vector<float> latencies;  // seconds from the beginning of sampling to each completion's end
  std::map<size_t, Unanswered> unanswered = {};  // by reward

  // This rank's completions as they are, as lines of a rollouts file; those without a token are
  // left out.
  std::string lines() const;
  // Takes this rank's completions from the lines() of all ranks. A completion of `max_tokens` is
  // done.
  // Throws DataError.
  void fill(const std::string& lines, int64_t vocabulary, int64_t max_tokens,
            const std::string& where);
};

}  // namespace temper::rl
