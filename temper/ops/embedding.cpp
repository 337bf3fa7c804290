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
  std::vector<int64_t> ids;
  double scale;
  std::vector<int64_t> table_shape;
  bool bfloat16 = false;
};

struct EmbeddingFunction : Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& table, const EmbeddingKept& what) {
    const int64_t n = static_cast<int64_t>(what.ids.size()), width = table.size(1);
    at::Tensor out = at::empty({n, width}, table.options());
    dispatch(table, [&](auto zero) {
      using T = decltype(zero);
      row_kernels<T>().gather_rows(n, width, values<T>(table), what.ids.data(),
                                   static_cast<T>(what.bfloat16 ? 1 : what.scale), out.mutable_data_ptr<T>());
    });
    if (what.bfloat16) {
      float* value = out.mutable_data_ptr<float>();
      const float scale = static_cast<float>(what.scale);
      for (int64_t i = 0; i < n * width; ++i) value[i] = kernels::to_float(kernels::to_bfloat16(value[i])) * scale;
    }
    keep(ctx, what);
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const EmbeddingKept& what = kept<EmbeddingKept>(ctx);
    const at::Tensor dout = douts[0].contiguous();
    at::Tensor dtable = at::zeros(what.table_shape, dout.options());
    dispatch(dout, [&](auto zero) {
      using T = decltype(zero);
      row_kernels<T>().scatter_rows(dout.size(0), dout.size(1), values<T>(dout), what.ids.data(), static_cast<T>(what.scale),
                                    dtable.mutable_data_ptr<T>());
    });
    return {dtable, at::Tensor()};
  }
};
}  // namespace

at::Tensor embedding(const at::Tensor& table, const std::vector<int64_t>& ids, double scale, bool bfloat16) {
  for (const int64_t id : ids)
    check<DataError>(id >= 0 && id < table.size(0), "token id ", id, " is outside the model's vocabulary of ", table.size(0));
  return EmbeddingFunction::apply(table, EmbeddingKept{ids, scale, table.sizes().vec(), bfloat16});
}

at::Tensor select_rows(const at::Tensor& x, const std::vector<int64_t>& rows) {
  for (const int64_t row : rows) check(row >= 0 && row < x.size(0), "select_rows: row ", row, " of ", x.size(0));
  return EmbeddingFunction::apply(x.contiguous(), EmbeddingKept{rows, 1.0, x.sizes().vec()});
}

}  // namespace temper::ops
