#include "temper/models/files/expert_tensors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "temper/base/error.h"
#include "temper/models/files/formats/joined.h"
#include "temper/models/sparse_mlp.h"

namespace temper::models {
namespace {

const std::string kExperts = ".experts.";

}  // namespace

std::optional<ExpertName> expert_name(const std::string& name) {
  const size_t at = name.find(kExperts);
  if (at == name.npos) return {};
  const size_t number = at + kExperts.size(), dot = name.find('.', number);
  if (dot == name.npos || dot == number || dot - number > 4) return {};
  const std::string digits = name.substr(number, dot - number);
  if (digits.find_first_not_of("0123456789") != digits.npos) return {};
  return ExpertName{name.substr(0, number), std::stoul(digits), name.substr(dot + 1)};
}

namespace {

std::string renamed(std::string name, NameParts names, bool to_own) {
  for (const auto& [file, own] : names) {
    const std::string from = to_own ? file : own, to = to_own ? own : file;
    const size_t at = name.find(from);
    if (at != name.npos) name.replace(at, from.size(), to);
  }
  return name;
}

}  // namespace

TensorView made_view(const TensorView& view) { return view.make ? view.make() : view; }

TensorView view_entry(const TensorView& whole, size_t i, size_t count, std::vector<int64_t> shape) {
  TensorView part = whole;
  part.num_bytes = whole.num_bytes / count;
  part.shape = std::move(shape);
  if (whole.make)
    part.make = [whole, i, count, shape = part.shape] {
      return view_entry(made_view(whole), i, count, shape);
    };
  else
    part.data = whole.data + i * part.num_bytes;
  part.own = {};
  return part;
}

namespace {

// Tensors of one shape and dtype, one behind the other in memory. Made when it is read. Matrices in
// one quantized format keep their codes.
TensorView joined(std::vector<TensorView> parts, std::vector<int64_t> shape) {
  if (shape.size() == 2 && are_coded_alike(parts)) return joined_codes(parts);
  TensorView out;
  out.dtype = parts[0].dtype;
  out.shape = std::move(shape);
  out.num_bytes = parts[0].num_bytes * parts.size();
  out.make = [parts = std::move(parts), dtype = out.dtype, shape = out.shape,
              bytes = out.num_bytes] {
    const auto memory = std::make_shared<std::vector<std::byte>>(bytes);
    std::byte* to = memory->data();
    for (const TensorView& part : parts) {
      const TensorView here = made_view(part);
      std::memcpy(to, here.data, here.num_bytes);
      to += here.num_bytes;
      give_back_pages(here);
    }
    return TensorView{.dtype = dtype,
                      .shape = shape,
                      .data = memory->data(),
                      .num_bytes = bytes,
                      .owner = memory};
  };
  return out;
}

bool alike(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.shape.size() == 2;
}

constexpr std::string_view kStackedBias = "_bias";

// "PREFIX.experts.gate_up_proj" [experts, out, in] and "..._bias" [experts, out] become one for
// each.
bool divide_stacked(const std::string& name, const TensorView& view, TensorMap& out) {
  const bool bias = name.ends_with(kStackedBias);
  const std::string weight = name.substr(0, name.size() - (bias ? kStackedBias.size() : 0));
  const bool stacked =
      weight.ends_with(kExperts + "gate_up_proj") || weight.ends_with(kExperts + "down_proj");
  if (!stacked || view.shape.size() != (bias ? 2 : 3) || view.shape[0] < 1 ||
      view.shape[0] > kMostExperts)
    return false;
  const size_t at = weight.rfind('.') + 1, count = static_cast<size_t>(view.shape[0]);
  for (size_t i = 0; i < count; ++i)
    out[str(weight.substr(0, at), i, ".", weight.substr(at), bias ? ".bias" : ".weight")] =
        view_entry(view, i, count, {view.shape.begin() + 1, view.shape.end()});
  return true;
}

}  // namespace

void read_experts(TensorMap& tensors, NameParts names) {
  TensorMap own, out;
  for (auto& [name, view] : tensors) own[renamed(name, names, true)] = std::move(view);
  for (const auto& [name, view] : own) {
    if (divide_stacked(name, view, out)) continue;
    const auto expert = expert_name(name);
    const bool gate = expert && expert->layer == "gate_proj.weight",
               up = expert && expert->layer == "up_proj.weight";
    if (!gate && !up) {
      out[name] = view;
      continue;
    }
    const std::string stem = expert->prefix + std::to_string(expert->expert) + ".";
    const auto other = own.find(stem + (gate ? "up_proj.weight" : "gate_proj.weight"));
    if (other == own.end() || !alike(view, other->second))
      out[name] = view;  // an error then names it
    else if (gate)
      out[stem + "gate_up_proj.weight"] =
          joined({view, other->second}, {2 * view.shape[0], view.shape[1]});
  }
  tensors = std::move(out);
}

namespace {

void write_single(NamedTensors& tensors) {
  NamedTensors out;
  for (auto& [name, view] : tensors) {
    const auto expert = expert_name(name);
    if (!expert || expert->layer != "gate_up_proj.weight") {
      out.emplace_back(name, std::move(view));
      continue;
    }
    const std::string stem = name.substr(0, name.size() - expert->layer.size());
    for (const size_t half : {0, 1})
      out.emplace_back(stem + (half == 0 ? "gate_proj.weight" : "up_proj.weight"),
                       view_entry(view, half, 2, {view.shape[0] / 2, view.shape[1]}));
  }
  tensors = std::move(out);
}

void write_stacked(NamedTensors& tensors) {
  NamedTensors out;
  std::map<std::string, std::vector<TensorView>> stacks;
  std::map<std::string, size_t> places;
  for (auto& [name, view] : tensors) {
    const auto expert = expert_name(name);
    if (!expert) {
      out.emplace_back(name, std::move(view));
      continue;
    }
    const size_t dot = expert->layer.rfind('.');
    const std::string stack = str(expert->prefix, expert->layer.substr(0, dot),
                                  expert->layer.substr(dot) == ".bias" ? kStackedBias : "");
    if (stacks[stack].empty()) {
      places[stack] = out.size();
      out.emplace_back(stack, TensorView());
    }
    stacks[stack].push_back(std::move(view));
  }
  for (auto& [name, parts] : stacks) {
    std::vector<int64_t> shape = parts[0].shape;
    shape.insert(shape.begin(), static_cast<int64_t>(parts.size()));
    out[places.at(name)].second = joined(std::move(parts), std::move(shape));
  }
  tensors = std::move(out);
}

}  // namespace

void write_experts(NamedTensors& tensors, ExpertForm form, NameParts names) {
  form == ExpertForm::kSingle ? write_single(tensors) : write_stacked(tensors);
  for (auto& [name, view] : tensors) name = renamed(std::move(name), names, false);
}

}  // namespace temper::models
