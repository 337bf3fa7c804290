// Distillation from a teacher with another tokenizer.
#pragma once

#include "temper/distill/alignment.h"
#include "temper/distill/strategy.h"

namespace temper::distill {

// GOLD (Patiño et al., "Unlocking on-policy distillation for any model family", 2025) or ULD
// (Boizard et al., arXiv 2402.12030) in place of the divergence of logit and on_policy: the teacher
// reads the same text in its own tokens, and spans of tokens that both end at the same place are
// compared (ops/logits/aligned_divergence.h). The mean is over spans.
class CrossTokenizer : public Strategy {
 public:
  explicit CrossTokenizer(const StrategyContext& context);
  Comparison compare(const Reading& reading) override;
  double count(const train::ForwardPass& pass) const override;
  Places places(const train::ForwardPass& pass) const override;
  std::shared_ptr<const Alignment> align(const train::ForwardPass& pass) const override {
    return bridge_.align(pass);
  }

 private:
  ops::AlignedSpec spec_;
  TokenBridge bridge_;
};

}  // namespace temper::distill
