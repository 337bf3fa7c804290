#include "temper/ops/embedding.h"

#include <ATen/ATen.h>

#include "temper/ops/autograd.h"
#include "temper/ops/cpu/gemm.h"
#include "temper/ops/cpu/rows.h"

namespace temper::ops {
namespace {
using kernels::row_kernels;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct EmbeddingKept {
  std::vector<int64_t> ids;  // of missing rows any
  double scale;
  std::vector<int64_t> table_shape;
  WeightFormat format = WeightFormat::kFloat32;
  std::vector<int64_t> missing = {};  // rows of the output that are zeros
};

void zero_rows(const std::vector<int64_t>& rows, at::Tensor& x) {
  for (const int64_t row : rows) x.select(0, row).zero_();
}

// Rows as products see them: stored in bfloat16, or float32 that is rounded to it.
void gather_bfloat16(const at::Tensor& table, const EmbeddingKept& what, at::Tensor& out) {
  const int64_t n = out.size(0), width = out.size(1);
  const bool stored = what.format == WeightFormat::kBFloat16;
  const kernels::BFloat16Bits* bits = stored ? bfloat16_bits(table) : nullptr;
  const float* exact = stored ? nullptr : values<float>(table);
  const float scale = static_cast<float>(what.scale);
  float* to = out.mutable_data_ptr<float>();
#pragma omp parallel for schedule(static) if (n * width > 32768)
  for (int64_t r = 0; r < n; ++r) {
    const int64_t from = what.ids[static_cast<size_t>(r)] * width;
    for (int64_t j = 0; j < width; ++j)
      to[r * width + j] = scale * kernels::to_float(stored ? bits[from + j]
                                                           : kernels::to_bfloat16(exact[from + j]));
  }
}

struct EmbeddingFunction : Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& table,
                            const EmbeddingKept& what) {
    const int64_t n = static_cast<int64_t>(what.ids.size()), width = table.size(1);
    keep(ctx, what);
    if (what.format != WeightFormat::kFloat32) {
      at::Tensor out = at::empty({n, width}, at::kFloat);
      gather_bfloat16(table, what, out);
      zero_rows(what.missing, out);
      return out;
    }
    at::Tensor out = at::empty({n, width}, table.options());
    dispatch(table, [&](auto zero) {
      using T = decltype(zero);
      row_kernels<T>().gather_rows(n, width, values<T>(table), what.ids.data(),
                                   static_cast<T>(what.scale), out.mutable_data_ptr<T>());
    });
    zero_rows(what.missing, out);
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const EmbeddingKept& what = kept<EmbeddingKept>(ctx);
    at::Tensor dout = douts[0].contiguous();
    if (!what.missing.empty()) zero_rows(what.missing, dout = dout.clone());
    at::Tensor dtable = at::zeros(what.table_shape, dout.options());
    dispatch(dout, [&](auto zero) {
      using T = decltype(zero);
      row_kernels<T>().scatter_rows(dout.size(0), dout.size(1), values<T>(dout), what.ids.data(),
                                    static_cast<T>(what.scale), dtable.mutable_data_ptr<T>());
    });
    return {dtable, at::Tensor()};
  }
};
}  // namespace

at::Tensor embedding(const Weight& table, const std::vector<int64_t>& ids, double scale) {
  check(!table.quantized, "an embedding's table is not quantized");
  EmbeddingKept what{ids, scale, table.values.sizes().vec(), table.format};
  for (size_t i = 0; i < ids.size(); ++i) {
    check<DataError>(ids[i] == kNoRow || (ids[i] >= 0 && ids[i] < table.out()), "token id ", ids[i],
                     " is outside the model's vocabulary of ", table.out());
    if (ids[i] != kNoRow) continue;
    what.ids[i] = 0;
    what.missing.push_back(static_cast<int64_t>(i));
  }
  return EmbeddingFunction::apply(table.values, what);
}

at::Tensor select_rows(const at::Tensor& x, const std::vector<int64_t>& rows) {
  for (const int64_t row : rows)
    check(row >= 0 && row < x.size(0), "select_rows: row ", row, " of ", x.size(0));
  return EmbeddingFunction::apply(x.contiguous(), EmbeddingKept{rows, 1.0, x.sizes().vec()});
}

}  // namespace temper::ops
