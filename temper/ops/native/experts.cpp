// Products of several weights at once, and a mixture's router. Experts get few rows each, and so
// does a decoded token's layer, so that a single weight's product would leave threads without work,
// or wait for them as long as it computes: all of them are shared out at once, a range of columns
// of one weight's result at a time.
#include <ATen/ATen.h>
#include <omp.h>

#include <algorithm>

#include "temper/ops/native/kernels/integer/integer_gemm.h"
#include "temper/ops/native/kernels/processors.h"
#include "temper/ops/native/kernels/routing.h"
#include "temper/ops/native/native.h"
#include "temper/ops/native/weight_views.h"

namespace temper::ops {
namespace {
using kernels::BFloat16Bits;

constexpr int64_t kTasksOfThread = 8;
constexpr int64_t kFewRows = 12;      // for which several products are one parallel loop
constexpr int64_t kPanelsAtOnce = 4;  // which the kernel for one row reads together
// Below these, of arithmetic or of reading weights, threads cost more than they save (gemm.cpp).
constexpr int64_t kLeastProducts = 2'000'000, kLeastNumbers = 100'000;

// Columns [first, first + count) of the product of one expert, whose rows are [begin, begin +
// rows).
struct GroupTask {
  size_t group;
  int64_t begin, rows, first, count;
};

// `columns` are divided at multiples of a panel's width, or not at all.
std::vector<GroupTask> group_tasks(const std::vector<int64_t>& offsets, int64_t columns,
                                   bool divisible, int threads) {
  const int64_t panel = kernels::panel_width(), panels = (columns + panel - 1) / panel,
                all = std::max<int64_t>(offsets.back(), 1),
                wanted = threads == 1 ? 1 : kTasksOfThread * threads;
  std::vector<GroupTask> tasks;
  for (size_t g = 0; g + 1 < offsets.size(); ++g) {
    const int64_t begin = offsets[g], rows = offsets[g + 1] - begin;
    const int64_t pieces =
        divisible ? std::clamp<int64_t>((wanted * rows + all - 1) / all, 1, panels) : 1;
    const int64_t per = (panels + pieces - 1) / pieces * panel;
    for (int64_t first = 0; first < columns && rows > 0; first += per)
      tasks.push_back({g, begin, rows, first, std::min(per, columns - first)});
  }
  return tasks;
}

// The columns that a thread takes at once of one of several products of few rows: two parts for
// each thread.
int64_t columns_of_task(int64_t columns, int threads) {
  const int64_t whole = kPanelsAtOnce * kernels::panel_width(), parts = 2 * int64_t{threads};
  return ((columns + parts - 1) / parts + whole - 1) / whole * whole;
}

// Runs body(task) for all of them, on as many threads as pay. `depth`: products of an element.
template <class Body>
void each_group_task(const std::vector<int64_t>& offsets, int64_t columns, int64_t depth,
                     bool divisible, Body body) {
  if (!omp_in_parallel()) kernels::take_processors();
  const int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
  const int64_t rows = offsets.back(), groups = static_cast<int64_t>(offsets.size()) - 1;
  const bool parallel = threads > 1 && (rows * columns * depth > kLeastProducts ||
                                        groups * columns * depth > kLeastNumbers);
  const std::vector<GroupTask> tasks =
      group_tasks(offsets, columns, divisible, parallel ? threads : 1);
#pragma omp parallel for schedule(dynamic) if (parallel)
  for (size_t t = 0; t < tasks.size(); ++t) body(tasks[t]);
}

// c[m, n] (rows ldc apart) = a[m, k] times the columns of b[k, n], which are packed here.
template <class B>
void multiply_view(int64_t m, int64_t n, int64_t k, kernels::MatrixView<float> a,
                   kernels::MatrixView<B> b, bool to_bfloat16, float* c, int64_t ldc,
                   const kernels::GemmOptions& options) {
  const at::Tensor panels =
      at::empty({kernels::packed_size(k, n)}, to_bfloat16 ? at::kBFloat16 : at::kFloat);
  if (to_bfloat16) {
    auto* bits = reinterpret_cast<BFloat16Bits*>(panels.mutable_data_ptr<at::BFloat16>());
    kernels::pack(b, k, n, bits);
    return kernels::gemm(m, n, k, a, bits, c, ldc, options);
  }
  if constexpr (std::is_same_v<B, float>) {
    kernels::pack(b, k, n, panels.mutable_data_ptr<float>());
    kernels::gemm(m, n, k, a, panels.const_data_ptr<float>(), c, ldc, options);
  }
}

// The same of a weight's values, as rows_of or columns_of view them from value `from` on.
template <class View>
void multiply_weight(int64_t m, int64_t n, int64_t k, kernels::MatrixView<float> a, const Weight& w,
                     const View& view, float* c, int64_t ldc, const kernels::GemmOptions& options) {
  if (w.format == WeightFormat::kBFloat16)
    multiply_view(m, n, k, a, view(bfloat16_bits(w.values)), true, c, ldc, options);
  else
    multiply_view(m, n, k, a, view(values<float>(w.values)), reads_bfloat16(w), c, ldc, options);
}

// Rows for the layers that multiply in integers, rounded once: as the first of them asks for.
kernels::RoundedRows rounded_rows(const at::Tensor& x, const std::vector<LinearOperand>& layer) {
  for (const LinearOperand& operand : layer)
    if (operand.weight.in_integers())
      return kernels::round_rows(x.size(0), {values<float>(x), x.size(1), 1}, x.size(1),
                                 matrix_of(*operand.weight.quantized).group);
  return {};
}

void multiply_task(const GroupTask& t, const at::Tensor& x, const kernels::RoundedRows& rounded,
                   const LinearOperand& layer, at::Tensor& y) {
  const Weight& w = layer.weight;
  const int64_t k = w.in(), n = w.out();
  const kernels::MatrixView<float> a{values<float>(x) + t.begin * k, k, 1};
  float* c = y.mutable_data_ptr<float>() + t.begin * n + t.first;
  kernels::GemmOptions options{
      .bias = layer.bias.defined() ? values<float>(layer.bias) + t.first : nullptr,
      .rounding = rounding_of(w)};
  if (w.in_integers()) {
    const kernels::QuantizedMatrix part = rows_of(matrix_of(*w.quantized), t.first, t.count);
    if (part.group != rounded.group)
      return kernels::integer_gemm(t.rows, a, part, c, n, options.bias);
    return kernels::multiply_integers(rounded, t.begin, t.rows, part, c, n, options.bias);
  }
  if (w.quantized)
    return kernels::gemm(t.rows, a, rows_of(matrix_of(*w.quantized), t.first, t.count), c, n,
                         options);
  if (!w.panels.defined())
    return multiply_weight(
        t.rows, t.count, k, a, w,
        [&](const auto* data) { return columns_of(w, data + t.first * k); }, c, n, options);
  options.panel_begin = t.first;
  if (w.panels.scalar_type() == at::kBFloat16)
    kernels::gemm(t.rows, t.count, k, a, bfloat16_bits(w.panels), c, n, options);
  else
    kernels::gemm(t.rows, t.count, k, a, values<float>(w.panels), c, n, options);
}

bool any_quantized(const std::vector<LinearOperand>& layer) {
  return std::any_of(layer.begin(), layer.end(),
                     [](const LinearOperand& o) { return o.weight.quantized != nullptr; });
}

}  // namespace

void NativeBackend::multiply_each(const at::Tensor& x, const std::vector<LinearOperand>& layers,
                                  std::vector<at::Tensor>& y) const {
  const bool kept = std::all_of(layers.begin(), layers.end(), [](const LinearOperand& o) {
    return o.weight.quantized || o.weight.panels.defined();
  });
  const int64_t rows = x.size(0);
  if (layers.size() == 1 || rows > kFewRows || !kept) return Backend::multiply_each(x, layers, y);
  if (!omp_in_parallel()) kernels::take_processors();
  const int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
  int64_t numbers = 0;
  for (const LinearOperand& o : layers) numbers += o.weight.in() * o.weight.out();
  const bool parallel = threads > 1 && (rows * numbers > kLeastProducts || numbers > kLeastNumbers);
  std::vector<GroupTask> tasks;
  for (size_t i = 0; i < layers.size(); ++i) {
    const int64_t columns = layers[i].weight.out(),
                  per = parallel ? columns_of_task(columns, threads) : columns;
    for (int64_t first = 0; first < columns; first += per)
      tasks.push_back({i, 0, rows, first, std::min(per, columns - first)});
  }
  const kernels::RoundedRows rounded = rounded_rows(x, layers);
#pragma omp parallel for schedule(dynamic) if (parallel)
  for (size_t t = 0; t < tasks.size(); ++t)
    multiply_task(tasks[t], x, rounded, layers[tasks[t].group], y[tasks[t].group]);
}

void NativeBackend::grouped_multiply(const at::Tensor& x, const std::vector<int64_t>& offsets,
                                     const std::vector<LinearOperand>& layer, at::Tensor& y) const {
  if (y.scalar_type() == at::kDouble) return Backend::grouped_multiply(x, offsets, layer, y);
  const kernels::RoundedRows rounded = rounded_rows(x, layer);
  each_group_task(offsets, y.size(1), x.size(1), true,
                  [&](const GroupTask& t) { multiply_task(t, x, rounded, layer[t.group], y); });
}

void NativeBackend::grouped_multiply_transposed(const at::Tensor& dy,
                                                const std::vector<int64_t>& offsets,
                                                const std::vector<LinearOperand>& layer,
                                                at::Tensor& dx, bool accumulate) const {
  if (dx.scalar_type() == at::kDouble)
    return Backend::grouped_multiply_transposed(dy, offsets, layer, dx, accumulate);
  const int64_t k = dy.size(1), n = dx.size(1);
  each_group_task(offsets, n, k, !any_quantized(layer), [&](const GroupTask& t) {
    const Weight& w = layer[t.group].weight;
    const kernels::MatrixView<float> a{values<float>(dy) + t.begin * k, k, 1};
    float* c = dx.mutable_data_ptr<float>() + t.begin * n + t.first;
    const kernels::GemmOptions options{.accumulate = accumulate, .rounding = rounding_of(w)};
    if (w.quantized)
      return kernels::gemm_transposed(t.rows, a, matrix_of(*w.quantized), c, n, options);
    multiply_weight(
        t.rows, t.count, k, a, w, [&](const auto* data) { return rows_of(w, data + t.first); }, c,
        n, options);
  });
}

void NativeBackend::grouped_weight_gradients(const std::vector<LinearOperand>& layer,
                                             const at::Tensor& dy, const at::Tensor& x,
                                             const std::vector<int64_t>& offsets,
                                             std::vector<at::Tensor>& dw) const {
  if (x.scalar_type() == at::kDouble)
    return Backend::grouped_weight_gradients(layer, dy, x, offsets, dw);
  const int64_t m = dy.size(1), n = x.size(1);
  each_group_task(offsets, n, m, true, [&](const GroupTask& t) {
    if (!dw[t.group].defined()) return;
    const kernels::Rounding rounding = rounding_of(layer[t.group].weight);
    multiply_view(m, t.count, t.rows,
                  kernels::MatrixView<float>{values<float>(dy) + t.begin * m, 1, m},
                  kernels::MatrixView<float>{values<float>(x) + t.begin * n + t.first, n, 1},
                  rounding != kernels::Rounding::kNone,
                  dw[t.group].mutable_data_ptr<float>() + t.first, n, {.rounding = rounding});
  });
}

Routing NativeBackend::route(const RouterSpec& spec, const at::Tensor& logits,
                             const at::Tensor& bias) const {
  const int64_t rows = logits.size(0);
  Routing out{at::empty({rows, spec.chosen}, at::kLong),
              at::empty({rows, spec.chosen}, logits.options())};
  dispatch(logits, [&](auto zero) {
    using T = decltype(zero);
    kernels::route(spec, rows, values<T>(logits), values<T>(bias),
                   out.expert.mutable_data_ptr<int64_t>(), out.weight.mutable_data_ptr<T>());
  });
  return out;
}

at::Tensor NativeBackend::route_backward(const RouterSpec& spec, const at::Tensor& logits,
                                         const at::Tensor& expert,
                                         const at::Tensor& dweight) const {
  at::Tensor dlogits = at::empty_like(logits);
  dispatch(logits, [&](auto zero) {
    using T = decltype(zero);
    kernels::route_backward(spec, logits.size(0), values<T>(logits), values<int64_t>(expert),
                            values<T>(dweight), dlogits.mutable_data_ptr<T>());
  });
  return dlogits;
}

at::Tensor NativeBackend::router_probabilities(const at::Tensor& logits) const {
  at::Tensor p = at::empty_like(logits);
  dispatch(logits, [&](auto zero) {
    using T = decltype(zero);
    kernels::router_probabilities(logits.size(0), logits.size(1), values<T>(logits),
                                  p.mutable_data_ptr<T>());
  });
  return p;
}

at::Tensor NativeBackend::router_probabilities_backward(const at::Tensor& logits,
                                                        const at::Tensor& g) const {
  at::Tensor dlogits = at::empty_like(logits);
  dispatch(logits, [&](auto zero) {
    using T = decltype(zero);
    kernels::router_probabilities_backward(logits.size(0), logits.size(1), values<T>(logits),
                                           values<T>(g), dlogits.mutable_data_ptr<T>());
  });
  return dlogits;
}

void NativeBackend::combine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& place,
                            at::Tensor& y, bool accumulate) const {
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    kernels::combine(weight.size(0), weight.size(1), x.size(1), values<T>(x), values<T>(weight),
                     values<int64_t>(place), y.mutable_data_ptr<T>(), accumulate);
  });
}

std::pair<at::Tensor, at::Tensor> NativeBackend::combine_backward(const at::Tensor& x,
                                                                  const at::Tensor& weight,
                                                                  const at::Tensor& place,
                                                                  const at::Tensor& dy) const {
  at::Tensor dx = at::empty_like(x), dweight = at::empty_like(weight);
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    kernels::combine_backward(weight.size(0), weight.size(1), x.size(1), values<T>(x),
                              values<T>(weight), values<int64_t>(place), values<T>(dy),
                              dx.mutable_data_ptr<T>(), dweight.mutable_data_ptr<T>());
  });
  return {dx, dweight};
}

}  // namespace temper::ops
