#include "temper/train/update_rule.h"

#include <algorithm>

namespace temper::train {

bool UpdateRuleMaker::reads(std::string_view key) const {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

Registry<UpdateRuleMaker>& optimizers() {
  static Registry<UpdateRuleMaker> table(
      "optimizer",
      {{"adamw", {&make_adamw, {"betas", "eps"}}, "Adam with decoupled weight decay"},
       {"sgd", {&make_sgd, {"momentum"}}, "gradient descent, with momentum where it is set"},
       {"lion",
        {&make_lion, {"betas"}},
        "the sign of a moving average; half of AdamW's state, a third to a tenth of its rate"},
       {"adafactor",
        {&make_adafactor, {}},
        "second moments by row and column: hardly any state; no first moment"},
       {"muon",
        {&make_muon, {"betas", "eps", "momentum", "muon"}},
        "orthogonalised momentum on hidden matrices, AdamW on embeddings, head, norms and biases"},
       {"adamw8bit",
        {&make_adamw8bit, {"betas", "eps"}},
        "AdamW whose moments are kept in 8 bits, in blocks of 256: a quarter of its state"}});
  return table;
}

}  // namespace temper::train
