// Sides of a split (train, test, ...) such that rows with the same prompt are on one side.
#pragma once

#include <cstdint>
#include <vector>

#include "temper/data/rows/row_texts.h"

namespace temper::data {

// The side of each row, given a hash of what rows must not share across sides, and the sides' share
// of the rows. Hashes in their order fill one side after the other, so that where a row goes is
// decided by its hash, up to the few at a bound: neither the order of rows nor other rows' edits
// move it. Sides have the number of rows that the largest remainder gives them where hashes are
// distinct, else within the rows of one hash; and at least one hash each where its share is above 0
// and there are enough.
std::vector<uint8_t> split_by_hash(const std::vector<RowHash>& hashes,
                                   const std::vector<double>& shares);

// Which rows are held out (1) to make up `fraction` of them, in (0, 1): as split_by_hash() would
// have it, except where that would hold out more than half of the rows for a fraction below half:
// the hash with the most rows then is not held out.
std::vector<uint8_t> hold_out_by_hash(const std::vector<RowHash>& hashes, double fraction);

}  // namespace temper::data
