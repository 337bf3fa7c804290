#include "temper/rl/sampler_check.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <vector>

#include "temper/base/error.h"
#include "temper/generate/mismatch.h"

namespace temper::rl {

void SamplerCheck::add(const TrainingBatch& batch, const train::ForwardPass& pass,
                       const at::Tensor& logp_M) {
  if (pass.shadow) return;  // another pass counts its tokens
  const float* mine = logp_M.const_data_ptr<float>();
  for (const train::ForwardPass::Span& span : pass.spans) {
    const std::vector<float>& theirs = batch.segment(span.tag).logprobs;
    if (theirs.empty()) continue;
    for (int64_t t = 0; t < span.end - span.begin; ++t) {
      const double own = mine[span.begin + t], sampled = theirs[static_cast<size_t>(t)];
      double difference = own == sampled ? 0 : std::abs(own - sampled);
      if (std::isnan(difference)) difference = std::numeric_limits<double>::infinity();
      sum_ += difference;
      ++tokens_;
      unsure_ += sampled != 0;
      if (std::isfinite(own)) {  // else the trainer itself says so
        own_ += own;
        kl_ += own == sampled ? 0 : std::exp(own - sampled) - (own - sampled) - 1;
      }
      if (difference <= largest_) continue;
      largest_ = difference;
      tag_ = span.tag;
      token_ = t;
    }
  }
}

void SamplerCheck::reduce(dist::Group& group) {
  const double mine = largest_;
  largest_ = group.all_reduce_max(mine);
  elsewhere_ = mine != largest_;
  std::vector<double> sums{sum_, tokens_, kl_, own_, unsure_};
  group.all_reduce_sum(sums);
  sum_ = sums[0];
  tokens_ = sums[1];
  kl_ = sums[2];
  own_ = sums[3];
  unsure_ = sums[4];
}

void SamplerCheck::stop_on_difference(int64_t step, const TrainingBatch& batch,
                                      models::CausalLM& model) const {
  if (largest_ == 0) return;
  std::string place = "on another rank";
  if (!elsewhere_) {
    const size_t i = batch.episode_of(tag_);
    place = str("at token ", token_, " of group ", batch.group(i).id, ", sample ",
                batch.episode(i).sample, "; ",
                generate::first_difference(model, batch.group(i).prompt(batch.episode(i)),
                                           batch.group(i).completion(batch.episode(i))));
  }
  throw RunError(str("step ", step,
                     ": the sampler's log-probabilities and the trainer's differ by up to ",
                     largest_, " ", place,
                     "; they must be equal bit for bit (rl.on_mismatch: correct continues with "
                     "importance weights, truncated or masked as rl.importance_correction says)"));
}

}  // namespace temper::rl
