// Distillation strategies, one file each. A strategy compares what both models compute in the same
// forward pass; the task (task.h) provides rows, models and the rest of the loss.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "temper/base/registry.h"
#include "temper/distill/alignment.h"
#include "temper/distill/config.h"
#include "temper/distill/reading.h"

namespace temper::distill {

// The models and the config that a strategy is made for.
struct StrategyContext {
  const DistillConfig& config;
  models::CausalLM& student;
  models::CausalLM* teacher;  // null: its log-probabilities alone
  // Null where rows are ids. The teacher's is the same unless distill.cross_tokenizer is set.
  std::shared_ptr<const Tokenizer> tokenizer = nullptr, teacher_tokenizer = nullptr;
  // The pairs of layers that the config chooses. Throws ConfigError.
  std::vector<LayerPair> pairs() const;
  // The same of layers whose attention maps are compared. Throws ConfigError where one has none.
  std::vector<LayerPair> attention_pairs() const;
  // Throws ConfigError where the student's adapter is on its head, for strategies that read the
  // head's weight as it is.
  void require_whole_head() const;
};

class Strategy {
 public:
  virtual ~Strategy() = default;

  // The layers that it reads, of both models.
  virtual std::vector<LayerPair> pairs() const { return {}; }
  // The tensors of these layers that it reads.
  virtual Tap tap() const { return Tap::kNone; }
  // The learned maps that train with the student; null: it has none.
  virtual nn::Module* maps() { return nullptr; }

  // What the teacher reads in place of the pass, where its tokenizer is another; null: the pass.
  virtual std::shared_ptr<const Alignment> align(const train::ForwardPass& /*pass*/) const {
    return nullptr;
  }

  struct Comparison {
    at::Tensor value;  // float32, differentiable: its sum over count() is distill_loss
    at::Tensor logp;   // the student's of the pass's targets, where it falls off; else undefined
  };
  virtual Comparison compare(const Reading& reading) = 0;
  // The number of values that `value` is the mean over: by default the pass's tokens.
  virtual double count(const train::ForwardPass& pass) const {
    return static_cast<double>(pass.forest->num_tokens());
  }
  // Where the values of compare() stand: of each, a token of the forest that is in its row, and how
  // many of count() it is; no counts: 1 each. By default the pass's tokens.
  struct Places {
    std::vector<int64_t> token;
    std::vector<double> count = {};
  };
  virtual Places places(const train::ForwardPass& pass) const;
};

struct StrategyEntry {
  std::unique_ptr<Strategy> (*make)(const StrategyContext& context);
  std::vector<std::string> reads;  // which of strategy_keys()
  bool samples = false;            // rows are prompts, whose completions the student samples
};

// The strategy of logit and on_policy, by the tokenizers.
std::unique_ptr<Strategy> make_divergence(const StrategyContext& context);

// The table of strategies, by name; programs may add their own.
Registry<StrategyEntry>& strategies();
// Keys of `distill` that only some strategies read.
const std::vector<std::string>& strategy_keys();

std::unique_ptr<Strategy> make_logit(const StrategyContext& context);
std::unique_ptr<Strategy> make_attention_transfer(const StrategyContext& context);
std::unique_ptr<Strategy> make_attention_projection(const StrategyContext& context);
std::unique_ptr<Strategy> make_feature_pooling(const StrategyContext& context);
std::unique_ptr<Strategy> make_feature_projection(const StrategyContext& context);
std::unique_ptr<Strategy> make_on_policy(const StrategyContext& context);

}  // namespace temper::distill
