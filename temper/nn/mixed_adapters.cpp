#include "temper/nn/mixed_adapters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "temper/base/error.h"

namespace temper::nn {
namespace {

// What an adapter adds to its rows of one of several layers over the same input.
struct Addition {
  size_t layer = 0;
  Lora* lora = nullptr;
  ops::RowRange rows;
};

// By adapter, then by layer: in this order a row's gradient adds them up, as that of a pass under
// one adapter does.
std::vector<Addition> additions(const std::vector<Linear*>& layers,
                                const std::vector<AdapterRows>& all) {
  std::vector<Addition> found;
  for (const AdapterRows& rows : all)
    for (size_t i = 0; i < layers.size(); ++i)
      if (Lora* lora = layers[i]->adapter(rows.adapter))
        found.push_back({i, lora, {rows.begin, rows.end}});
  return found;
}

// Each adapter's rows by themselves: a magnitude scales what the base computes as well.
std::vector<at::Tensor> project_apart(const ops::LinearInput& x, const std::vector<Linear*>& layers,
                                      Context context) {
  const std::vector<AdapterRows> all = std::exchange(context.adapter_rows, {});
  std::vector<int64_t> counts;
  for (const AdapterRows& rows : all) counts.push_back(rows.end - rows.begin);
  const std::vector<at::Tensor> inputs = ops::materialize(x).split_with_sizes(counts);
  std::vector<std::vector<at::Tensor>> parts(layers.size());
  for (size_t r = 0; r < all.size(); ++r) {
    context.adapter = all[r].adapter;
    const std::vector<at::Tensor> part =
        project(ops::LinearInput::plain(inputs[r]), layers, context);
    for (size_t i = 0; i < layers.size(); ++i) parts[i].push_back(part[i]);
  }
  std::vector<at::Tensor> outputs;
  for (const std::vector<at::Tensor>& part : parts) outputs.push_back(at::cat(part));
  return outputs;
}

}  // namespace

std::vector<int> adapters_of(const std::vector<AdapterRows>& rows) {
  std::vector<int> found;
  for (const AdapterRows& range : rows)
    if (std::find(found.begin(), found.end(), range.adapter) == found.end())
      found.push_back(range.adapter);
  return found;
}

void append_adapter_rows(std::vector<AdapterRows>& rows, int adapter, int64_t count) {
  const int64_t begin = rows.empty() ? 0 : rows.back().end;
  if (rows.empty() || rows.back().adapter != adapter)
    rows.push_back({adapter, begin, begin + count});
  else
    rows.back().end += count;
}

std::vector<AdapterRows> selected_adapter_rows(const std::vector<AdapterRows>& rows,
                                               const std::vector<int64_t>& selected) {
  std::vector<AdapterRows> out;
  auto from = selected.begin();
  for (const AdapterRows& range : rows) {
    const auto to = std::lower_bound(from, selected.end(), range.end);
    if (to != from) append_adapter_rows(out, range.adapter, to - from);
    from = to;
  }
  return out;
}

bool mixes_adapters(Module& model) {
  bool mixes = true;
  model.visit({.linear = [&](const std::string&, Linear& layer) {
    mixes = mixes && (layer.mixes_adapters() || !layer.is_adapted());
  }});
  return mixes;
}

std::vector<at::Tensor> project_mixed(const ops::LinearInput& x, const std::vector<Linear*>& layers,
                                      const Context& context) {
  const std::vector<AdapterRows>& all = context.adapter_rows;
  check(!context.dropout && all.back().end == x.x.size(0),
        "a pass of several adapters: ", all.back().end, " rows for ", x.x.size(0), ", or dropout");
  const std::vector<Addition> added = additions(layers, all);
  if (added.empty()) {
    Context base = context;
    base.adapter_rows.clear();
    base.adapter = -1;
    return project(x, layers, base);
  }
  for (const Addition& a : added)
    if (a.lora->lora_magnitude_vector) return project_apart(x, layers, context);
  std::vector<ops::LinearOperand> operands;
  for (Linear* layer : layers) operands.push_back({layer->weight.weight(), layer->added_bias()});
  for (const Addition& a : added) operands.push_back({a.lora->lora_A.weight.weight(), {}, a.rows});
  std::vector<at::Tensor> outputs = ops::linear(x, operands);
  std::vector<std::vector<ops::RowsTerm>> terms(layers.size());
  for (size_t i = 0; i < added.size(); ++i) {
    Lora& lora = *added[i].lora;
    const ops::LinearInput low = ops::LinearInput::plain(outputs[layers.size() + i]);
    terms[added[i].layer].push_back(
        {ops::linear(low, {{lora.lora_B.weight.weight(), {}}})[0], added[i].rows, lora.scale});
  }
  outputs.resize(layers.size());
  for (size_t i = 0; i < layers.size(); ++i)
    outputs[i] = ops::add_scaled_rows(outputs[i], terms[i]);
  return outputs;
}

}  // namespace temper::nn
