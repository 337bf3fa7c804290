// On-policy distillation (Agarwal et al., GKD, arXiv 2306.13649, algorithm 1 and equation 3;
// Thinking Machines, "On-policy distillation", 2025):
//
//   L = (1 - f) E_{x, y ~ p(. | x)}[D(q || p)(y | x)] + f E_{(x, y) in data}[D(q || p)(y | x)]
//
// The student p samples y itself and learns the teacher's q at its own tokens, exactly over the
// vocabulary. The share f is distill.off_policy_fraction of every step, or the probability
// 1 - distill.lambda of a step (algorithm 1); its completions are the file's, or with seq_kd
// samples of q (Kim and Rush, arXiv 1606.07947). Nothing is differentiated through the sampling.
// Which rows are sampled, and how, is sampled_rows.h's; the divergence D is logit's.
#include "temper/distill/strategy.h"

namespace temper::distill {

std::unique_ptr<Strategy> make_on_policy(const StrategyContext& context) {
  return make_divergence(context);
}

}  // namespace temper::distill
