// Matrices [out, in] of codes beside a grid of scales, in rows and columns as the weights are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "temper/models/files/formats/packed.h"

namespace temper::models {

// Which weights share a scale, as the config says. Blocks of rows and columns; 0: there are none.
struct BlockShape {
  int64_t rows = 0, columns = 0;
  std::vector<int64_t> groups = {};  // else of a row's inputs, -1: all; empty: any number
};

// Which number of a grid belongs to a row and a group of columns.
struct ScaleGrid {
  int64_t rows, row_block, columns;  // rows of the matrix; its rows that share; columns of the grid
  Groups groups;
  size_t count() const { return static_cast<size_t>(rows) * groups.of.size(); }
  size_t index(int64_t row, size_t group) const {
    return static_cast<size_t>(row / row_block * columns + groups.of[group]);
  }
  // The numbers of a grid for each row and group of columns, as ops::Codes has them.
  std::vector<float> spread(const std::vector<float>& numbers) const;
};
// The grid that a tensor of this shape is of a matrix [rows, width]: one number; one a row, [rows]
// or [rows, 1]; one a row and group of columns, [rows, groups]; one a block. Throws DataError, also
// where no size in block.groups makes as many groups.
ScaleGrid scale_grid(const MatrixParts& parts, const std::string& suffix, int64_t rows,
                     int64_t width, const BlockShape& block);

// A view of the matrix MODULE.weight, int8 or E4M3, with the numbers of `scales`, a suffix of
// parts: the float32 values code * scale, or (code - zero) * scale where there are zero points, the
// suffix `zeros`, of the same shape.
TensorView scaled_view(MatrixParts parts, const std::string& scales, const std::string& zeros,
                       const BlockShape& block);

// Drops scales of activations and of keys and values, which are not rounded.
void drop_activation_scales(TensorMap& tensors);

}  // namespace temper::models
