#include "temper/ops/token_logp.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/head_blocks.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// The first entry of the vocabulary that this rank's weight has.
int64_t first_entry(const HeadSpec& spec, int64_t columns) {
  return spec.ranks ? spec.ranks->rank() * columns : 0;
}

// x [rows, ...] of each rank, side by side along the second dimension.
at::Tensor beside(Ranks& ranks, const at::Tensor& x) {
  at::Tensor all = at::empty({ranks.size() * x.numel()}, x.options());
  if (x.numel() > 0) ranks.all_gather(x.reshape({-1}), all);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.insert(shape.begin(), ranks.size());
  return all.view(shape).transpose(0, 1).flatten(1, 2).contiguous();
}

// The logit of a token that is not kept: exp of it less any logit is 0, and 0 times it is 0.
constexpr float kRuledOut = -1e30F;

// The kept tokens of a row among the vocabulary's entries [first, first + count).
std::span<const int32_t> kept_within(const KeptTokens& kept, int64_t row, int64_t first,
                                     int64_t count) {
  const auto r = static_cast<size_t>(row);
  const std::span<const int32_t> all(kept.id.data() + kept.offset[r],
                                     kept.id.data() + kept.offset[r + 1]);
  const auto begin = std::lower_bound(all.begin(), all.end(), first),
             end = std::lower_bound(begin, all.end(), first + count);
  return {begin, end};
}

// Rules out what is not kept in a tile x of the rows from `row` and the vocabulary's entries from
// `first` on.
void rule_out(const KeptTokens* kept, int64_t row, int64_t first, at::Tensor& x) {
  if (!kept) return;
  const int64_t rows = x.size(0), columns = x.size(1);
  at::Tensor out = at::zeros({rows, columns}, at::kBool);
  bool* at = out.mutable_data_ptr<bool>();
  for (int64_t r = 0; r < rows; ++r, at += columns) {
    const auto i = static_cast<size_t>(row + r);
    if (kept->offset[i] == kept->offset[i + 1]) continue;
    std::fill(at, at + columns, true);
    for (const int32_t id : kept_within(*kept, row + r, first, columns)) at[id - first] = false;
  }
  x.masked_fill_(out.to(x.device()), kRuledOut);
}

void check_kept(const KeptTokens& kept, const std::vector<int64_t>& target, int64_t vocabulary) {
  check(kept.offset.size() == target.size() + 1 && kept.offset.front() == 0 &&
            kept.offset.back() == static_cast<int64_t>(kept.id.size()),
        "token_logp: kept tokens of ", kept.offset.size() - 1, " rows for ", target.size());
  for (size_t i = 0; i < target.size(); ++i) {
    const auto begin = kept.id.begin() + kept.offset[i], end = kept.id.begin() + kept.offset[i + 1];
    if (begin == end) continue;
    check<DataError>(*begin >= 0 && *(end - 1) < vocabulary && std::is_sorted(begin, end) &&
                         std::binary_search(begin, end, target[i]),
                     "the tokens that truncation kept must be ascending ids below ", vocabulary,
                     " with the sampled token ", target[i], " among them");
  }
}

Weight with_values(Weight weight, const at::Tensor& values) {
  weight.values = values;
  return weight;
}

struct LogpKept {
  HeadSpec spec;
  Weight weight;      // without its values
  at::Tensor target;  // [M]
  int64_t columns;    // of the vocabulary on this rank
  std::shared_ptr<const KeptTokens> kept = nullptr;
  Weight up = {};  // the adapter's, without its values
  double up_scale = 1;
  bool adapted = false;
  Weight weight_of(const at::Tensor& values) const { return with_values(weight, values); }
  HeadAdapter adapter_of(const at::Tensor& low, const at::Tensor& values) const {
    if (!adapted) return {};
    return {low, with_values(up, values), up_scale};
  }
};

// The adapter's part of a block of the vocabulary, and of that its rows of the batch.
HeadAdapter block_of(const HeadAdapter& adapter, int64_t first, int64_t rows) {
  if (!adapter.low.defined()) return {};
  return {adapter.low, block_of(adapter.up, first, rows), adapter.scale};
}
HeadAdapter rows_of(const HeadAdapter& adapter, int64_t row, int64_t rows) {
  if (!adapter.low.defined()) return {};
  return {adapter.low.narrow(0, row, rows), adapter.up, adapter.scale};
}

struct LogpFunction : Function<LogpFunction> {
  static variable_list forward(AutogradContext* ctx, LogpKept what, const at::Tensor& hidden,
                               const at::Tensor& weight, const at::Tensor& low,
                               const at::Tensor& up) {
    const Backend& backend = backend_of(hidden);
    const int64_t m = hidden.size(0), vocabulary = weight.size(0);
    // Where another rank has the target it stays 0.
    at::Tensor chosen = at::zeros({m, 1}, hidden.options());
    const at::Tensor target = what.target.unsqueeze(1);
    at::Tensor parts = at::empty({m, blocks_of(vocabulary), 3}, hidden.options());
    const int64_t entry = first_entry(what.spec, vocabulary);
    const HeadAdapter adapter = what.adapter_of(low, up);
    each_block(what.weight_of(weight), m, [&](int64_t first, const Weight& part) {
      const HeadAdapter own = block_of(adapter, first, m);
      each_rows(backend, m, [&](int64_t row, int64_t rows) {
        at::Tensor x =
            tile_logits(what.spec, hidden.narrow(0, row, rows), part, rows_of(own, row, rows));
        rule_out(what.kept.get(), row, entry + first, x);
        backend.softmax_parts(x, parts_of(parts, row, rows, first, part.out()));
        backend.take_entries(x, entry + first, target.narrow(0, row, rows),
                             chosen.narrow(0, row, rows));
      });
    });
    if (what.spec.ranks) {
      parts = beside(*what.spec.ranks, parts);
      what.spec.ranks->all_reduce_sum(chosen);
    }
    const SoftmaxSums sums = backend.join_softmax_parts(parts);
    const at::Tensor logp = chosen.view({m}).sub_(sums.log_sum_exp);
    ctx->save_for_backward({hidden, weight, sums.log_sum_exp, sums.entropy, low, up});
    ctx->set_materialize_grads(false);
    variable_list constant;
    if (!what.spec.entropy) constant.push_back(sums.entropy);
    if (!what.spec.log_sum_exp) constant.push_back(sums.log_sum_exp);
    ctx->mark_non_differentiable(constant);
    what.weight.panels.reset();  // not for the backward pass
    what.up.panels.reset();
    keep(ctx, std::move(what));
    return {logp, sums.entropy, sums.log_sum_exp};
  }

  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &hidden = saved[0], &weight = saved[1];
    const SoftmaxSums sums{saved[2], saved[3]};
    const LogpKept& what = kept<LogpKept>(ctx);
    const int64_t m = hidden.size(0);
    at::Tensor g = douts[0].defined() ? douts[0].contiguous() : at::zeros({m}, hidden.options());
    // log Σ exp x = x[target] - logp: its gradient z takes g - z through logp and z to the target.
    const at::Tensor z = douts[2].defined() ? douts[2].contiguous() : at::Tensor();
    if (z.defined()) g = g - z;
    const at::Tensor h = douts[1].defined() ? douts[1].contiguous() : at::Tensor();
    const HeadAdapter adapter = what.adapter_of(saved[4], saved[5]);
    at::Tensor dhidden, dweight, dlow, dup;
    if (ctx->needs_input_grad(0)) dhidden = at::zeros_like(hidden);
    if (ctx->needs_input_grad(1)) dweight = at::zeros_like(weight);
    if (adapter.low.defined()) {
      dlow = at::zeros_like(adapter.low);
      dup = at::zeros_like(adapter.up.values);
    }
    each_block(what.weight_of(weight), m, [&](int64_t first, const Weight& part) {
      const at::Tensor backward_panels = dhidden.defined() ? pack_transposed(part) : at::Tensor();
      const HeadAdapter own = block_of(adapter, first, m);
      each_rows(backend_of(hidden), m, [&](int64_t row, int64_t rows) {
        const at::Tensor in = hidden.narrow(0, row, rows);
        const HeadAdapter of_rows = rows_of(own, row, rows);
        const at::Tensor dx =
            logits_gradient(what, sums, {in, part, of_rows, row, first}, {g, h, z});
        if (dhidden.defined()) {
          at::Tensor to = dhidden.narrow(0, row, rows);
          multiply_transposed(dx, part, to, true, backward_panels);
        }
        if (dweight.defined()) {
          at::Tensor to = dweight.narrow(0, first, part.out());
          weight_gradient(part, dx, in, to, true);
        }
        if (dlow.defined())
          adapter_gradients(of_rows, dx, dlow.narrow(0, row, rows),
                            dup.narrow(0, first, part.out()));
      });
    });
    if (dhidden.defined() && what.spec.ranks) what.spec.ranks->all_reduce_sum(dhidden);
    return {at::Tensor(), dhidden, dweight, dlow, dup};
  }

  // Gradients [M] of the target's logit less the log-sum-exp, of the entropy and of the
  // log-sum-exp; the last two may be undefined.
  struct RowGradients {
    at::Tensor g, h, z;
  };
  // Some rows of the batch from `row` on, and a block of the vocabulary from `first` on.
  struct Tile {
    const at::Tensor& hidden;
    const Weight& part;
    const HeadAdapter& adapter;
    int64_t row, first;
  };
  // The gradient of a tile's products, before scale, cap and temperature.
  static at::Tensor logits_gradient(const LogpKept& what, const SoftmaxSums& sums, const Tile& tile,
                                    const RowGradients& d) {
    const Backend& backend = backend_of(tile.hidden);
    const int64_t row = tile.row, first = tile.first, rows = tile.hidden.size(0),
                  entry = first_entry(what.spec, what.columns);
    const auto own = [&](const at::Tensor& x) {
      return x.defined() ? x.narrow(0, row, rows) : at::Tensor();
    };
    at::Tensor x = tile_logits(what.spec, tile.hidden, tile.part, tile.adapter);
    const at::Tensor before = what.spec.soft_cap > 0 ? x * what.spec.temperature : at::Tensor();
    rule_out(what.kept.get(), row, entry + first, x);
    backend.softmax_gradient(x, entry + first, own(what.target),
                             {own(sums.log_sum_exp), own(sums.entropy)}, own(d.g), own(d.h));
    if (d.z.defined())
      backend.add_to_entries(x, entry + first, own(what.target).unsqueeze(1),
                             own(d.z).unsqueeze(1));
    if (what.spec.temperature != 1) x.div_(what.spec.temperature);
    if (before.defined()) x.mul_(1 - (before / what.spec.soft_cap).square());
    if (what.spec.scale != 1) x.mul_(what.spec.scale);
    return x;
  }
  // Adds a tile's part, from the gradient of its products.
  static void adapter_gradients(const HeadAdapter& adapter, const at::Tensor& dx, at::Tensor dlow,
                                at::Tensor dup) {
    const at::Tensor scaled = dx * adapter.scale;
    multiply_transposed(scaled, adapter.up, dlow, true);
    weight_gradient(adapter.up, scaled, adapter.low, dup, true);
  }
};

void check_adapter(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight,
                   const HeadAdapter& adapter) {
  if (!adapter.low.defined()) return;
  check(!spec.ranks, "a head that is divided among ranks has no adapter");
  check(adapter.low.dim() == 2 && adapter.low.size(0) == hidden.size(0) &&
            adapter.up.in() == adapter.low.size(1) && adapter.up.out() == weight.out(),
        "a head's adapter: low ", adapter.low.sizes(), ", up ", adapter.up.values.sizes(), " for ",
        hidden.size(0), " rows and a vocabulary of ", weight.out());
}
}  // namespace

TokenLogp token_logp(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight,
                     const std::vector<int64_t>& target, std::shared_ptr<const KeptTokens> kept,
                     const HeadAdapter& adapter) {
  check(hidden.dim() == 2 && hidden.size(0) == static_cast<int64_t>(target.size()) &&
            hidden.size(1) == weight.in(),
        "token_logp: hidden ", hidden.sizes(), ", weight ", weight.values.sizes(), ", ",
        target.size(), " targets");
  check(spec.temperature > 0, "token_logp: temperature must be above 0");
  check_adapter(spec, hidden, weight, adapter);
  const int64_t vocabulary = weight.out() * (spec.ranks ? spec.ranks->size() : 1);
  for (const int64_t t : target)
    check<DataError>(t >= 0 && t < vocabulary, "token id ", t,
                     " is outside the model's vocabulary of ", vocabulary);
  if (kept) check_kept(*kept, target, vocabulary);
  LogpKept what{.spec = spec,
                .weight = with_values(weight, {}),
                .target = indices(target, hidden),
                .columns = weight.out(),
                .kept = std::move(kept),
                .up = with_values(adapter.up, {}),
                .up_scale = adapter.scale,
                .adapted = adapter.low.defined()};
  // Autograd takes no undefined tensor as an argument.
  const at::Tensor none = at::empty({0}, hidden.options());
  variable_list out = LogpFunction::apply(std::move(what), hidden.contiguous(), weight.values,
                                          adapter.low.defined() ? adapter.low : none,
                                          adapter.low.defined() ? adapter.up.values : none);
  return {out[0], spec.entropy ? out[1] : at::Tensor(), spec.log_sum_exp ? out[2] : at::Tensor()};
}

void exp_shifted(int64_t count, const float* x, float shift, float* y) {
  kernels::row_kernels<float>().exp_shifted(count, x, shift, y);
}

Logits logits(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight,
              const HeadAdapter& adapter) {
  check_adapter(spec, hidden, weight, adapter);
  const Backend& backend = backend_of(hidden);
  const int64_t m = hidden.size(0);
  const auto parts_of_whole = [&](const at::Tensor& x) {
    at::Tensor parts = at::empty({m, blocks_of(x.size(1)), 3}, x.options());
    backend.softmax_parts(x, parts);
    return parts;
  };
  Logits result;
  result.rank_columns = weight.out();
  result.logits = tile_logits(spec, hidden.contiguous(), weight, adapter);
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
