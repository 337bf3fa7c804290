// Attention transfer (after Zagoruyko and Komodakis, arXiv 1612.03928, and MiniLM, Wang et al.,
// arXiv 2002.10957, section 3.1): of each pair of layers, head of the student and token
//
//   1 - cos(a, mean of b),
//
// a the head's probabilities over the keys up to the token, b those of the teacher's heads that
// stand for it: consecutive ones, as many for each.
#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/distill/strategy.h"

namespace temper::distill {
namespace {

class AttentionTransfer : public Strategy {
 public:
  explicit AttentionTransfer(const StrategyContext& context) : pairs_(context.attention_pairs()) {
    for (const LayerPair& pair : pairs_) {
      const int64_t student = context.student.attention_spec(pair.student).num_heads,
                    teacher = context.teacher->attention_spec(pair.teacher).num_heads;
      context.config.require(teacher % student == 0, "distill.strategy",
                             "attention_transfer averages the teacher's heads in equal groups to "
                             "the student's number, but its ",
                             teacher, " are not a multiple of the student's ", student,
                             "; use attention_projection");
    }
  }

  std::vector<LayerPair> pairs() const override { return pairs_; }
  Tap tap() const override { return Tap::kAttention; }

  Comparison compare(const Reading& reading) override {
    at::Tensor sum_N;
    for (const LayerPair& pair : pairs_) {
      const at::Tensor distance_N = ops::attention_cosine_distance(
          reading.student.attention(pair.student), reading.teacher->attention(pair.teacher),
          reading.pass.forest);
      sum_N = sum_N.defined() ? sum_N + distance_N : distance_N;
    }
    return {sum_N / static_cast<double>(pairs_.size()), {}};
  }

 private:
  std::vector<LayerPair> pairs_;
};

}  // namespace

std::unique_ptr<Strategy> make_attention_transfer(const StrategyContext& context) {
  return std::make_unique<AttentionTransfer>(context);
}

}  // namespace temper::distill
