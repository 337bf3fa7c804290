#include "temper/ops/layers/embedding.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"

namespace temper::ops {
namespace {

// Which of a call's rows [i] are trained ones of the table, and which of these, in order.
struct TrainedPlaces {
  at::Tensor row, trained;
};
TrainedPlaces trained_places(const Weight& table, const std::vector<int64_t>& ids) {
  const std::vector<int64_t>& known = table.trained->id;
  std::vector<int64_t> row, trained;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto found = std::lower_bound(known.begin(), known.end(), ids[i]);
    if (found == known.end() || *found != ids[i]) continue;
    row.push_back(static_cast<int64_t>(i));
    trained.push_back(found - known.begin());
  }
  return {indices(row, table.tensor()), indices(trained, table.tensor())};
}

// Rows ids [N] of the table times `scale`; zeros as those rows that `missing`, if it is defined,
// names.
at::Tensor rows_of_table(const Weight& table, const at::Tensor& ids, double scale,
                         const at::Tensor& missing, const TrainedPlaces& places = {}) {
  const at::Tensor rows = table.trained_values();
  Recording call({table.values, rows});
  at::Tensor out = backend_of(table.tensor()).gather_rows(table, ids, scale);
  if (missing.defined()) out.index_fill_(0, missing, 0);
  return call.output(out,
                     [=, shape = std::vector{table.out(), table.in()},
                      of_rows = rows.defined() ? rows.sizes().vec() : std::vector<int64_t>()](
                         const Gradients& d) -> Tensors {
                       const at::Tensor dout =
                           missing.defined() ? d[0].index_fill(0, missing, 0) : d[0];
                       at::Tensor dtable, drows;
                       if (d.wanted(0)) {
                         dtable = at::zeros(shape, dout.options());
                         backend_of(dout).scatter_rows(dout, ids, scale, dtable);
                       }
                       if (d.wanted(1)) {
                         drows = at::zeros(of_rows, dout.options());
                         backend_of(dout).scatter_rows(dout.index_select(0, places.row),
                                                       places.trained, scale, drows);
                       }
                       return {dtable, drows};
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
                       missing.empty() ? at::Tensor() : indices(missing, table.tensor()),
                       table.trained ? trained_places(table, ids) : TrainedPlaces());
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
