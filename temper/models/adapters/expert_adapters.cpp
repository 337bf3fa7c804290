#include "temper/models/adapters/expert_adapters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter_config.h"
#include "temper/models/files/expert_tensors.h"
#include "temper/models/files/tensors.h"

namespace temper::models {
namespace {

constexpr const char* kMatrices[] = {"lora_A.weight", "lora_B.weight"};
constexpr const char *kInner = "gate_up_proj", *kOuter = "down_proj";

at::Tensor value_of(const TensorView& view) {
  return to_tensor(view.make ? view.make() : view, at::kFloat);
}

// Modules of experts ("PREFIX.experts") and how many there are.
std::map<std::string, int64_t> expert_modules(const std::vector<Target>& layers) {
  std::map<std::string, int64_t> modules;
  for (const Target& t : layers) {
    const auto name = expert_name(t.path);
    if (!name) continue;
    int64_t& count = modules[name->prefix.substr(0, name->prefix.size() - 1)];
    count = std::max(count, static_cast<int64_t>(name->expert) + 1);
  }
  return modules;
}

// A's or B's part of one expert.
at::Tensor part_of_matrix(const at::Tensor& all, bool is_a, int64_t experts, int64_t e) {
  if (is_a) return all.view({experts, -1, all.size(1)}).select(0, e);
  return all.view({all.size(0), -1, experts}).select(2, e);
}

}  // namespace

std::string parameter_stem(const std::string& module) {
  const size_t experts = module.rfind('.', module.size() - 2) + 1;
  const size_t parent = module.rfind('.', experts - 2) + 1;
  const bool of_block = module.find_first_not_of("0123456789", parent) == experts - 1;
  return module.substr(of_block ? experts : parent);
}

bool has_experts_for_mlps(const std::vector<Target>& layers) {
  const std::map<std::string, int64_t> modules = expert_modules(layers);
  return !modules.empty() && parameter_stem(modules.begin()->first + ".") != "experts.";
}

bool is_expert_name(const std::string& last_part) {
  return last_part == "gate_proj" || last_part == "up_proj" || last_part == "down_proj";
}

void divide_expert_adapters(TensorMap& tensors, const std::vector<Target>& layers,
                            const std::vector<std::string>& parameters, const std::string& prefix,
                            const std::string& directory) {
  for (const auto& [module, experts] : expert_modules(layers)) {
    const auto names = [&, of = module + "."](const char* projection) {
      return names_parameter(parameters, of + projection);
    };
    const std::string stem = prefix + module + ".";
    const bool nested = tensors.contains(stem + "base_layer.lora_A.weight");
    for (const char* projection : {kInner, kOuter})
      for (const char* matrix : kMatrices) {
        const bool inner = projection == kInner;
        if (!nested && names(kInner) == names(kOuter)) continue;
        if (!nested && !names(projection)) continue;
        const auto found = tensors.find(stem + (nested && inner ? "base_layer." : "") + matrix);
        if (found == tensors.end()) continue;
        const bool is_a = matrix == kMatrices[0];
        const std::vector<int64_t>& shape = found->second.shape;
        check<ConfigError>(
            shape.size() == 2 && shape[is_a ? 0 : 1] > 0 && shape[is_a ? 0 : 1] % experts == 0,
            directory, ": ", found->first, " is ", at::IntArrayRef(shape),
            ", expected a rank for each of ", experts, " experts");
        const at::Tensor all = value_of(found->second).contiguous();
        tensors.erase(found);
        for (int64_t e = 0; e < experts; ++e)
          tensors[stem + std::to_string(e) + "." + projection + "." + matrix] =
              to_view(part_of_matrix(all, is_a, experts, e).contiguous());
      }
  }
}

namespace {

// A file's name as the model has it: Mixtral's module and layers had others in transformers 4.
std::string own_name(std::string name) {
  const std::pair<const char*, const char*> parts[] = {{".block_sparse_moe.", ".mlp."},
                                                       {".w1.lora_", ".gate_proj.lora_"},
                                                       {".w3.lora_", ".up_proj.lora_"},
                                                       {".w2.lora_", ".down_proj.lora_"}};
  for (const auto& [from, to] : parts)
    if (const size_t at = name.find(from); at != name.npos)
      name.replace(at, std::string(from).size(), to);
  return name;
}

at::Tensor joined_matrices(const at::Tensor& gate, const at::Tensor& up, bool is_a) {
  if (is_a) return at::cat({gate, up});
  at::Tensor out = at::zeros({gate.size(0) + up.size(0), gate.size(1) + up.size(1)});
  out.narrow(0, 0, gate.size(0)).narrow(1, 0, gate.size(1)).copy_(gate);
  out.narrow(0, gate.size(0), up.size(0)).narrow(1, gate.size(1), up.size(1)).copy_(up);
  return out;
}

}  // namespace

bool join_single_adapters(TensorMap& tensors, const std::vector<Target>& layers,
                          const std::string& prefix, const std::string& directory) {
  const std::map<std::string, int64_t> modules = expert_modules(layers);
  const auto in_mixture = [&](const std::string& name) {
    return std::any_of(modules.begin(), modules.end(), [&](const auto& module) {
      const std::string& experts = module.first;
      return name.starts_with(prefix + experts.substr(0, experts.rfind('.') + 1));
    });
  };
  TensorMap own;
  for (auto& [name, view] : tensors) {
    const std::string renamed = own_name(name);
    own[in_mixture(renamed) ? renamed : name] = std::move(view);
  }
  tensors = std::move(own);
  bool any = false;
  for (const auto& [module, experts] : modules)
    for (int64_t e = 0; e < experts; ++e)
      for (const char* matrix : kMatrices) {
        const std::string stem = prefix + module + "." + std::to_string(e) + ".";
        const auto gate = tensors.find(stem + "gate_proj." + matrix),
                   up = tensors.find(stem + "up_proj." + matrix);
        if (gate == tensors.end() && up == tensors.end()) continue;
        const auto& found = gate == tensors.end() ? up : gate;
        const bool both = gate != tensors.end() && up != tensors.end() &&
                          gate->second.shape.size() == 2 && gate->second.shape == up->second.shape;
        check<ConfigError>(both, directory, ": ", found->first,
                           ": expected gate_proj and up_proj of the same shape for each expert");
        tensors[stem + kInner + "." + matrix] = to_view(
            joined_matrices(value_of(gate->second), value_of(up->second), matrix == kMatrices[0]));
        tensors.erase(gate);
        tensors.erase(up);
        any = true;
      }
  return any;
}

void join_expert_adapters(TensorMap& tensors) {
  // By module and projection: the matrices of each expert.
  std::map<std::string, std::map<std::string, std::map<size_t, TensorView>>> found;
  std::set<std::string> nested;  // modules with both
  for (auto it = tensors.begin(); it != tensors.end();) {
    const auto name = expert_name(it->first);
    if (!name) {
      ++it;
      continue;
    }
    found[name->prefix][name->layer][name->expert] = std::move(it->second);
    if (name->layer.starts_with(kInner)) nested.insert(name->prefix);
    it = tensors.erase(it);
  }
  for (auto& [module, projections] : found) {
    const bool both =
        nested.contains(module) && projections.contains(std::string(kOuter) + ".lora_A.weight");
    for (auto& [layer, parts] : projections) {
      const size_t dot = layer.find('.');
      const std::string projection = layer.substr(0, dot), matrix = layer.substr(dot + 1);
      const bool is_a = matrix == kMatrices[0];
      const auto count = static_cast<int64_t>(parts.size());
      std::vector<TensorView> views;
      for (auto& [expert, view] : parts) views.push_back(std::move(view));
      std::vector<int64_t> shape = views[0].shape;
      shape[is_a ? 0 : 1] *= count;
      tensors[module + (both && projection == kInner ? "base_layer." : "") + matrix] =
          view_of(shape, at::kFloat, [views = std::move(views), is_a, shape] {
            std::vector<at::Tensor> values;
            for (const TensorView& view : views) values.push_back(value_of(view));
            return at::stack(values, is_a ? 0 : 2).view(shape);
          });
    }
  }
}

std::vector<Target> adaptable_layers(nn::Module& model) {
  std::vector<Target> layers = linear_layers(model);
  std::erase_if(layers, [](const Target& t) { return t.of_tower || t.is(nn::Role::kHead); });
  if (expert_modules(layers).empty()) return layers;
  const bool in_place = has_experts_for_mlps(layers);
  std::erase_if(layers, [in_place](const Target& t) {
    return t.is(nn::Role::kRouter) ||
           (in_place && !t.is(nn::Role::kExpert) && is_expert_name(last_part(t.path)));
  });
  return layers;
}

void check_all_experts(nn::Module& model, const std::vector<Target>& targets) {
  const auto count = [](const std::vector<Target>& layers) {
    std::map<std::string, int64_t> counts;
    for (const Target& t : layers)
      if (const auto name = expert_name(t.path)) ++counts[name->prefix + name->layer];
    return counts;
  };
  const std::map<std::string, int64_t> all = count(linear_layers(model));
  for (const auto& [projection, chosen] : count(targets))
    check<ConfigError>(chosen == all.at(projection), "adapter.target_modules: ", chosen, " of the ",
                       all.at(projection), " layers of `", projection,
                       "`; PEFT's adapters are for all experts of a layer or none");
}

}  // namespace temper::models
