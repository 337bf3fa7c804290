#include "temper/ops/logits/token_logp.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/logits/head_blocks.h"

namespace temper::ops {
namespace {

// The first entry of the vocabulary that this rank's weight has.
int64_t first_entry(const HeadSpec& spec, int64_t columns) {
  return spec.ranks ? spec.ranks->rank() * columns : 0;
}

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

// A call's arguments.
struct LogpInputs {
  HeadSpec spec;
  at::Tensor hidden;  // [M, H]
  Weight weight;
  at::Tensor target;  // [M, targets of a row]; where a row has fewer, the others are -1
  std::shared_ptr<const KeptTokens> kept;
  std::vector<HeadAdapter> adapters;
  // What gradients are asked of: hidden, the weight's values and its trained rows, then low and up
  // of each adapter.
  Tensors tensors() const {
    Tensors found{hidden, weight.values, weight.trained_values()};
    for (const HeadAdapter& a : adapters) found.insert(found.end(), {a.low, a.up.values});
    return found;
  }
};

// The adapters' parts of a block of the vocabulary.
std::vector<HeadAdapter> block_of(std::vector<HeadAdapter> adapters, int64_t first) {
  for (HeadAdapter& a : adapters) a.up = block_of(a.up, first, a.low.size(0));
  return adapters;
}

// What rows [row, row + rows) of the batch have of an adapter's rows, counted from `row` on.
struct AdapterOverlap {
  size_t adapter = 0;
  int64_t of_low = 0;  // its first row among the adapter's own
  HeadAdapter part;
};
std::vector<AdapterOverlap> overlaps(const std::vector<HeadAdapter>& adapters, int64_t row,
                                     int64_t rows) {
  std::vector<AdapterOverlap> found;
  for (size_t i = 0; i < adapters.size(); ++i) {
    const HeadAdapter& a = adapters[i];
    const int64_t begin = std::max(row, a.first_row),
                  end = std::min(row + rows, a.first_row + a.low.size(0));
    if (begin >= end) continue;
    const int64_t of_low = begin - a.first_row;
    found.push_back(
        {i, of_low, {a.low.narrow(0, of_low, end - begin), a.up, a.scale, begin - row}});
  }
  return found;
}
std::vector<HeadAdapter> adapter_parts(const std::vector<AdapterOverlap>& overlaps) {
  std::vector<HeadAdapter> parts;
  for (const AdapterOverlap& o : overlaps) parts.push_back(o.part);
  return parts;
}

struct LogpResult {
  at::Tensor logp;
  SoftmaxSums sums;
};
LogpResult logp_values(const LogpInputs& in) {
  const Backend& backend = backend_of(in.hidden);
  const int64_t m = in.hidden.size(0), vocabulary = in.weight.out();
  // Where another rank has the target it stays 0.
  at::Tensor chosen = at::zeros(in.target.sizes(), in.hidden.options());
  at::Tensor parts = at::empty({m, blocks_of(vocabulary), 3}, in.hidden.options());
  const int64_t entry = first_entry(in.spec, vocabulary);
  each_block(in.weight, m, [&](int64_t first, const Weight& part) {
    const std::vector<HeadAdapter> own = block_of(in.adapters, first);
    each_rows(backend, m, [&](int64_t row, int64_t rows) {
      at::Tensor x = tile_logits(in.spec, in.hidden.narrow(0, row, rows), part,
                                 adapter_parts(overlaps(own, row, rows)));
      rule_out(in.kept.get(), row, entry + first, x);
      backend.softmax_parts(x, parts_of(parts, row, rows, first, part.out()));
      backend.take_entries(x, entry + first, in.target.narrow(0, row, rows),
                           chosen.narrow(0, row, rows));
    });
  });
  if (in.spec.ranks) {
    parts = beside(*in.spec.ranks, parts);
    in.spec.ranks->all_reduce_sum(chosen);
  }
  const SoftmaxSums sums = backend.join_softmax_parts(parts);
  return {chosen.sub_(sums.log_sum_exp.unsqueeze(1)).flatten(), sums};
}

// Of several targets of a row each has its own gradient; the sum of a row's, in an order that
// nothing else changes.
at::Tensor sum_of_row(const at::Tensor& by_target) {
  at::Tensor sum = at::zeros({by_target.size(0)}, by_target.options().dtype(at::kDouble));
  for (int64_t k = 0; k < by_target.size(1); ++k) sum += by_target.select(1, k);
  return sum.to(by_target.scalar_type());
}

// Gradients [M] of the target's logit less the log-sum-exp, of the entropy and of the log-sum-exp;
// all but the first may be undefined. by_target [M, targets of a row]: what g is the sum of, where
// rows have several.
struct RowGradients {
  at::Tensor g, h, z, by_target;
};
RowGradients row_gradients(const LogpInputs& in, const Gradients& d) {
  RowGradients rows{.h = d[1], .z = d[2]};
  if (!d[0].defined())
    rows.g = at::zeros({in.hidden.size(0)}, in.hidden.options());
  else if (in.target.size(1) == 1)
    rows.g = d[0];
  else
    rows.g = sum_of_row(rows.by_target = d[0].view(in.target.sizes()));
  // log Σ exp x = x[target] - logp: its gradient z takes g - z through logp and z to the target.
  if (rows.z.defined()) rows.g = rows.g - rows.z;
  return rows;
}

// Some rows of the batch from `row` on, and a block of the vocabulary from `first` on.
struct LogpTile {
  const at::Tensor& hidden;
  const Weight& part;
  const std::vector<HeadAdapter>& adapters;
  int64_t row, first;
};
// The gradient of a tile's products, before scale, cap and temperature.
at::Tensor logits_gradient(const LogpInputs& in, const SoftmaxSums& sums, const LogpTile& tile,
                           const RowGradients& d) {
  const Backend& backend = backend_of(tile.hidden);
  const int64_t row = tile.row, first = tile.first, rows = tile.hidden.size(0),
                entry = first_entry(in.spec, in.weight.out());
  const auto own = [&](const at::Tensor& x) {
    return x.defined() ? x.narrow(0, row, rows) : at::Tensor();
  };
  at::Tensor x = tile_logits(in.spec, tile.hidden, tile.part, tile.adapters);
  const at::Tensor before = in.spec.soft_cap > 0 ? x * in.spec.temperature : at::Tensor();
  rule_out(in.kept.get(), row, entry + first, x);
  const at::Tensor target = own(in.target);
  // Of several targets none is the one that softmax_gradient knows.
  const bool many = target.size(1) != 1;
  backend.softmax_gradient(x, entry + first,
                           many ? at::full({rows}, -1, target.options()) : target.view({rows}),
                           {own(sums.log_sum_exp), own(sums.entropy)}, own(d.g), own(d.h));
  if (d.by_target.defined()) backend.add_to_entries(x, entry + first, target, own(d.by_target));
  if (d.z.defined()) backend.add_to_entries(x, entry + first, target, own(d.z).unsqueeze(1));
  if (in.spec.temperature != 1) x.div_(in.spec.temperature);
  if (before.defined()) x.mul_(1 - (before / in.spec.soft_cap).square());
  if (in.spec.scale != 1) x.mul_(in.spec.scale);
  return x;
}

// Adds a tile's part, from the gradient of its products.
void adapter_gradients(const HeadAdapter& adapter, const at::Tensor& dx, at::Tensor dlow,
                       at::Tensor dup) {
  const at::Tensor scaled = dx.narrow(0, adapter.first_row, adapter.low.size(0)) * adapter.scale;
  multiply_transposed(scaled, adapter.up, dlow, true);
  weight_gradient(adapter.up, scaled, adapter.low, dup, true);
}

Tensors logp_gradients(const LogpInputs& in, const SoftmaxSums& sums, const Gradients& d) {
  const int64_t m = in.hidden.size(0);
  const RowGradients of_rows = row_gradients(in, d);
  at::Tensor dhidden, dweight, drows;
  if (d.wanted(0)) dhidden = at::zeros_like(in.hidden);
  if (d.wanted(1)) dweight = at::zeros_like(in.weight.values);
  if (d.wanted(2)) drows = at::zeros_like(in.weight.trained_values());
  Tensors dadapters;  // low and up of each
  for (const HeadAdapter& adapter : in.adapters) {
    dadapters.push_back(at::zeros_like(adapter.low));
    dadapters.push_back(at::zeros_like(adapter.up.values));
  }
  each_block(in.weight, m, [&](int64_t first, const Weight& part) {
    const at::Tensor backward_panels = dhidden.defined() ? pack_transposed(part) : at::Tensor();
    const std::vector<HeadAdapter> own = block_of(in.adapters, first);
    each_rows(backend_of(in.hidden), m, [&](int64_t row, int64_t rows) {
      const at::Tensor hidden = in.hidden.narrow(0, row, rows);
      const std::vector<AdapterOverlap> adapted = overlaps(own, row, rows);
      const at::Tensor dx =
          logits_gradient(in, sums, {hidden, part, adapter_parts(adapted), row, first}, of_rows);
      if (dhidden.defined()) {
        at::Tensor to = dhidden.narrow(0, row, rows);
        multiply_transposed(dx, part, to, true, backward_panels);
      }
      if (dweight.defined()) {
        at::Tensor to = dweight.narrow(0, first, part.out());
        weight_gradient(part, dx, hidden, to, true);
      }
      trained_gradient(in.weight, first, dx, hidden, drows);
      for (const AdapterOverlap& o : adapted)
        adapter_gradients(o.part, dx,
                          dadapters[2 * o.adapter].narrow(0, o.of_low, o.part.low.size(0)),
                          dadapters[2 * o.adapter + 1].narrow(0, first, part.out()));
    });
  });
  if (dhidden.defined() && in.spec.ranks) in.spec.ranks->all_reduce_sum(dhidden);
  Tensors grads{dhidden, dweight, drows};
  grads.insert(grads.end(), dadapters.begin(), dadapters.end());
  return grads;
}

}  // namespace

TokenLogp token_logp(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight,
                     const std::vector<int64_t>& target, std::shared_ptr<const KeptTokens> kept,
                     const std::vector<HeadAdapter>& adapters) {
  const int64_t rows = hidden.dim() == 2 ? hidden.size(0) : 0, count = std::ssize(target),
                of_row = rows > 0 ? count / rows : 1;
  check(hidden.dim() == 2 && rows * of_row == count && (of_row > 0 || rows == 0) &&
            hidden.size(1) == weight.in(),
        "token_logp: hidden ", hidden.sizes(), ", weight ", weight.out(), " by ", weight.in(), ", ",
        target.size(), " targets");
  check(spec.temperature > 0, "token_logp: temperature must be above 0");
  check_adapters(spec, hidden, weight, adapters);
  check(of_row == 1 || (!kept && !spec.log_sum_exp),
        "token_logp: several targets of a row have neither kept tokens nor a log-sum-exp");
  const int64_t vocabulary = weight.out() * (spec.ranks ? spec.ranks->size() : 1),
                least = of_row == 1 ? 0 : -1;
  for (const int64_t t : target)
    check<DataError>(t >= least && t < vocabulary, "token id ", t,
                     " is outside the model's vocabulary of ", vocabulary);
  if (kept) check_kept(*kept, target, vocabulary);
  LogpInputs in{spec,
                hidden.contiguous(),
                weight,
                indices(target, hidden).view({rows, of_row}),
                std::move(kept),
                adapters};
  Recording call(in.tensors());
  const auto [logp, sums] = logp_values(in);
  call.reads(in.tensors());
  call.reads({sums.log_sum_exp, sums.entropy});
  in.weight.panels.reset();  // not for the backward pass
  for (HeadAdapter& adapter : in.adapters) adapter.up.panels.reset();
  const Tensors outputs{logp, spec.entropy ? sums.entropy : at::Tensor(),
                        spec.log_sum_exp ? sums.log_sum_exp : at::Tensor()};
  const Tensors out = call.outputs(outputs, [in = std::move(in), sums](const Gradients& d) {
    return logp_gradients(in, sums, d);
  });
  return {out[0], out[1], out[2]};
}

}  // namespace temper::ops
