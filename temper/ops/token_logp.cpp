#include "temper/ops/token_logp.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "temper/ops/autograd.h"
#include "temper/ops/cpu/rows.h"
#include "temper/ops/head_blocks.h"
#include "temper/ops/product.h"

namespace temper::ops {
namespace {
using kernels::kVocabularyBlock;
using kernels::row_kernels;
using kernels::SoftmaxPart;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// x[r, target[row + r] - first] += z[row + r] where the target is one of x's columns.
template <class T>
void add_to_targets(const std::vector<int64_t>& target, int64_t row, int64_t first,
                    const at::Tensor& z, at::Tensor& x) {
  T* data = x.mutable_data_ptr<T>();
  for (int64_t r = 0; r < x.size(0); ++r) {
    const int64_t column = target[static_cast<size_t>(row + r)] - first;
    if (column >= 0 && column < x.size(1)) data[r * x.size(1) + column] += values<T>(z)[row + r];
  }
}

// The first entry of the vocabulary that this rank's weight has.
int64_t first_entry(const HeadSpec& spec, int64_t columns) {
  return spec.ranks ? spec.ranks->rank() * columns : 0;
}

// The parts [rows, blocks] of all ranks' columns, by row, in order.
template <class T>
std::vector<SoftmaxPart<T>> parts_of_all(const HeadSpec& spec, int64_t rows,
                                         const std::vector<SoftmaxPart<T>>& parts) {
  if (!spec.ranks) return parts;
  const auto count = static_cast<int64_t>(parts.size());
  const int64_t blocks = rows > 0 ? count / rows : 0, ranks = spec.ranks->size();
  const auto bytes = static_cast<int64_t>(sizeof(SoftmaxPart<T>));
  at::Tensor mine = at::empty({count * bytes}, at::kByte),
             all = at::empty({ranks * count * bytes}, at::kByte);
  std::memcpy(mine.mutable_data_ptr(), parts.data(), mine.nbytes());
  if (count > 0) spec.ranks->all_gather(mine, all);
  const at::Tensor by_row = all.view({ranks, rows, blocks * bytes}).transpose(0, 1).contiguous();
  std::vector<SoftmaxPart<T>> out(parts.size() * static_cast<size_t>(ranks));
  std::memcpy(out.data(), by_row.const_data_ptr(), by_row.nbytes());
  return out;
}

struct LogpKept {
  HeadSpec spec;
  Weight weight;  // without its values
  std::vector<int64_t> target;
  Weight weight_of(const at::Tensor& values) const {
    Weight w = weight;
    w.values = values;
    return w;
  }
};

struct LogpFunction : Function<LogpFunction> {
  static variable_list forward(AutogradContext* ctx, LogpKept what, const at::Tensor& hidden,
                               const at::Tensor& weight) {
    const int64_t m = hidden.size(0), vocabulary = weight.size(0);
    const int64_t blocks = (vocabulary + kVocabularyBlock - 1) / kVocabularyBlock;
    at::Tensor logp = at::empty({m}, hidden.options()), lse = at::empty({m}, hidden.options());
    at::Tensor entropy = at::empty({m}, hidden.options());
    dispatch(hidden, [&](auto zero) {
      using T = decltype(zero);
      std::vector<SoftmaxPart<T>> parts(static_cast<size_t>(m * blocks));
      T* chosen = logp.mutable_data_ptr<T>();
      if (what.spec.ranks) std::fill_n(chosen, m, T{0});  // where another rank has the target
      const int64_t entry = first_entry(what.spec, vocabulary);
      each_block(what.weight_of(weight), m, [&](int64_t first, const Weight& part) {
        const int64_t columns = part.out();
        for (int64_t i = 0; i < m; i += kRows) {
          const int64_t rows = std::min(kRows, m - i);
          at::Tensor x = at::empty({rows, columns}, hidden.options());
          chunk_logits<T>(what.spec, hidden.narrow(0, i, rows), part, x);
          const T* data = values<T>(x);
          row_kernels<T>().softmax_parts(rows, columns, data, columns,
                                         parts.data() + i * blocks + first / kVocabularyBlock,
                                         blocks);
          for (int64_t r = 0; r < rows; ++r) {
            const int64_t target = what.target[static_cast<size_t>(i + r)] - entry - first;
            if (target >= 0 && target < columns) chosen[i + r] = data[r * columns + target];
          }
        }
      });
      const std::vector<SoftmaxPart<T>> all = parts_of_all(what.spec, m, parts);
      row_kernels<T>().join_parts(m, what.spec.ranks ? blocks * what.spec.ranks->size() : blocks,
                                  all.data(), lse.mutable_data_ptr<T>(),
                                  entropy.mutable_data_ptr<T>());
      if (what.spec.ranks) what.spec.ranks->all_reduce_sum(logp);
      for (int64_t i = 0; i < m; ++i) chosen[i] -= values<T>(lse)[i];
    });
    ctx->save_for_backward({hidden, weight, lse, entropy});
    ctx->set_materialize_grads(false);
    variable_list constant;
    if (!what.spec.entropy) constant.push_back(entropy);
    if (!what.spec.log_sum_exp) constant.push_back(lse);
    ctx->mark_non_differentiable(constant);
    what.weight.panels.reset();  // not for the backward pass
    keep(ctx, std::move(what));
    return {logp, entropy, lse};
  }

  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &hidden = saved[0], &weight = saved[1], &lse = saved[2], &entropy = saved[3];
    const LogpKept& what = kept<LogpKept>(ctx);
    const int64_t m = hidden.size(0);
    at::Tensor g = douts[0].defined() ? douts[0].contiguous() : at::zeros({m}, hidden.options());
    // log Σ exp x = x[target] - logp: its gradient z takes g - z through logp and z to the target.
    const at::Tensor z = douts[2].defined() ? douts[2].contiguous() : at::Tensor();
    if (z.defined()) g = g - z;
    const at::Tensor h = douts[1].defined() ? douts[1].contiguous() : at::Tensor();
    at::Tensor dhidden, dweight;
    if (ctx->needs_input_grad(0)) dhidden = at::zeros_like(hidden);
    if (ctx->needs_input_grad(1)) dweight = at::zeros_like(weight);
    const int64_t entry = first_entry(what.spec, weight.size(0));
    dispatch(hidden, [&](auto zero) {
      using T = decltype(zero);
      each_block(what.weight_of(weight), m, [&](int64_t first, const Weight& part) {
        const int64_t columns = part.out();
        const at::Tensor backward_panels = dhidden.defined() ? pack_transposed(part) : at::Tensor();
        for (int64_t i = 0; i < m; i += kRows) {
          const int64_t rows = std::min(kRows, m - i);
          const at::Tensor in = hidden.narrow(0, i, rows);
          at::Tensor x = at::empty({rows, columns}, hidden.options());
          chunk_logits<T>(what.spec, in, part, x);
          const at::Tensor before =
              what.spec.soft_cap > 0 ? x * what.spec.temperature : at::Tensor();
          row_kernels<T>().softmax_gradient(
              rows, columns, entry + first, what.target.data() + i, values<T>(lse) + i,
              values<T>(entropy) + i, values<T>(g) + i, h.defined() ? values<T>(h) + i : nullptr,
              x.mutable_data_ptr<T>(), columns);
          if (z.defined()) add_to_targets<T>(what.target, i, entry + first, z, x);
          if (what.spec.temperature != 1) x.div_(what.spec.temperature);
          if (before.defined()) x.mul_(1 - (before / what.spec.soft_cap).square());
          if (dhidden.defined()) {
            at::Tensor to = dhidden.narrow(0, i, rows);
            multiply_transposed(x, part, to, true, backward_panels);
          }
          if (dweight.defined()) {
            at::Tensor to = dweight.narrow(0, first, columns);
            weight_gradient(part, x, in, to, true);
          }
        }
      });
    });
    if (dhidden.defined() && what.spec.ranks) what.spec.ranks->all_reduce_sum(dhidden);
    return {at::Tensor(), dhidden, dweight};
  }
};
}  // namespace

TokenLogp token_logp(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight,
                     const std::vector<int64_t>& target) {
  check(hidden.dim() == 2 && hidden.size(0) == static_cast<int64_t>(target.size()) &&
            hidden.size(1) == weight.in(),
        "token_logp: hidden ", hidden.sizes(), ", weight ", weight.values.sizes(), ", ",
        target.size(), " targets");
  check(spec.temperature > 0, "token_logp: temperature must be above 0");
  const int64_t vocabulary = weight.out() * (spec.ranks ? spec.ranks->size() : 1);
  for (const int64_t t : target)
    check<DataError>(t >= 0 && t < vocabulary, "token id ", t,
                     " is outside the model's vocabulary of ", vocabulary);
  LogpKept what{spec, weight, target};
  what.weight.values.reset();
  variable_list out = LogpFunction::apply(std::move(what), hidden.contiguous(), weight.values);
  return {out[0], spec.entropy ? out[1] : at::Tensor(), spec.log_sum_exp ? out[2] : at::Tensor()};
}

namespace {

// x [rows, n] of each rank, side by side.
at::Tensor columns_of_all(Ranks& ranks, const at::Tensor& x) {
  at::Tensor all = at::empty({ranks.size() * x.numel()}, x.options());
  ranks.all_gather(x.view({-1}), all);
  return all.view({ranks.size(), x.size(0), x.size(1)})
      .transpose(0, 1)
      .contiguous()
      .view({x.size(0), -1});
}

}  // namespace

Logits logits(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight) {
  static_assert(kLogitsBlock == kVocabularyBlock);
  const int64_t m = hidden.size(0);
  const auto blocks_of = [](int64_t count) {
    return (count + kVocabularyBlock - 1) / kVocabularyBlock;
  };
  const auto parts_of = [&](const at::Tensor& x) {
    const int64_t count = x.size(1), blocks = blocks_of(count);
    std::vector<SoftmaxPart<float>> parts(static_cast<size_t>(m * blocks));
    row_kernels<float>().softmax_parts(m, count, values<float>(x), count, parts.data(), blocks);
    return parts;
  };
  Logits result;
  result.logits = at::empty({m, weight.out()}, hidden.options());
  result.log_sum_exp = at::empty({m}, hidden.options());
  chunk_logits<float>(spec, hidden.contiguous(), weight, result.logits);
  std::vector<SoftmaxPart<float>> parts = parts_of(result.logits);
  // The log-sum-exp is of the parts that token_logp joins, the sampler's blocks are of the whole.
  const std::vector<SoftmaxPart<float>> joined = parts_of_all(spec, m, parts);
  if (spec.ranks && m > 0) {
    result.logits = columns_of_all(*spec.ranks, result.logits);
    parts = parts_of(result.logits);
  }
  const int64_t blocks = blocks_of(result.logits.size(1));
  row_kernels<float>().join_parts(m, m > 0 ? static_cast<int64_t>(joined.size()) / m : 0,
                                  joined.data(), result.log_sum_exp.mutable_data_ptr<float>(),
                                  nullptr);
  result.block_max = at::empty({m, blocks}, hidden.options());
  result.block_sum = at::empty({m, blocks}, hidden.options());
  for (int64_t i = 0; i < m * blocks; ++i) {
    result.block_max.mutable_data_ptr<float>()[i] = parts[static_cast<size_t>(i)].max;
    result.block_sum.mutable_data_ptr<float>()[i] = parts[static_cast<size_t>(i)].sum;
  }
  return result;
}

}  // namespace temper::ops
