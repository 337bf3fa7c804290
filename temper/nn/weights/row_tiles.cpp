#include "temper/nn/weights/row_tiles.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "temper/base/error.h"
#include "temper/nn/run_again.h"
#include "temper/nn/weights/read_rows.h"
#include "temper/ops/autograd.h"

namespace temper::nn {
namespace {

struct TileRange {
  int64_t begin, count;
  at::Tensor of(const at::Tensor& x) const { return x.narrow(0, begin, count); }
};

// About equally large ones, which begin where sums over rows may be divided.
std::vector<TileRange> tiles_of(int64_t rows, int64_t most) {
  constexpr int64_t kBlock = ops::kRowSumBlock;
  const int64_t tiles = (rows + most - 1) / most,
                each = ((rows + tiles - 1) / tiles + kBlock - 1) / kBlock * kBlock;
  std::vector<TileRange> found;
  for (int64_t begin = 0; begin < rows; begin += each)
    found.push_back({begin, std::min(each, rows - begin)});
  return found;
}

// An adapter whose rows do not stand together has several sums, which are added.
bool sums_by_rows(const Context& context) {
  return adapters_of(context.adapter_rows).size() == context.adapter_rows.size();
}

at::Tensor run_tile(const RowFunction& forward, const Tensors& inputs, const Context& context,
                    const TileRange& tile) {
  std::vector<int64_t> rows(static_cast<size_t>(tile.count));
  std::iota(rows.begin(), rows.end(), tile.begin);
  Context of_tile = context;
  of_tile.rows = std::make_shared<const std::vector<int64_t>>(std::move(rows));
  const ReadRows read(of_tile);
  return forward(inputs, read.context());
}

// A call whose forward function runs in the backward pass.
struct DeferredCall {
  RowFunction forward;
  std::vector<TileRange> tiles;
  Context context;
  DropoutKeys dropout;  // of the context
  Tensors inputs;
  std::vector<Parameter*> parameters;
};

// Of the inputs, then of the parameters.
Tensors deferred_gradients(const DeferredCall& call, const ops::Gradients& d) {
  const size_t inputs = call.inputs.size();
  Tensors grads(inputs + call.parameters.size()), leaves;
  std::vector<size_t> place;  // among grads, of each leaf
  for (size_t i = 0; i < call.parameters.size(); ++i) {
    if (!d.wanted(inputs + i)) continue;
    leaves.push_back(call.parameters[i]->value());
    place.push_back(inputs + i);
  }
  const ops::RowSums sums(leaves);
  for (size_t i = 0; i < inputs; ++i)
    if (d.wanted(i)) grads[i] = at::empty_like(call.inputs[i]);
  const at::AutoGradMode with_gradients(true);
  for (const TileRange& tile : call.tiles) {
    Tensors rows, wanted = leaves;
    for (size_t i = 0; i < inputs; ++i) {
      rows.push_back(tile.of(call.inputs[i]).detach().requires_grad_(d.wanted(i)));
      if (d.wanted(i)) wanted.push_back(rows.back());
    }
    const at::Tensor y = run_tile(call.forward, rows, call.context, tile);
    if (!y.requires_grad()) continue;  // rows of adapters that do not train
    const Tensors found =
        torch::autograd::grad({y}, wanted, {tile.of(d[0])}, std::nullopt, false, true);
    for (size_t i = 0; i < leaves.size(); ++i)
      check(!found[i].defined(), "a parameter's gradient that is not summed over rows, in a tile");
    size_t next = leaves.size();
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < inputs; ++i)
      if (d.wanted(i)) tile.of(grads[i]).copy_(found[next++]);
  }
  for (size_t i = 0; i < leaves.size(); ++i) grads[place[i]] = sums.gradient(i);
  return grads;
}

// What has the shape of y, and the graph, but no memory.
at::Tensor deferred(const std::vector<Module*>& modules, const Tensors& inputs,
                    const Context& context, const RowFunction& forward,
                    std::vector<TileRange> tiles) {
  const auto call = std::make_shared<DeferredCall>(
      DeferredCall{forward,
                   std::move(tiles),
                   context,
                   {},
                   inputs,
                   trainable_parameters(modules, context.adapters())});
  if (context.dropout) {
    call->dropout = *context.dropout;
    call->context.dropout = &call->dropout;
  }
  Tensors all = inputs;
  for (const Parameter* parameter : call->parameters) all.push_back(parameter->value());
  ops::Recording recording(all);
  recording.reads(inputs);
  const at::Tensor none = at::zeros({1, 1}, inputs[0].options()).expand_as(inputs[0]);
  return recording.output(none,
                          [call](const ops::Gradients& d) { return deferred_gradients(*call, d); });
}

}  // namespace

at::Tensor run_in_tiles(const std::vector<Module*>& modules, const Tensors& inputs,
                        const Context& context, const RowFunction& forward, int64_t tile_rows) {
  const int64_t rows = inputs[0].size(0);
  const bool has_graph = at::GradMode::is_enabled();
  if (rows <= tile_rows || (has_graph && !is_run_again()) || !sums_by_rows(context))
    return forward(inputs, context);
  std::vector<TileRange> tiles = tiles_of(rows, tile_rows);
  // Without numbers (ops::SizesOf) all further ones take what the second does.
  if (inputs[0].is_meta() && tiles.size() > 2) tiles.resize(2);
  if (has_graph) return deferred(modules, inputs, context, forward, std::move(tiles));
  const at::Tensor y = at::empty_like(inputs[0]);
  for (const TileRange& tile : tiles) {
    Tensors of_tile;
    for (const at::Tensor& x : inputs) of_tile.push_back(tile.of(x));
    tile.of(y).copy_(run_tile(forward, of_tile, context, tile));
  }
  return y;
}

}  // namespace temper::nn
