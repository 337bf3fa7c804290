#include "temper/rl/forward.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <numeric>

#include "temper/data/loader.h"

namespace temper::rl {
namespace {

// A prompt and some of its group's completions: what cannot be torn apart without computing the
// prompt twice.
struct Family {
  std::vector<size_t> rollouts;
  int64_t tokens = 0;
};

std::vector<Family> families(const RolloutBatch& batch, std::span<const size_t> chosen,
                             int64_t max_tokens) {
  std::vector<Family> out;
  for (const size_t i : chosen) {
    const Rollout& r = batch.rollouts[i];
    const Rollout* last = out.empty() ? nullptr : &batch.rollouts[out.back().rollouts.back()];
    const bool same = last && last->group == r.group && last->prompt_tokens == r.prompt_tokens;
    if (!same || out.back().tokens + r.length() > max_tokens)
      out.push_back({{}, static_cast<int64_t>(r.prompt_tokens.size())});
    out.back().rollouts.push_back(i);
    out.back().tokens += r.length();
  }
  return out;
}

void add(Pass& pass, const RolloutBatch& batch, const Family& family) {
  const int64_t prompt = pass.forest->add_root(batch.rollouts[family.rollouts[0]].prompt_tokens);
  const int64_t prompt_last = pass.forest->num_tokens() - 1;
  for (const size_t i : family.rollouts) {
    const std::vector<int32_t>& tokens = batch.rollouts[i].completion_tokens;
    const int64_t first = pass.forest->num_tokens();
    pass.forest->add_child(prompt, tokens);
    for (size_t t = 0; t < tokens.size(); ++t) {
      pass.at_M.push_back(t == 0 ? prompt_last : first + static_cast<int64_t>(t) - 1);
      pass.target_M.push_back(tokens[t]);
    }
    pass.rollouts.push_back(i);
    pass.start_C1.push_back(static_cast<int64_t>(pass.target_M.size()));
  }
}

}  // namespace

ops::TokenLogp Pass::token_logp(models::CausalLM& model, double temperature, bool entropy,
                                bool recompute, int adapter) const {
  const at::Tensor hidden =
      model.forward({.forest = forest, .adapter = adapter, .recompute = recompute});
  return model.token_logp(hidden, at_M, target_M, temperature, entropy);
}

std::vector<Pass> plan_passes(const RolloutBatch& batch, std::span<const size_t> chosen,
                              int64_t max_tokens, int rank, int ranks) {
  const std::vector<Family> all = families(batch, chosen, max_tokens);
  std::vector<int64_t> lengths;
  for (const Family& f : all) lengths.push_back(f.tokens);
  const std::vector<size_t> mine = data::split_rows(lengths, ranks)[static_cast<size_t>(rank)];
  std::vector<int64_t> my_lengths;
  for (const size_t f : mine) my_lengths.push_back(lengths[f]);
  std::vector<Pass> passes;
  for (const std::vector<size_t>& pass : data::pack_rows(my_lengths, max_tokens)) {
    passes.emplace_back();
    for (const size_t f : pass) add(passes.back(), batch, all[mine[f]]);
  }
  return passes;
}

std::vector<int64_t> token_offsets(const RolloutBatch& batch) {
  std::vector<int64_t> offsets{0};
  for (const Rollout& r : batch.rollouts) offsets.push_back(offsets.back() + r.length());
  return offsets;
}

at::Tensor score_rollouts(models::CausalLM& model, const RolloutBatch& batch, int64_t max_tokens,
                          double temperature, dist::Group& group, int adapter) {
  const at::NoGradGuard no_grad;
  std::vector<size_t> all(batch.rollouts.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const std::vector<int64_t> offsets = token_offsets(batch);
  at::Tensor flat = at::zeros({offsets.back()}, at::kFloat);
  for (const Pass& pass : plan_passes(batch, all, max_tokens, group.rank(), group.size())) {
    const at::Tensor logp_M = pass.token_logp(model, temperature, false, false, adapter).logp;
    for (size_t c = 0; c < pass.rollouts.size(); ++c) {
      const int64_t length = pass.start_C1[c + 1] - pass.start_C1[c];
      flat.narrow(0, offsets[pass.rollouts[c]], length)
          .copy_(logp_M.narrow(0, pass.start_C1[c], length));
    }
  }
  if (group.size() > 1) group.all_reduce_sum(flat);  // every other rank has zeros there
  return flat;
}

}  // namespace temper::rl
