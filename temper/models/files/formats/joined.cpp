#include "temper/models/files/formats/joined.h"

#include <algorithm>
#include <numeric>

#include "temper/base/error.h"
#include "temper/models/files/formats/packed.h"

namespace temper::models {
namespace {

bool has_whole_rows(const ops::Codes& codes) { return codes.group > 0; }

// With groups of so many columns, which divide those that it has.
void set_group(ops::Codes& codes, int64_t group) {
  if (codes.group == group) return;
  const int64_t block = has_whole_rows(codes) ? codes.group : ops::row_of(codes.format).block;
  for (std::vector<float>* numbers : {&codes.scales, &codes.offsets}) {
    if (numbers->empty()) continue;
    std::vector<float> spread(static_cast<size_t>(codes.rows * codes.width / group));
    for (size_t i = 0; i < spread.size(); ++i)
      spread[i] = (*numbers)[i * static_cast<size_t>(group) / static_cast<size_t>(block)];
    *numbers = std::move(spread);
  }
  codes.group = group;
}

// In the order of the inputs, with a scale each.
void undo_order(ops::Codes& codes) {
  if (codes.order.empty()) return;
  set_group(codes, 1);
  ops::Codes plain = codes;
  for (int64_t row = 0; row < codes.rows; ++row)
    for (int64_t i = 0; i < codes.width; ++i) {
      const auto from = static_cast<size_t>(row * codes.width + i),
                 to = static_cast<size_t>(row * codes.width + codes.order[static_cast<size_t>(i)]);
      plain.codes[to] = codes.codes[from];
      plain.scales[to] = codes.scales[from];
      if (!codes.offsets.empty()) plain.offsets[to] = codes.offsets[from];
    }
  plain.order.clear();
  codes = std::move(plain);
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Groups that all can have: of a row, where blocks of the row-major matrix do not end with one.
int64_t common_group(const std::vector<ops::Codes>& parts) {
  int64_t group = 0;
  bool whole = true;  // blocks of all but the last end with a row
  for (const ops::Codes& part : parts) {
    const int64_t block = has_whole_rows(part) ? part.group : ops::row_of(part.format).block;
    group = std::gcd(group, std::gcd(block, part.width));
    whole = whole && !has_whole_rows(part) &&
            (&part == &parts.back() || part.rows * part.width % block == 0);
  }
  return whole ? 0 : group;
}

ops::Codes join(std::vector<ops::Codes> parts) {
  const bool one_order = std::all_of(parts.begin(), parts.end(), [&](const ops::Codes& part) {
    return part.order == parts[0].order;
  });
  if (!one_order)
    for (ops::Codes& part : parts) undo_order(part);
  const bool nested = ops::row_of(parts[0].format).super_block > 0;  // all are alike
  const int64_t group = common_group(parts);
  const bool offsets = std::any_of(parts.begin(), parts.end(),
                                   [](const ops::Codes& part) { return !part.offsets.empty(); });
  for (ops::Codes& part : parts) {
    if (!nested && group > 0) set_group(part, group);
    if (offsets && part.offsets.empty()) part.offsets.resize(part.scales.size());
  }
  ops::Codes all = std::move(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) {
    all.rows += parts[i].rows;
    append(all.codes, parts[i].codes);
    append(all.scales, parts[i].scales);
    append(all.offsets, parts[i].offsets);
    append(all.sub_scales, parts[i].sub_scales);
    append(all.sub_offsets, parts[i].sub_offsets);
  }
  return all;
}

}  // namespace

bool are_coded_alike(const std::vector<TensorView>& parts) {
  const CodedMatrix* first = coded_matrix(parts[0]);
  return first && std::all_of(parts.begin(), parts.end(), [&](const TensorView& part) {
           const CodedMatrix* matrix = coded_matrix(part);
           return matrix && matrix->format() == first->format() && part.dtype == parts[0].dtype &&
                  part.shape.size() == 2 && part.shape[1] == parts[0].shape[1];
         });
}

TensorView joined_codes(const std::vector<TensorView>& parts) {
  int64_t rows = 0;
  for (const TensorView& part : parts) rows += part.shape[0];
  return coded_view(coded_matrix(parts[0])->format(), rows, parts[0].shape[1], [parts] {
    std::vector<ops::Codes> codes;
    for (const TensorView& part : parts) codes.push_back(coded_matrix(part)->unpacked());
    return join(std::move(codes));
  });
}

}  // namespace temper::models
