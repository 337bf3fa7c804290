#include "temper/nn/mixed_adapters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "temper/base/error.h"

namespace temper::nn {
namespace {

at::Tensor rows_of(const at::Tensor& x, const AdapterRows& rows) {
  return x.narrow(0, rows.begin, rows.end - rows.begin);
}

bool has_magnitude(const std::vector<Linear*>& layers, int adapter) {
  return std::any_of(layers.begin(), layers.end(), [adapter](Linear* layer) {
    const Lora* const lora = layer->adapter(adapter);
    return lora && lora->lora_magnitude_vector;
  });
}

// Adds what the adapter gives to its rows of the layers' outputs.
void adapt_rows(const at::Tensor& x, const std::vector<Linear*>& layers, const AdapterRows& rows,
                std::vector<at::Tensor>& outputs) {
  std::vector<ops::LinearOperand> low;
  for (Linear* layer : layers)
    if (Lora* lora = layer->adapter(rows.adapter))
      low.push_back({lora->lora_A.weight.weight(), {}});
  if (low.empty()) return;
  const std::vector<at::Tensor> products =
      ops::linear(ops::LinearInput::plain(rows_of(x, rows)), low);
  size_t next = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    Lora* const lora = layers[i]->adapter(rows.adapter);
    if (!lora) continue;
    at::Tensor part = rows_of(outputs[i], rows);
    part.copy_(lora->adapt(part, products[next++], layers[i]->weight, {}));
  }
}

// Each adapter's rows by themselves: a magnitude scales what the base computes as well.
std::vector<at::Tensor> project_apart(const at::Tensor& x, const std::vector<Linear*>& layers,
                                      Context context) {
  const std::vector<AdapterRows> all = std::exchange(context.adapter_rows, {});
  std::vector<std::vector<at::Tensor>> parts(layers.size());
  for (const AdapterRows& rows : all) {
    context.adapter = rows.adapter;
    const std::vector<at::Tensor> part =
        project(ops::LinearInput::plain(rows_of(x, rows)), layers, context);
    for (size_t i = 0; i < layers.size(); ++i) parts[i].push_back(part[i]);
  }
  std::vector<at::Tensor> outputs;
  for (const std::vector<at::Tensor>& part : parts) outputs.push_back(at::cat(part));
  return outputs;
}

}  // namespace

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
  const at::Tensor values = ops::materialize(x);
  const std::vector<AdapterRows>& all = context.adapter_rows;
  check(!at::GradMode::is_enabled() && !context.dropout && all.back().end == values.size(0),
        "a pass of several adapters: ", all.back().end, " rows for ", values.size(0),
        ", gradients or dropout");
  for (const AdapterRows& rows : all)
    if (has_magnitude(layers, rows.adapter)) return project_apart(values, layers, context);
  Context base = context;
  base.adapter_rows.clear();
  base.adapter = -1;
  std::vector<at::Tensor> outputs = project(ops::LinearInput::plain(values), layers, base);
  for (const AdapterRows& rows : all) adapt_rows(values, layers, rows, outputs);
  return outputs;
}

}  // namespace temper::nn
