// Tiles of rows: what treats each row alone runs over some rows after the other, so that what it
// holds between its layers is that of a tile (as TiledMLP of Arctic long sequence training).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "temper/nn/context.h"
#include "temper/nn/module.h"

namespace temper::nn {

// Rows of a tile, at most: so many that packing weights for each of them takes a few percent of the
// products' time. Of experts, of which each gets a part of the rows, more.
constexpr int64_t kTileRows = 2048, kExpertTileRows = 8192;

using Tensors = std::vector<at::Tensor>;
// From n rows of each input a tensor of the shape of those of the first; the context is of them.
using RowFunction = std::function<at::Tensor(const Tensors& rows, const Context& context)>;

// forward(inputs, context), where that treats each row alone and reads the parameters of `modules`,
// each in one layer of ops/layers/linear.h, grouped_linear.h or dora.h. No bit depends on tiles:
// gradients of parameters are summed over them as over all rows at once (ops::RowSums).
//
// Without a graph all passes of more rows than a tile are divided. In a block that runs again
// (is_run_again) nothing is computed before the backward pass, which runs a tile's forward, then
// its backward function: so it costs no further forward pass. What this gives then has no values:
// the block may only pass it on. Any other graph is of all rows.
at::Tensor run_in_tiles(const std::vector<Module*>& modules, const Tensors& inputs,
                        const Context& context, const RowFunction& forward,
                        int64_t tile_rows = kTileRows);

}  // namespace temper::nn
