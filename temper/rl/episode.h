// Episodes of reinforcement learning, in the forest's shape: a group is a tree of token segments
// with the prompt at its root, and an episode is a path through it. A completion is an episode of
// one segment; turns of an environment alternate segments that the policy sampled with
// observations.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "temper/image/image_span.h"

namespace temper::rl {

struct Segment {
  int32_t parent = -1;   // an earlier segment of the group; -1: a prompt
  int32_t repeated = 0;  // number of first tokens that repeat the prompt's: of a segment that
                         // branches within the prompt, and so has no parent
  std::vector<int32_t> tokens;  // not empty; an end token that was sampled is among them
  ImageSpans images = {};       // which of the tokens stand for images
  bool sampled = false;         // by a policy: these tokens train
  // The tokens that truncation (top-k, top-p, min-p) left where each token was sampled, ascending;
  // an empty list, or no list at all: the whole vocabulary.
  std::vector<std::vector<int32_t>> kept;
  // The numbers of a sampled segment, by token. Log-probabilities are those at rollout.temperature,
  // of the distribution over `kept`.
  std::vector<float> logprobs;  // of the sampler; empty where none were recorded
  std::vector<float> old_logp;  // of the policy at the start of the rollout batch; empty: those of
                                // the current policy, which has not changed since
  std::vector<float> ref_logp;  // of the reference model; empty: not needed
  std::vector<float> value;    // the critic's at the start of the rollout batch, before each token;
                               // empty: no critic
  std::vector<float> returns;  // the critic's targets, set by the algorithm; empty: no critic
  std::vector<float> advantage;  // set by the algorithm
  std::vector<float> entropy;  // of the policy before the update; empty: no rl.top_entropy_fraction
  int64_t policy_version = 0;  // updates made by the policy that sampled it
};

struct Episode {
  int64_t sample = 0;  // names it within its group
  // Its segments after the prompt in order of time, not empty. Each follows its parent: the one
  // before, except where a chat template rewrote earlier turns (a branch).
  std::vector<int32_t> path;
  double reward = 0;   // weighted sum of the rewards
  double penalty = 0;  // what shaping adds to the reward (of length: at most 0)
  std::vector<std::pair<std::string, double>> rewards;  // by name, unweighted
  std::string text;
  // The tokens that the chat template writes after an episode that ended by itself; not part of the
  // episode. Only in groups that were sampled from conversations (rewards::Sample::closing_tokens).
  std::vector<int32_t> closing_tokens = {};
  bool stopped = true;  // by an end token, a stop text or its environment; else by its length
  int64_t turns = 0;    // of the policy in an environment; 0: no environment
  // The environment's reward of each turn, a part of `reward`; empty: not known, as if all of it
  // came with the last turn.
  std::vector<double> turn_rewards = {};
  bool token_credit = false;  // its tokens have advantages of their own (rl.turn_credit)

  double shaped() const { return reward + penalty; }
};

// Name of the environment's own reward, the sum over its answers, among the rewards.
inline constexpr const char* kEnvironmentReward = "environment";

struct EpisodeGroup {
  int64_t id = 0;
  std::vector<Segment> segments;  // depth first
  std::vector<Episode> episodes;
  std::string rows = {};  // name of the prompt's group of rows (data.balance); empty: none

  // The tokens of the episode's root.
  const std::vector<int32_t>& prompt(const Episode& episode) const;
  const ImageSpans& prompt_images(const Episode& episode) const;
  // Of its prompt followed by its completion().
  ImageSpans images(const Episode& episode) const;
  // All tokens of the episode after its prompt, in order.
  std::vector<int32_t> completion(const Episode& episode) const;
  // How many of the episode's tokens the policy sampled.
  int64_t sampled_tokens(const Episode& episode) const;
  // The sampled segments of each turn, in order: what the policy said between two observations.
  std::vector<std::vector<int32_t>> turns(const Episode& episode) const;
  // Gives every sampled token of the episode this advantage.
  void set_advantage(const Episode& episode, double advantage);
  std::vector<double> shaped_rewards() const;
};

// The tokens that follow a prompt, with their numbers.
struct CompletionTokens {
  std::vector<int32_t> tokens;
  std::vector<bool> sampled;  // by the policy
  // Segment::kept by token; empty: nothing was truncated.
  std::vector<std::vector<int32_t>> kept = {};
  // Numbers by token, 0 for tokens that the policy did not sample; empty: there are none.
  std::vector<float> logprobs, old_logp, ref_logp, value;
  std::vector<int64_t> version;  // of the policy, by token; empty: one sampled all
  // The token at `at` follows token `after` - 1 of the completion; 0: the prompt; negative: the
  // prompt less so many of its tokens.
  struct Branch {
    int64_t at, after;
  };
  std::vector<Branch> branches;  // ascending
  ImageSpans images = {};        // among the tokens
};

// Adds an episode with its segments, whose path it sets. It shares the prompt of the group's last
// one where that is the same, with the same images.
void add_episode(EpisodeGroup& group, const std::vector<int32_t>& prompt, Episode episode,
                 const CompletionTokens& completion, int64_t policy_version = 0,
                 const ImageSpans& prompt_images = {});

// Whether the group's rewards, before shaping, differ: without that no completion is better than
// another.
bool has_reward_variance(const EpisodeGroup& group);

}  // namespace temper::rl
