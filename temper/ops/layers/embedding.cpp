#include "temper/ops/layers/embedding.h"

#include <ATen/ATen.h>

#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

struct EmbeddingKept {
  at::Tensor ids;  // [N] row of each id; any row for missing ones
  double scale = 1;
  std::vector<int64_t> table_shape;
  WeightFormat format = WeightFormat::kFloat32;
  at::Tensor missing = {};  // rows of the output that are zeros; undefined: none
};

struct EmbeddingFunction : Function<EmbeddingFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& table,
                            const EmbeddingKept& what) {
    keep(ctx, what);
    Weight rows;
    rows.values = table;
    rows.format = what.format;
    at::Tensor out = backend_of(table).gather_rows(rows, what.ids, what.scale);
    return what.missing.defined() ? out.index_fill_(0, what.missing, 0) : out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const EmbeddingKept& what = kept<EmbeddingKept>(ctx);
    at::Tensor dout = douts[0].contiguous();
    if (what.missing.defined()) dout = dout.index_fill(0, what.missing, 0);
    at::Tensor dtable = at::zeros(what.table_shape, dout.options());
    backend_of(dout).scatter_rows(dout, what.ids, what.scale, dtable);
    return {dtable, at::Tensor()};
  }
};

struct PlaceFunction : Function<PlaceFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& rows,
                            int64_t count) {
    keep(ctx, rows);
    at::Tensor out = at::zeros({count, x.size(1)}, x.options());
    backend_of(x).scatter_rows(x, rows, 1, out);
    return out;
  }
  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const at::Tensor dout = douts[0].contiguous();
    return {backend_of(dout).gather_rows(dout, kept<at::Tensor>(ctx), 1), at::Tensor(),
            at::Tensor()};
  }
};
}  // namespace

at::Tensor embedding(const Weight& table, const std::vector<int64_t>& ids, double scale) {
  check(!table.quantized, "an embedding's table is not quantized");
  std::vector<int64_t> rows = ids, missing;
  for (size_t i = 0; i < ids.size(); ++i) {
    check<DataError>(ids[i] == kNoRow || (ids[i] >= 0 && ids[i] < table.out()), "token id ", ids[i],
                     " is outside the model's vocabulary of ", table.out());
    if (ids[i] != kNoRow) continue;
    rows[i] = 0;
    missing.push_back(static_cast<int64_t>(i));
  }
  return EmbeddingFunction::apply(
      table.values,
      EmbeddingKept{indices(rows, table.values), scale, table.values.sizes().vec(), table.format,
                    missing.empty() ? at::Tensor() : indices(missing, table.values)});
}

at::Tensor select_rows(const at::Tensor& x, const std::vector<int64_t>& rows) {
  for (const int64_t row : rows)
    check(row >= 0 && row < x.size(0), "select_rows: row ", row, " of ", x.size(0));
  return EmbeddingFunction::apply(
      x.contiguous(), EmbeddingKept{.ids = indices(rows, x), .table_shape = x.sizes().vec()});
}

at::Tensor place_rows(const at::Tensor& x, const std::vector<int64_t>& rows, int64_t count) {
  check(x.size(0) == static_cast<int64_t>(rows.size()), "place_rows: ", rows.size(), " rows for ",
        x.size(0));
  for (const int64_t row : rows)
    check(row >= 0 && row < count, "place_rows: row ", row, " of ", count);
  return PlaceFunction::apply(x.contiguous(), indices(rows, x), count);
}

}  // namespace temper::ops
