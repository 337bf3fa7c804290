// Completions with what the trainer needs of them, and the files that hold them:
// OUTPUT_DIR/rollouts/step-N.jsonl, one line a completion, a group's lines together.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/json.h"

namespace temper::rl {

struct Rollout {
  int64_t group = 0, sample = 0;
  std::vector<int32_t> prompt_tokens,
      completion_tokens;  // an end token that was sampled is among the latter
  std::vector<float>
      logprobs;  // of the sampler, at rollout.temperature; empty where a file has none
  double reward = 0;
  std::vector<std::pair<std::string, double>> rewards;  // by name, unweighted
  double advantage = 0;
  std::string text;
  bool stopped = true;  // by an end token or a stop string; else by its length

  int64_t length() const { return static_cast<int64_t>(completion_tokens.size()); }
};

std::string to_line(const Rollout& rollout);
// Reads what to_line wrote, or another program's line: group, prompt_tokens, completion_tokens and
// reward are enough. Ids are checked against the vocabulary. Throws DataError.
Rollout parse_rollout(const Json& row, int64_t vocabulary, const std::string& where);

// Completions by group, and the groups' bounds: group g is [bounds[g], bounds[g + 1]).
struct RolloutBatch {
  std::vector<Rollout> rollouts;
  std::vector<size_t> bounds() const;  // where consecutive rollouts are of different groups
};

}  // namespace temper::rl
