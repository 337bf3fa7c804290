// The router of a mixture of experts (Shazeer et al., arXiv 1701.06538), and what watches routers
// while a step is computed.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/nn/linear.h"
#include "temper/ops/layers/routing.h"

namespace temper::nn {

// A linear layer whose weight [experts, hidden] is float32 whatever the format of the others: a
// rounded logit may choose another expert.
class Router : public Linear {
 public:
  // `correction`: with a bias that counts for the choice alone, and does not train. `bias`: with
  // one that is a part of the logits.
  Router(Module& parent, std::string name, int64_t hidden, const ops::RouterSpec& spec,
         double init_std, bool correction = false, bool bias = false);

  // x [N, hidden] to [N, experts].
  at::Tensor logits(const at::Tensor& x, const Context& context) { return forward(x, context); }
  ops::Routing route(const at::Tensor& logits) const;

  std::optional<Parameter> e_score_correction_bias;  // [experts]
  const ops::RouterSpec spec;

 protected:
  void accept(const std::string& path, const LayerVisitor& visitor) override;
};

// Sees what the routers of forward passes choose, and adds the load-balancing loss of the Switch
// Transformer (Fedus et al., arXiv 2101.03961, equation 4) as transformers computes it, over the
// tokens of a whole step and all layers together: E Σ_e f_e P_e, f_e the choices of expert e and
// P_e the sum of its probabilities, both over the number of (token, layer) pairs. f is constant in
// the gradient; it is known only after all tokens have gone through the routers.
class RouterWatch {
 public:
  // Of a layer: how often each expert was chosen, the sums of probabilities where there is a loss,
  // and the tokens.
  struct Layer {
    std::vector<double> chosen, probability;
    double tokens = 0;
  };
  std::map<int64_t, Layer> layers;

  // Whether passes count: not those that compute a block again.
  bool counting = true;
  // A pass that only counts choices, before those that train.
  bool choices_only = false;
  // Null: there is no such loss. With one every token counts: no layer may leave out rows.
  std::shared_ptr<ops::BalanceLoss> loss;

  // One layer's router; gives y, with the loss in its gradient where there is one.
  at::Tensor see(int64_t layer, const at::Tensor& logits, const ops::ExpertRows& rows,
                 const at::Tensor& y);
};

}  // namespace temper::nn
