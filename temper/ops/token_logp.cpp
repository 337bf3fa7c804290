#include "temper/ops/token_logp.h"

#include <ATen/ATen.h>

#include <cmath>

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
            const int64_t target = what.target[static_cast<size_t>(i + r)] - first;
            if (target >= 0 && target < columns) chosen[i + r] = data[r * columns + target];
          }
        }
      });
      row_kernels<T>().join_parts(m, blocks, parts.data(), lse.mutable_data_ptr<T>(),
                                  entropy.mutable_data_ptr<T>());
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
              rows, columns, first, what.target.data() + i, values<T>(lse) + i,
              values<T>(entropy) + i, values<T>(g) + i, h.defined() ? values<T>(h) + i : nullptr,
              x.mutable_data_ptr<T>(), columns);
          if (z.defined()) add_to_targets<T>(what.target, i, first, z, x);
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
  for (const int64_t t : target)
    check<DataError>(t >= 0 && t < weight.out(), "token id ", t,
                     " is outside the model's vocabulary of ", weight.out());
  LogpKept what{spec, weight, target};
  what.weight.values.reset();
  variable_list out = LogpFunction::apply(std::move(what), hidden.contiguous(), weight.values);
  return {out[0], spec.entropy ? out[1] : at::Tensor(), spec.log_sum_exp ? out[2] : at::Tensor()};
}

Logits logits(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight) {
  const int64_t m = hidden.size(0), vocabulary = weight.out();
  const int64_t blocks = (vocabulary + kVocabularyBlock - 1) / kVocabularyBlock;
  static_assert(kLogitsBlock == kVocabularyBlock);
  Logits result{at::empty({m, vocabulary}, hidden.options()), at::empty({m}, hidden.options()),
                at::empty({m, blocks}, hidden.options()), at::empty({m, blocks}, hidden.options())};
  const at::Tensor in = hidden.contiguous();
  std::vector<SoftmaxPart<float>> parts(static_cast<size_t>(m * blocks));
  chunk_logits<float>(spec, in, weight, result.logits);
  row_kernels<float>().softmax_parts(m, vocabulary, values<float>(result.logits), vocabulary,
                                     parts.data(), blocks);
  row_kernels<float>().join_parts(m, blocks, parts.data(),
                                  result.log_sum_exp.mutable_data_ptr<float>(), nullptr);
  for (int64_t i = 0; i < m; ++i)
    check(std::isfinite(values<float>(result.log_sum_exp)[i]),
          "the model's logits are not finite: its weights hold NaN or infinity, or overflow");
  for (int64_t i = 0; i < m * blocks; ++i) {
    result.block_max.mutable_data_ptr<float>()[i] = parts[static_cast<size_t>(i)].max;
    result.block_sum.mutable_data_ptr<float>()[i] = parts[static_cast<size_t>(i)].sum;
  }
  return result;
}

}  // namespace temper::ops
