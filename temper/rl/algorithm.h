// A policy-gradient algorithm: which groups it learns from, what credit it gives to their tokens,
// and what an update's loss is. One class in a file of its own, with its own config keys and its
// paper's defaults, and one line in the table in algorithm.cpp; programs that link Temper add
// theirs to the same table. The loop never asks which algorithm runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "temper/base/config.h"
#include "temper/base/json.h"
#include "temper/base/registry.h"
#include "temper/metrics/metric_info.h"
#include "temper/metrics/row.h"
#include "temper/rl/episode.h"
#include "temper/rl/terms.h"
#include "temper/train/loss.h"

namespace temper::rl {

// What an algorithm asks the loop for.
struct Needs {
  bool reference = false;      // log-probabilities of the reference model
  int64_t min_group_size = 2;  // episodes of a prompt; 1: they are not compared
  bool critic = false;         // values of Roles::critic
  bool old_logp = false;       // of every token, before credit is assigned; else for ratios alone
};

// What the algorithm may know of how its episodes are made.
struct RolloutLimits {
  int64_t max_new_tokens = 0;
  bool samples = true;  // false: a file is replayed
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;

  // Its keys of the section `rl`.
  virtual void fields(Fields& /*f*/) {}
  // Called once, after the keys are set: fills in defaults that depend on the run.
  virtual void prepare(const RolloutLimits& limits) { limits_ = limits; }
  virtual Needs needs() const { return {}; }

  // Whether a group is sampled again for another (dynamic sampling), and how often at most a batch
  // is filled up so; 0: never.
  virtual int64_t max_refills() const { return 0; }
  // Whether the update learns anything from a group: asked of its unshaped rewards.
  virtual bool keep(const EpisodeGroup& group) const { return has_reward_variance(group); }
  // Sets penalties, once all rewards of the group are known.
  virtual void shape(EpisodeGroup& /*group*/) const {}
  // Sets the advantages of all sampled tokens of a group that was shaped. A group without
  // differences gets zeros. May keep state between groups: they come in the order of the batch, on
  // all ranks alike.
  virtual void assign(EpisodeGroup& group) = 0;
  // The same of a whole rollout batch, once the numbers that needs() names are there. Those that
  // depend on other groups are set here.
  virtual void assign_batch(std::span<EpisodeGroup> groups);
  // That state, for checkpoints: after restore(state()) the same groups get the same credit.
  // `where` begins the message of a DataError.
  virtual Json state() const;
  virtual void restore(const Json& /*state*/, const std::string& /*where*/) {}

  // What each token of an episode counts in the update's loss, from the episodes' sampled lengths.
  virtual std::vector<double> token_weights(std::span<const int64_t> length_C) const = 0;
  // The loss of some whole episodes of an update. Its terms are already normalised: their weight is
  // the batch's weight_M.
  virtual train::Loss loss(const TokenBatch& batch) const = 0;

  // Adds metrics of an update, made on these sampled segments, that the batch alone tells.
  virtual void describe(std::span<const Segment* const> /*update*/, MetricsRow& /*row*/) const {}
  // Declarations of metrics that only this algorithm has.
  virtual std::vector<MetricInfo> metrics() const { return {}; }

 protected:
  RolloutLimits limits_;
};

using MakeAlgorithm = std::unique_ptr<Algorithm> (*)();

// The built-in ones and those that were added; `temper list algorithms` prints them.
Registry<MakeAlgorithm>& algorithms();

std::unique_ptr<Algorithm> make_grpo();
std::unique_ptr<Algorithm> make_dr_grpo();
std::unique_ptr<Algorithm> make_dapo();
std::unique_ptr<Algorithm> make_gspo();
std::unique_ptr<Algorithm> make_rloo();
std::unique_ptr<Algorithm> make_ppo();

}  // namespace temper::rl
