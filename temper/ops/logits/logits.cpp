// Logits of a few rows, for the sampler.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <set>

#include "temper/base/error.h"
#include "temper/ops/logits/choice.h"
#include "temper/ops/logits/head_blocks.h"
#include "temper/ops/native/kernels/rows.h"

namespace temper::ops {

void check_adapters(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight,
                    const std::vector<HeadAdapter>& adapters) {
  check(adapters.empty() || !spec.ranks, "a head that is divided among ranks has no adapter");
  for (const HeadAdapter& adapter : adapters)
    check(adapter.low.dim() == 2 && adapter.first_row >= 0 &&
              adapter.first_row + adapter.low.size(0) <= hidden.size(0) &&
              adapter.up.in() == adapter.low.size(1) && adapter.up.out() == weight.out(),
          "a head's adapter: low ", adapter.low.sizes(), " from row ", adapter.first_row, ", up ",
          adapter.up.values.sizes(), " for ", hidden.size(0), " rows and a vocabulary of ",
          weight.out());
}

void exp_shifted(int64_t count, const float* x, float shift, float* y) {
  kernels::row_kernels<float>().exp_shifted(count, x, shift, y);
}

Logits logits(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight,
              const std::vector<HeadAdapter>& adapters) {
  check_adapters(spec, hidden, weight, adapters);
  const Backend& backend = backend_of(hidden);
  const int64_t m = hidden.size(0);
  const auto parts_of_whole = [&](const at::Tensor& x) {
    at::Tensor parts = at::empty({m, blocks_of(x.size(1)), 3}, x.options());
    backend.softmax_parts(x, parts);
    return parts;
  };
  Logits result;
  result.rank_columns = weight.out();
  result.logits = tile_logits(spec, hidden.contiguous(), weight, adapters);
  at::Tensor parts = parts_of_whole(result.logits), joined = parts;
  if (spec.ranks) {
    // The log-sum-exp is of the parts that token_logp joins, the sampler's blocks are of the whole.
    joined = beside(*spec.ranks, parts);
    result.logits = beside(*spec.ranks, result.logits);
    parts = parts_of_whole(result.logits);
  }
  result.log_sum_exp = backend.join_softmax_parts(joined).log_sum_exp;
  result.block_max = parts.select(2, 0).contiguous();
  result.block_sum = parts.select(2, 1).contiguous();
  return result;
}

void exclude(std::span<const int32_t> tokens, Logits& x) {
  if (tokens.empty()) return;
  const Backend& backend = backend_of(x.logits);
  const std::vector<int64_t> columns(tokens.begin(), tokens.end());
  x.logits.index_fill_(1, at::tensor(columns, at::kLong).to(x.logits.device()), kRuledOut);
  std::set<int64_t> blocks;
  for (const int32_t token : tokens) blocks.insert(token / kLogitsBlock);
  for (const int64_t block : blocks) {
    const int64_t first = block * kLogitsBlock,
                  width = std::min(kLogitsBlock, x.logits.size(1) - first);
    at::Tensor parts = at::empty({x.logits.size(0), 1, 3}, x.logits.options());
    backend.softmax_parts(x.logits.narrow(1, first, width).contiguous(), parts);
    x.block_max.select(1, block).copy_(parts.select(2, 0).select(1, 0));
    x.block_sum.select(1, block).copy_(parts.select(2, 1).select(1, 0));
  }
}

// Blocks without a kept token would add nothing.
float kept_log_sum_exp(const float* x, int64_t rank_columns, std::span<const int32_t> kept) {
  const auto& kernels = kernels::row_kernels<float>();
  std::vector<kernels::SoftmaxPart<float>> parts;
  std::array<float, kLogitsBlock> block{};
  for (auto id = kept.begin(); id != kept.end();) {
    const int64_t of_rank = *id / rank_columns * rank_columns,
                  first = of_rank + (*id - of_rank) / kLogitsBlock * kLogitsBlock,
                  width = std::min(kLogitsBlock, of_rank + rank_columns - first);
    block.fill(kRuledOut);
    for (; id != kept.end() && *id < first + width; ++id)
      block[static_cast<size_t>(*id - first)] = x[*id];
    kernels.softmax_parts(1, width, block.data(), width, &parts.emplace_back(), 1);
  }
  float log_sum_exp = 0;
  kernels.join_parts(1, std::ssize(parts), parts.data(), &log_sum_exp, nullptr);
  return log_sum_exp;
}

}  // namespace temper::ops
