#include "temper/rl/update.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

namespace temper::rl {
namespace {

// The pass's tokens out of a flat tensor of the whole batch; undefined stays so.
at::Tensor gather(const at::Tensor& flat, const Pass& pass, const std::vector<int64_t>& offsets) {
  if (!flat.defined()) return {};
  at::Tensor out = at::empty({pass.start_C1.back()}, at::kFloat);
  for (size_t c = 0; c < pass.rollouts.size(); ++c) {
    const int64_t length = pass.start_C1[c + 1] - pass.start_C1[c];
    out.narrow(0, pass.start_C1[c], length)
        .copy_(flat.narrow(0, offsets[pass.rollouts[c]], length));
  }
  return out;
}

double total_of(const at::Tensor& x) { return x.detach().sum(at::kDouble).item<double>(); }

class Update {
 public:
  Update(train::Run& run, const Algorithm& algorithm, const TrainingBatch& batch,
         std::span<const size_t> chosen)
      : run_(run), algorithm_(algorithm), batch_(batch), offsets_(token_offsets(batch.batch)) {
    std::vector<int64_t> lengths;
    for (const size_t i : chosen) lengths.push_back(batch.batch.rollouts[i].length());
    const std::vector<double> weights =
        aggregate(run.config.rl.loss_aggregation, lengths, run.config.rollout.max_new_tokens);
    weight_.resize(batch.batch.rollouts.size());
    for (size_t c = 0; c < chosen.size(); ++c) weight_[chosen[c]] = weights[c];
  }

  // Adds the pass's gradient and numbers.
  void add(const Pass& pass, bool compare, UpdateStatistics& s) const;

 private:
  CompletionBatch completions(const Pass& pass, const ops::TokenLogp& now) const;
  void compare_with_sampler(const Pass& pass, const at::Tensor& logp_M, UpdateStatistics& s) const;

  train::Run& run_;
  const Algorithm& algorithm_;
  const TrainingBatch& batch_;
  std::vector<int64_t> offsets_;
  std::vector<double> weight_;  // of a token, by rollout
};

CompletionBatch Update::completions(const Pass& pass, const ops::TokenLogp& now) const {
  CompletionBatch b;
  b.logp_M = now.logp;
  b.entropy_M = now.entropy;
  b.old_logp_M =
      batch_.old_logp.defined() ? gather(batch_.old_logp, pass, offsets_) : now.logp.detach();
  b.ref_logp_M = gather(batch_.ref_logp, pass, offsets_);
  if (run_.config.rl.on_mismatch == RlSection::OnMismatch::kCorrect &&
      batch_.sampler_logp.defined())
    b.correction_M = truncated_importance(b.old_logp_M, gather(batch_.sampler_logp, pass, offsets_),
                                          run_.config.rl.importance_cap);
  b.start_C1 = pass.start_C1;
  b.advantage_M = at::empty_like(b.old_logp_M);
  b.weight_M = at::empty_like(b.old_logp_M);
  for (size_t c = 0; c < pass.rollouts.size(); ++c) {
    const int64_t start = pass.start_C1[c], length = pass.start_C1[c + 1] - start;
    b.advantage_M.narrow(0, start, length).fill_(batch_.batch.rollouts[pass.rollouts[c]].advantage);
    b.weight_M.narrow(0, start, length).fill_(weight_[pass.rollouts[c]]);
  }
  return b;
}

void Update::compare_with_sampler(const Pass& pass, const at::Tensor& logp_M,
                                  UpdateStatistics& s) const {
  const at::Tensor sampler_M = gather(batch_.sampler_logp, pass, offsets_);
  const float *mine = logp_M.const_data_ptr<float>(), *theirs = sampler_M.const_data_ptr<float>();
  for (size_t c = 0; c < pass.rollouts.size(); ++c) {
    for (int64_t t = pass.start_C1[c]; t < pass.start_C1[c + 1]; ++t) {
      const double difference = std::abs(static_cast<double>(mine[t]) - theirs[t]);
      if (difference <= s.sampler_trainer_max_abs_diff) continue;
      s.sampler_trainer_max_abs_diff = difference;
      s.differs_at = offsets_[pass.rollouts[c]] + t - pass.start_C1[c];
    }
  }
}

void Update::add(const Pass& pass, bool compare, UpdateStatistics& s) const {
  const RunConfig& config = run_.config;
  const ops::TokenLogp now =
      pass.token_logp(*run_.policy.model, config.rollout.temperature, true,
                      config.train.recompute == TrainSection::Recompute::kBlocks);
  if (compare) compare_with_sampler(pass, now.logp, s);
  const CompletionBatch b = completions(pass, now);
  const Loss loss = algorithm_.loss(config.rl, b);
  at::Tensor total;
  for (const Term& term : loss.terms) {
    const at::Tensor part = (b.weight_M * term.value_M).sum() * term.coefficient;
    s.totals.loss += term.coefficient * total_of(b.weight_M * term.value_M);
    total = total.defined() ? total + part : part;
  }
  torch::autograd::backward({total}, {});
  s.totals.tokens_computed += static_cast<double>(pass.forest->num_tokens());
  if (b.ref_logp_M.defined())
    s.kl += total_of(kl(config.rl.kl_estimator, b.logp_M.detach(), b.ref_logp_M));
  s.entropy += total_of(b.entropy_M);
  s.clip_fraction += total_of(loss.clipped_M);
}

}  // namespace

UpdateStatistics forward_backward(train::Run& run, const Algorithm& algorithm,
                                  const TrainingBatch& batch, std::span<const size_t> chosen,
                                  bool compare) {
  dist::Group& group = *run.group;
  UpdateStatistics s;
  const Update update(run, algorithm, batch, chosen);
  for (const Pass& pass : plan_passes(batch.batch, chosen, run.config.train.micro_batch_tokens,
                                      group.rank(), group.size()))
    update.add(pass, compare, s);
  std::vector<double> sums{s.totals.loss, s.totals.tokens_computed, s.kl, s.entropy,
                           s.clip_fraction};
  group.all_reduce_sum(sums);
  for (const size_t i : chosen) {
    const Rollout& r = batch.batch.rollouts[i];
    s.totals.tokens +=
        static_cast<double>(r.prompt_tokens.size()) + static_cast<double>(r.length());
    s.totals.supervised_tokens += static_cast<double>(r.length());
  }
  s.totals.loss = sums[0];
  s.totals.tokens_computed = sums[1];
  s.kl = sums[2] / s.totals.supervised_tokens;
  s.entropy = sums[3] / s.totals.supervised_tokens;
  s.clip_fraction = sums[4] / s.totals.supervised_tokens;
  return s;
}

}  // namespace temper::rl
