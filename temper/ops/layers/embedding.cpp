#include "temper/ops/layers/embedding.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"

namespace temper::ops {
namespace {

// Rows ids [N] of the table times `scale`; zeros as those rows that `missing`, if it is defined,
// names.
at::Tensor rows_of_table(const Weight& table, const at::Tensor& ids, double scale,
                         const at::Tensor& missing) {
  Recording call({table.values});
  at::Tensor out = backend_of(table.tensor()).gather_rows(table, ids, scale);
  if (missing.defined()) out.index_fill_(0, missing, 0);
  return call.output(
      out, [=, shape = std::vector{table.out(), table.in()}](const Gradients& d) -> Tensors {
        const at::Tensor dout = missing.defined() ? d[0].index_fill(0, missing, 0) : d[0];
        at::Tensor dtable = at::zeros(shape, dout.options());
        backend_of(dout).scatter_rows(dout, ids, scale, dtable);
        return {dtable};
      });
}

}  // namespace

at::Tensor embedding(const Weight& table, const std::vector<int64_t>& ids, double scale) {
  std::vector<int64_t> rows = ids, missing;
  for (size_t i = 0; i < ids.size(); ++i) {
    check<DataError>(ids[i] == kNoRow || (ids[i] >= 0 && ids[i] < table.out()), "token id ", ids[i],
                     " is outside the model's vocabulary of ", table.out());
    if (ids[i] != kNoRow) continue;
    rows[i] = 0;
    missing.push_back(static_cast<int64_t>(i));
  }
  return rows_of_table(table, indices(rows, table.tensor()), scale,
                       missing.empty() ? at::Tensor() : indices(missing, table.tensor()));
}

at::Tensor select_rows(const at::Tensor& x, const std::vector<int64_t>& rows) {
  for (const int64_t row : rows)
    check(row >= 0 && row < x.size(0), "select_rows: row ", row, " of ", x.size(0));
  return rows_of_table(x.contiguous(), indices(rows, x), 1, {});
}

at::Tensor place_rows(const at::Tensor& x, const std::vector<int64_t>& rows, int64_t count) {
  check(x.size(0) == static_cast<int64_t>(rows.size()), "place_rows: ", rows.size(), " rows for ",
        x.size(0));
  for (const int64_t row : rows)
    check(row >= 0 && row < count, "place_rows: row ", row, " of ", count);
  const at::Tensor from = x.contiguous(), places = indices(rows, x);
  Recording call({from});
  at::Tensor out = at::zeros({count, x.size(1)}, x.options());
  backend_of(x).scatter_rows(from, places, 1, out);
  return call.output(out, [places](const Gradients& d) -> Tensors {
    return {backend_of(d[0]).gather_rows(d[0], places, 1)};
  });
}

}  // namespace temper::ops
