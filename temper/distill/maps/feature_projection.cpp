// Hidden states through a learned map (TinyBERT, Jiao et al., arXiv 1909.10351, equation 8;
// FitNets, Romero et al., arXiv 1412.6550, equation 3): the mean over pairs of layers, tokens and
// the teacher's features of
//
//   (W h - g)²,
//
// h the student's hidden state after its block, g the teacher's; W of the pair trains with the
// student.
#include <ATen/ATen.h>

#include "temper/distill/maps/maps.h"
#include "temper/distill/strategy.h"
#include "temper/ops/logits/row_distance.h"

namespace temper::distill {
namespace {

class FeatureProjection : public Strategy {
 public:
  explicit FeatureProjection(const StrategyContext& context)
      : pairs_(context.pairs()),
        maps_(static_cast<uint64_t>(context.config.seed), context.student.device()) {
    const int64_t in = context.student.hidden_size, out = context.teacher->hidden_size;
    for (size_t i = 0; i < pairs_.size(); ++i) maps_.add(in, out);
    numbers_ = static_cast<double>(pairs_.size()) * static_cast<double>(out);
  }

  std::vector<LayerPair> pairs() const override { return pairs_; }
  Tap tap() const override { return Tap::kOutput; }
  nn::Module* maps() override { return &maps_; }

  Comparison compare(const Reading& reading) override {
    at::Tensor sum_N;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const at::Tensor mapped_NH = maps_.apply(i, reading.student.output(pairs_[i].student));
      const at::Tensor error_N =
          ops::squared_distance(mapped_NH, reading.teacher->output(pairs_[i].teacher));
      sum_N = sum_N.defined() ? sum_N + error_N : error_N;
    }
    return {sum_N / numbers_, {}};
  }

 private:
  std::vector<LayerPair> pairs_;
  Maps maps_;
  double numbers_;  // numbers that one token's error is the mean of
};

}  // namespace

std::unique_ptr<Strategy> make_feature_projection(const StrategyContext& context) {
  return std::make_unique<FeatureProjection>(context);
}

}  // namespace temper::distill
