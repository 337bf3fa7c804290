// Features of a wider teacher, pooled (after FitNets, Romero et al., arXiv 1412.6550, which matches
// hidden states of chosen layers): of each pair of layers and each token
//
//   1 - cos(h, pool(g)),
//
// h the student's hidden state after its block, g the teacher's, averaged to the student's width.
#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/distill/strategy.h"
#include "temper/ops/logits/row_distance.h"

namespace temper::distill {
namespace {

class FeaturePooling : public Strategy {
 public:
  explicit FeaturePooling(const StrategyContext& context)
      : pairs_(context.pairs()), width_(context.student.hidden_size) {
    context.config.require(width_ <= context.teacher->hidden_size, "distill.strategy",
                           "feature_pooling averages the teacher's hidden states to the student's "
                           "width, but the student's ",
                           width_, " is more than the teacher's ", context.teacher->hidden_size,
                           "; use feature_projection");
  }

  std::vector<LayerPair> pairs() const override { return pairs_; }
  Tap tap() const override { return Tap::kOutput; }

  Comparison compare(const Reading& reading) override {
    at::Tensor sum_N;
    for (const LayerPair& pair : pairs_) {
      const at::Tensor distance_N =
          ops::cosine_distance(reading.student.output(pair.student),
                               ops::pool_features(reading.teacher->output(pair.teacher), width_));
      sum_N = sum_N.defined() ? sum_N + distance_N : distance_N;
    }
    return {sum_N / static_cast<double>(pairs_.size()), {}};
  }

 private:
  std::vector<LayerPair> pairs_;
  int64_t width_;
};

}  // namespace

std::unique_ptr<Strategy> make_feature_pooling(const StrategyContext& context) {
  return std::make_unique<FeaturePooling>(context);
}

}  // namespace temper::distill
