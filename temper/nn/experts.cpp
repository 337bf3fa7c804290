#include "temper/nn/experts.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"

namespace temper::nn {
namespace {

// layers[g] over the rows of group g, with the adapters that the context chooses.
at::Tensor project_groups(const ops::GroupedInput& x, const std::vector<int64_t>& offsets,
                          const std::vector<Linear*>& layers, const Context& context) {
  const bool adapted = layers[0]->adapter(context.adapter) != nullptr;
  std::vector<std::vector<ops::LinearOperand>> operands(adapted ? 2 : 1);
  std::vector<ops::LinearOperand> up;
  for (Linear* layer : layers) {
    operands[0].push_back(
        {layer->weight.weight(), layer->bias ? layer->bias->value() : at::Tensor()});
    Lora* lora = layer->adapter(context.adapter);
    check((lora != nullptr) == adapted, "of a mixture's experts some have an adapter");
    if (!lora) continue;
    check(!lora->drops(context) && !lora->lora_magnitude_vector,
          "an adapter of experts has neither dropout nor a magnitude");
    operands[1].push_back({lora->lora_A.weight.weight(), {}});
    up.push_back({lora->lora_B.weight.weight(), {}});
  }
  const std::vector<at::Tensor> y = ops::grouped_linear(x, offsets, operands);
  if (!adapted) return y[0];
  const at::Tensor delta = ops::grouped_linear(ops::GroupedInput::plain(y[1]), offsets, {up})[0];
  return ops::add_scaled(y[0], delta, layers[0]->adapter(context.adapter)->scale);
}

}  // namespace

Expert::Expert(Module& parent, std::string name, const ExpertsConfig& c)
    : Module(parent, std::move(name)),
      gate_up_proj(*this, "gate_up_proj", c.hidden, 2 * c.width, c.bias, c.init_std),
      down_proj(*this, "down_proj", c.width, c.hidden, c.bias, c.init_std) {
  set_role(Role::kExpert);
  for (Linear* layer : {&gate_up_proj, &down_proj}) layer->set_rows_are_not_tokens();
  // transformers stacks those of all experts.
  for (Linear* layer : {&gate_up_proj, &down_proj})
    if (layer->bias) layer->bias->set_decays();
}

Experts::Experts(Module& parent, std::string name, const ExpertsConfig& c)
    : ModuleList(parent, std::move(name)), unit_(c.unit) {
  for (int64_t i = 0; i < c.count; ++i) emplace(c);
}

void Experts::divide(std::shared_ptr<dist::Group> group) {
  const int64_t count = std::ssize(*this), ranks = group->size();
  check<ConfigError>(count % ranks == 0, count, " is not divisible by ", ranks);
  for (int64_t e = 0; e < count; ++e) {
    Expert& expert = (*this)[static_cast<size_t>(e)];
    const int owner = static_cast<int>(e / (count / ranks));
    expert.gate_up_proj.give_to(owner, group);
    expert.down_proj.give_to(owner, group);
  }
  group_ = std::move(group);
}

void Experts::accept(const std::string& path, const LayerVisitor& visitor) {
  if (visitor.experts) visitor.experts(path, *this);
}

at::Tensor Experts::forward(const at::Tensor& x, const at::Tensor& weight,
                            const ops::ExpertRows& of_all, const Context& context) {
  const int64_t own = group_ ? std::ssize(*this) / group_->size() : 0;
  const ops::ExpertRows of_own =
      group_ ? ops::rows_of_experts(of_all, group_->rank() * own, own) : ops::ExpertRows();
  const ops::ExpertRows& rows = group_ ? of_own : of_all;
  std::vector<Linear*> gate_up, down;
  for (const int64_t expert : rows.experts) {
    Expert& chosen = (*this)[static_cast<size_t>(expert)];
    gate_up.push_back(&chosen.gate_up_proj);
    down.push_back(&chosen.down_proj);
  }
  if (gate_up.empty())
    return group_ ? ops::combine(ops::no_rows(x, group_), weight, rows, group_) : at::zeros_like(x);
  const at::Tensor inner = project_groups(ops::GroupedInput::select(x, rows.token, group_),
                                          rows.offsets, gate_up, context),
                   outer = project_groups(ops::GroupedInput::gated(inner, unit_), rows.offsets,
                                          down, context);
  return ops::combine(outer, weight, rows, group_);
}

}  // namespace temper::nn
