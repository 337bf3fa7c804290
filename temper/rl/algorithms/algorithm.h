// A policy-gradient algorithm: which groups it learns from, how it assigns advantages to tokens,
// and the loss of an update. Each is a class in its own file, with its own config keys and its
// paper's defaults, which it registers at its end (algorithms()); programs that link Temper add
// theirs to the same table. The loop never asks which algorithm runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/base/json.h"
#include "temper/base/registry.h"
#include "temper/metrics/metric_info.h"
#include "temper/metrics/row.h"
#include "temper/rl/algorithms/terms.h"
#include "temper/rl/episode.h"
#include "temper/train/loss.h"

namespace temper::rl {

// The models, numbers and group sizes that an algorithm requires.
struct Needs {
  bool reference = false;      // log-probabilities of the reference model
  int64_t min_group_size = 2;  // episodes of a prompt; 1: they need not be compared
  bool critic = false;         // values of Roles::critic
  // old log-probabilities of every token before advantages are assigned; false: for ratios only
  bool old_logp = false;
};

// Settings of the rollout that an algorithm and its defaults may depend on.
struct RolloutLimits {
  int64_t max_new_tokens = 0;
  bool samples = true;  // false: a file is replayed
  // By name, of the rewards that the config lists; the environment's own has weight 1.
  std::map<std::string, double> reward_weights = {};
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;

  // Its keys of the section `rl`.
  virtual void fields(Fields& /*f*/) {}
  // The keys of fields() that this algorithm does not read: a config that sets one is warned.
  virtual std::vector<std::string> unused_keys() const { return {}; }
  // Called once, after the keys are set: fills in defaults that depend on the run.
  virtual void prepare(const RolloutLimits& limits) { limits_ = limits; }
  virtual Needs needs() const { return {}; }

  // Dual-clip PPO's bound on the loss of a token with negative advantage A, in units of |A|; 0:
  // none.
  virtual double dual_clip() const { return 0; }
  // Dynamic sampling: maximum number of rounds in which groups that keep() rejects are replaced by
  // groups of further prompts; 0: no dynamic sampling.
  virtual int64_t max_refills() const { return 0; }
  // Whether the group has a learning signal, judged by its unshaped rewards.
  virtual bool keep(const EpisodeGroup& group) const { return has_reward_variance(group); }
  // Whether assign() reads Episode::turn_rewards, which rollout files then have.
  virtual bool reads_turn_rewards() const { return false; }
  // Sets penalties, once all rewards of the group are known.
  virtual void shape(EpisodeGroup& /*group*/) const {}
  // Sets the advantages of all sampled tokens of a group that was shaped. A group without
  // differences gets zeros. May keep state between groups: they come in the order of the batch, on
  // all ranks alike.
  virtual void assign(EpisodeGroup& group) = 0;
  // Sets the advantages of a whole rollout batch, once what needs() names has been computed: those
  // that depend on other groups are set here.
  virtual void assign_batch(std::span<EpisodeGroup> groups);
  // Shapes a batch's groups, as they were sampled or read, for assign_batch().
  void prepare_batch(std::span<EpisodeGroup> groups) const;
  // The state that assign() keeps, for checkpoints: after restore(state()) the same groups get the
  // same advantages.
  // `where` begins the message of a DataError.
  virtual Json state() const;
  virtual void restore(const Json& /*state*/, const std::string& /*where*/) {}

  // The weight of each token in the update's loss, by episode, from the episodes' sampled lengths.
  // Suffixes _C and _M: terms.h.
  virtual std::vector<double> token_weights(std::span<const int64_t> length_C) const = 0;
  // The loss of some whole episodes of an update. Its terms are already normalized: their weight is
  // the batch's weight_M.
  virtual train::Loss loss(const TokenBatch& batch) const = 0;

  // Adds metrics of an update on these sampled segments that follow from the batch alone.
  virtual void describe(std::span<const Segment* const> /*update*/, MetricsRow& /*row*/) const {}
  // Declarations of metrics that only this algorithm has.
  virtual std::vector<MetricInfo> metrics() const { return {}; }

 protected:
  RolloutLimits limits_;
};

using MakeAlgorithm = std::unique_ptr<Algorithm> (*)();

// Each file of an algorithm, and whoever adds one, registers it here; `temper list algorithms`
// prints them.
Registry<MakeAlgorithm>& algorithms();

template <class A>
std::unique_ptr<Algorithm> make_algorithm() {
  return std::make_unique<A>();
}

}  // namespace temper::rl
