// Attention probabilities through a learned map of heads (TinyBERT, Jiao et al., arXiv 1909.10351,
// equation 7, where both models have the same heads): the mean over pairs of layers, the teacher's
// heads t, tokens i and the keys j up to them of
//
//   (Σ_s W[t, s] a_s[i, j] - b_t[i, j])²,
//
// a the student's probabilities, b the teacher's; W of the pair trains with the student.
#include <ATen/ATen.h>

#include "temper/distill/maps/maps.h"
#include "temper/distill/strategy.h"

namespace temper::distill {
namespace {

class AttentionProjection : public Strategy {
 public:
  explicit AttentionProjection(const StrategyContext& context)
      : pairs_(context.attention_pairs()),
        maps_(static_cast<uint64_t>(context.config.seed), context.student.device()) {
    for (const LayerPair& pair : pairs_)
      maps_.add(context.student.attention_spec(pair.student).num_heads,
                context.teacher->attention_spec(pair.teacher).num_heads);
  }

  std::vector<LayerPair> pairs() const override { return pairs_; }
  Tap tap() const override { return Tap::kAttention; }
  nn::Module* maps() override { return &maps_; }

  Comparison compare(const Reading& reading) override {
    at::Tensor sum_N;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const at::Tensor weight = maps_.weight(i);
      const at::Tensor error_N =
          ops::attention_squared_error(reading.student.attention(pairs_[i].student),
                                       reading.teacher->attention(pairs_[i].teacher), weight,
                                       reading.pass.forest) /
          static_cast<double>(weight.size(0));
      sum_N = sum_N.defined() ? sum_N + error_N : error_N;
    }
    return {sum_N / static_cast<double>(pairs_.size()), {}};
  }

  // Pairs of a token and a key up to it.
  double count(const train::ForwardPass& pass) const override {
    double keys = 0;
    for (const int64_t position : pass.forest->position) keys += static_cast<double>(position + 1);
    return keys;
  }
  Places places(const train::ForwardPass& pass) const override {
    Places places = Strategy::places(pass);
    for (const int64_t position : pass.forest->position)
      places.count.push_back(static_cast<double>(position + 1));
    return places;
  }

 private:
  std::vector<LayerPair> pairs_;
  Maps maps_;
};

}  // namespace

std::unique_ptr<Strategy> make_attention_projection(const StrategyContext& context) {
  return std::make_unique<AttentionProjection>(context);
}

}  // namespace temper::distill
