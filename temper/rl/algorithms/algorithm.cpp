#include "temper/rl/algorithms/algorithm.h"

#include <nlohmann/json.hpp>

namespace temper::rl {

void Algorithm::assign_batch(std::span<EpisodeGroup> groups) {
  for (EpisodeGroup& group : groups) assign(group);
}

Json Algorithm::state() const { return {}; }

Registry<MakeAlgorithm>& algorithms() {
  static Registry<MakeAlgorithm> table(
      "algorithm",
      {{"grpo", make_grpo, "group-relative advantages, KL to the reference (arXiv 2402.03300)"},
       {"dr_grpo", make_dr_grpo,
        "GRPO without its biases of length and difficulty (arXiv 2503.20783)"},
       {"dapo", make_dapo,
        "clip-higher, token-mean loss, dynamic sampling, overlong shaping (arXiv 2503.14476)"},
       {"gspo", make_gspo, "importance ratio and clipping of whole completions (arXiv 2507.18071)"},
       {"rloo", make_rloo, "REINFORCE with a leave-one-out baseline (arXiv 2402.14740)"},
       {"cispo", make_cispo,
        "REINFORCE with clipped importance weights, token-mean loss (arXiv 2506.13585)"},
       {"gdpo", make_gdpo,
        "GRPO with every reward normalized by itself, then summed (arXiv 2601.05242)"},
       {"dro", make_dro,
        "policy gradient with a quadratic penalty of the log-ratio (arXiv 2405.19107)"},
       {"reinforce_plus_plus", make_reinforce_plus_plus,
        "PPO without a critic, advantages normalized over the batch (arXiv 2501.03262)"},
       {"ppo", make_ppo,
        "clipped surrogate with a critic and GAE (arXiv 1707.06347); temper ppo trains it"}});
  return table;
}

}  // namespace temper::rl
