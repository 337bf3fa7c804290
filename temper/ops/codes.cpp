#include "temper/ops/codes.h"

#include <algorithm>

#include "temper/base/error.h"

namespace temper::ops {
namespace {

void check_group(const Codes& c) {
  const FormatRow& row = row_of(c.format);
  if (c.group == 0) {
    check(row.block != kOwnBlock && row.super_block == 0, row.name, ": codes without a group");
    return;
  }
  check(c.group > 0 && c.width % c.group == 0, row.name, ": groups of ", c.group,
        " values do not divide rows of ", c.width);
  check(row.super_block == 0 || (c.group == row.block && c.width % row.super_block == 0), row.name,
        ": rows of ", c.width, " values in groups of ", c.group, ", expected super-blocks of ",
        row.super_block, " in groups of ", row.block);
  // Codes whose bits lie apart are read by four indices.
  check(row.kind != CodeKind::kLinear || c.group % 4 == 0, row.name, ": groups of ", c.group);
}

void check_order(const Codes& c) {
  if (c.order.empty()) return;
  std::vector<char> found(static_cast<size_t>(c.width));
  const bool all = c.order.size() == found.size() &&
                   std::all_of(c.order.begin(), c.order.end(), [&](int32_t input) {
                     if (input < 0 || input >= c.width || found[static_cast<size_t>(input)])
                       return false;
                     found[static_cast<size_t>(input)] = 1;
                     return true;
                   });
  check(all, "the order of a weight's inputs does not name each of ", c.width, " once");
}

}  // namespace

void check_codes(const Codes& c) {
  const FormatRow& row = row_of(c.format);
  check(is_quantized(c.format) && c.rows >= 0 && c.width >= 0, row.name, ": ", c.rows, " by ",
        c.width, " codes");
  check_group(c);
  const auto count = static_cast<size_t>(c.rows * c.width);
  const auto groups = static_cast<size_t>(c.group > 0 ? c.rows * (c.width / c.group)
                                                      : block_count(c.format, c.rows, c.width));
  const bool nested = row.super_block > 0;
  const size_t scales = nested ? count / static_cast<size_t>(row.super_block) : groups;
  check(c.codes.size() == count && c.scales.size() == scales &&
            c.sub_scales.size() == (nested ? groups : 0),
        row.name, ": ", c.codes.size(), " codes, ", c.scales.size(), " scales and ",
        c.sub_scales.size(), " nested ones of ", c.rows, " by ", c.width, " values");
  check(c.offsets.empty() || (row.offset != OffsetKind::kNone && c.offsets.size() == scales),
        row.name, ": ", c.offsets.size(), " offsets for ", scales, " scales");
  check(c.sub_offsets.size() == (nested && !c.offsets.empty() ? groups : 0), row.name, ": ",
        c.sub_offsets.size(), " nested offsets for ", groups, " groups");
  check(std::all_of(c.sub_offsets.begin(), c.sub_offsets.end(), [](uint8_t x) { return x < 128; }),
        row.name, ": a nested offset above 127");
  check_order(c);
}

}  // namespace temper::ops
