// What the completions of many prompts are worth.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/metrics/pass_rate.h"

namespace temper::cli {

// One completion, judged.
struct EvalSample {
  double reward = 0;
  int64_t tokens = 0;  // that were sampled
  bool truncated = false;
  bool dropped = false;  // its environment failed, and on_failure is drop: it is left out
};

struct EpisodesOutcome {
  double turns = 0;      // of the policy in an episode; mean
  int64_t failures = 0;  // of the environment
  int64_t dropped = 0;   // episodes
};

struct EvalOutcome {
  Interval reward, pass_one, pass_k;  // means over the prompts
  int64_t prompts = 0, samples = 0;   // samples: of each prompt, k
  int64_t failures = 0;               // completions whose reward failed, counted as 0
  double length = 0, truncated = 0;   // tokens of a completion, share of them; means
  std::optional<EpisodesOutcome> episodes;
};

// each: samples of a prompt, which stand together. A completion passes from `threshold` on. Prompts
// whose samples are all dropped are left out.
EvalOutcome summarize(std::span<const EvalSample> samples, int64_t each, double threshold);

Json to_json(const EvalOutcome& outcome);
// {mean, low, high}; null for bounds that are not known.
Json interval(const Interval& interval);
// A table for people.
std::string to_text(const EvalOutcome& outcome);

}  // namespace temper::cli
