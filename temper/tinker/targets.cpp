// How a datum's inputs become the targets of a loss.
#include <algorithm>
#include <cmath>

#include "temper/base/error.h"
#include "temper/io/tensor_view.h"
#include "temper/tinker/losses.h"

namespace temper::tinker {
namespace {

// Targets of one position at most: no more are of use, and each is a row of the vocabulary's head.
constexpr int64_t kMostColumns = 4096;
constexpr const char* kRatioMask = "sequence_ratio_mask";

// An input as the datum's targets have it: where each of its values stands.
struct Cells {
  std::vector<size_t> cell;  // row-major; ascending
  int64_t columns = 0;
};

Cells dense_cells(const WireTensor& tensor, int64_t positions, const std::string& where) {
  std::vector<int64_t> shape = tensor.shape;
  if (shape.empty()) shape = {static_cast<int64_t>(tensor.size())};
  check<DataError>((shape.size() == 1 || shape.size() == 2) && shape[0] == positions, where,
                   ": found the shape ", shape_text(shape), ", expected [", positions, "] or [",
                   positions, ", K]: one row for each token of model_input");
  Cells cells;
  cells.columns = shape.size() == 2 ? shape[1] : 0;
  check<DataError>(shape.size() == 1 || (cells.columns >= 1 && cells.columns <= kMostColumns),
                   where, ": found ", cells.columns, " columns, expected 1 to ", kMostColumns);
  const size_t count = static_cast<size_t>(positions * std::max<int64_t>(cells.columns, 1));
  check<DataError>(tensor.size() == count, where, ": found ", tensor.size(),
                   " values for the shape ", shape_text(shape));
  cells.cell.resize(count);
  for (size_t i = 0; i < count; ++i) cells.cell[i] = i;
  return cells;
}

Cells sparse_cells(const WireTensor& tensor, int64_t positions, const std::string& where) {
  const std::vector<int64_t>& shape = tensor.shape;
  check<DataError>(
      shape.size() == 2 && shape[0] == positions && shape[1] >= 1 && shape[1] <= kMostColumns,
      where, ": found the shape ", shape_text(shape), " of a sparse matrix, expected [", positions,
      ", K] with K from 1 to ", kMostColumns);
  const int64_t count = static_cast<int64_t>(tensor.size());
  check<DataError>(tensor.crow.size() == static_cast<size_t>(positions) + 1 &&
                       tensor.columns.size() == tensor.size() && tensor.crow.front() == 0 &&
                       tensor.crow.back() == count,
                   where, ": a sparse matrix of ", count, " values has ", positions + 1,
                   " crow_indices from 0 to ", count, " and ", count, " col_indices");
  Cells cells;
  cells.columns = shape[1];
  for (int64_t row = 0; row < positions; ++row) {
    const int64_t begin = tensor.crow[static_cast<size_t>(row)],
                  end = tensor.crow[static_cast<size_t>(row) + 1];
    check<DataError>(begin <= end && end <= count, where, ": crow_indices must not fall");
    int64_t last = -1;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = tensor.columns[static_cast<size_t>(i)];
      check<DataError>(column > last && column < shape[1], where, ": col_indices of row ", row,
                       " must rise and be below ", shape[1]);
      last = column;
      cells.cell.push_back(static_cast<size_t>(row * shape[1] + column));
    }
  }
  return cells;
}

const WireTensor& input_of(const WireDatum& datum, const char* name, const std::string& where) {
  const auto found = datum.inputs.find(name);
  check<DataError>(found != datum.inputs.end(), where, ": loss_fn_inputs has no `", name, "`");
  return found->second;
}

// The input's values at the targets, 0 where a sparse one lists none.
std::vector<float> values_at(const Targets& targets, const WireTensor& tensor,
                             const std::string& where) {
  const Cells cells = tensor.is_sparse ? sparse_cells(tensor, targets.positions, where)
                                       : dense_cells(tensor, targets.positions, where);
  check<DataError>(
      cells.columns == targets.columns, where, ": found ", std::max<int64_t>(cells.columns, 1),
      " columns, expected those of target_tokens, ", std::max<int64_t>(targets.columns, 1));
  std::vector<float> values(targets.size(), 0);
  size_t i = 0;
  for (size_t t = 0; t < targets.size(); ++t) {
    while (i < cells.cell.size() && cells.cell[i] < targets.cell[t]) ++i;
    if (i == cells.cell.size() || cells.cell[i] != targets.cell[t]) continue;
    values[t] = static_cast<float>(tensor.number(i));
    check<DataError>(std::isfinite(values[t]), where, ": a value is not finite");
  }
  return values;
}

void take_tokens(Targets& targets, const WireTensor& tensor, int64_t vocabulary,
                 const std::string& where) {
  const Cells cells = tensor.is_sparse ? sparse_cells(tensor, targets.positions, where)
                                       : dense_cells(tensor, targets.positions, where);
  targets.columns = cells.columns;
  targets.cell = cells.cell;
  check<DataError>(tensor.is_integer || tensor.size() == 0, where,
                   ": found floating-point numbers, expected token ids as int64 or int32");
  const size_t columns = static_cast<size_t>(std::max<int64_t>(cells.columns, 1));
  for (size_t i = 0; i < cells.cell.size(); ++i) {
    const int64_t id = tensor.integers[i];
    check<DataError>(id >= 0 && id < vocabulary, where, ": found ", id,
                     ", expected token ids below ", vocabulary);
    targets.token.push_back(id);
    targets.position.push_back(static_cast<int64_t>(cells.cell[i] / columns));
  }
}

}  // namespace

Targets read_targets(const LossSpec& loss, const WireDatum& datum, int64_t vocabulary,
                     const std::string& where) {
  const bool supervised = loss.reads_weights;
  const bool has_mask = loss.reads_mask;
  for (const auto& [name, tensor] : datum.inputs) {
    const bool known =
        name == "target_tokens" || (has_mask && name == kRatioMask) ||
        (supervised ? name == "weights" : name == "logprobs" || name == "advantages");
    check<DataError>(known, where, ": loss_fn_inputs: `", name.substr(0, 64),
                     "` is no input of this loss; expected target_tokens, ",
                     supervised ? "weights" : "logprobs, advantages",
                     has_mask ? ", sequence_ratio_mask" : "");
  }
  Targets targets;
  targets.positions = static_cast<int64_t>(datum.tokens.size());
  take_tokens(targets, input_of(datum, "target_tokens", where), vocabulary,
              where + ": target_tokens");
  const auto read = [&](const char* name) {
    return values_at(targets, input_of(datum, name, where), where + ": " + name);
  };
  if (!supervised) {
    targets.old_logprob = read("logprobs");
    targets.advantage = read("advantages");
    if (has_mask && datum.inputs.contains(kRatioMask)) targets.ratio_mask = read(kRatioMask);
  } else if (datum.inputs.contains("weights")) {
    targets.weight = read("weights");
  } else {
    targets.weight.assign(targets.size(), 1);
  }
  return targets;
}

}  // namespace temper::tinker
