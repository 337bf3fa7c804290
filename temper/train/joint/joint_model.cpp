#include "temper/train/joint/joint_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_copies.h"
#include "temper/models/files/checkpoint_tensors.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/files/load.h"
#include "temper/models/init.h"
#include "temper/nn/mixed_adapters.h"

namespace temper::train {
namespace {

// Puts the segments and targets of a pass behind those of others.
void append(ForwardPass& to, const ForwardPass& from, int adapter) {
  const Forest& forest = *from.forest;
  const int64_t first = to.forest->num_tokens(), segment = to.forest->num_segments();
  for (size_t s = 0; s < forest.parent.size(); ++s) {
    const auto begin = static_cast<size_t>(forest.segment_start[s]),
               end = static_cast<size_t>(forest.segment_start[s + 1]);
    const std::span<const int32_t> tokens(forest.tokens.data() + begin, end - begin);
    if (forest.parent[s] < 0)
      to.forest->add_root(tokens, forest.position[begin]);
    else
      to.forest->add_child(segment + forest.parent[s], tokens);
  }
  for (const int64_t row : from.row_M) to.row_M.push_back(first + row);
  for (const int64_t row : from.scored_row_K) to.scored_row_K.push_back(first + row);
  to.target_M.insert(to.target_M.end(), from.target_M.begin(), from.target_M.end());
  nn::append_adapter_rows(to.adapters, adapter, forest.num_tokens());
  if (from.num_targets() > 0)
    nn::append_adapter_rows(to.target_adapters, adapter, from.num_targets());
}

void add_gradient(const nn::Parameter& from, const nn::Parameter& to) {
  at::Tensor& found = from.trained().mutable_grad();
  if (!found.defined()) return;
  at::Tensor& sum = to.trained().mutable_grad();
  sum = sum.defined() ? sum.detach() + found.detach() : found.detach();
  found.reset();
}

}  // namespace

JointModel::JointModel(const std::string& directory, const models::Storage& storage,
                       std::optional<uint64_t> seed)
    : directory_(directory), storage_(storage) {
  if (seed) {
    std::unique_ptr<models::ScalarModel> scalar =
        models::load_scalar_model(directory, storage, *seed);
    scalar_ = scalar.get();
    model_ = std::move(scalar);
    has_score_ = models::open_checkpoint(directory).tensors.contains(models::kScoreWeight);
  } else {
    std::unique_ptr<models::CausalLM> language = models::load_model(directory, storage);
    language_ = language.get();
    model_ = std::move(language);
  }
}

bool JointModel::is(const std::string& directory, const models::Storage& storage,
                    bool scalar) const {
  return directory == directory_ && scalar == (scalar_ != nullptr) &&
         storage.weights == storage_.weights && storage.blocks == storage_.blocks &&
         storage.arithmetic == storage_.arithmetic && storage.cache_dtype == storage_.cache_dtype &&
         storage.device == storage_.device && storage.file == storage_.file &&
         storage.whole == storage_.whole && storage.sees == storage_.sees;
}

void JointModel::give_parts(models::Model& to) const {
  to.files = model_->files;
  to.vision = model_->vision;
  to.whole = model_->whole;
}

std::unique_ptr<models::CausalLM> JointModel::share() {
  std::unique_ptr<models::CausalLM> model =
      models::share_base(*language_, models::HfConfig::load(directory_));
  give_parts(*model);
  return model;
}

std::unique_ptr<models::ScalarModel> JointModel::share_scalar(uint64_t seed) {
  std::unique_ptr<models::ScalarModel> model =
      models::share_base(*scalar_, models::HfConfig::load(directory_));
  std::map<std::string, const nn::Parameter*> ours;
  model_->each_parameter([&](const std::string& name, nn::Parameter& p) { ours[name] = &p; });
  model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (name != models::kScoreWeight) return;
    p.set_format(ours.at(name)->format());
    p.set_arithmetic(ours.at(name)->arithmetic());
    p.set_value(has_score_ ? ours.at(name)->value().detach().clone()
                           : models::initial_value(p, name, seed));
  });
  give_parts(*model);
  return model;
}

int JointModel::add(models::Model& policy, const models::LoraConfig& lora, int index) {
  models::add_lora(*model_, lora, 0);
  const int added = models::freeze_adapter_copy(*model_, 0);
  models::remove_adapter(*model_);
  adapters_.push_back({added, models::adapter_copy(policy, index, *model_, added)});
  adapters_.back().updates.resize(adapters_.back().parameters.size());
  mixes_ = nn::mixes_adapters(*model_);
  refresh(added);
  return added;
}

void JointModel::remove(int adapter) {
  std::erase_if(adapters_, [&](const Adapter& a) { return a.index == adapter; });
  models::remove_adapter_copy(*model_, adapter);
}

JointModel::Adapter& JointModel::find(int adapter) {
  const auto found = std::ranges::find(adapters_, adapter, &Adapter::index);
  check(found != adapters_.end(), "no run has adapter ", adapter);
  return *found;
}

void JointModel::refresh(int adapter) {
  if (adapter < 0) return;
  Adapter& a = find(adapter);
  for (size_t i = 0; i < a.parameters.size(); ++i) {
    const auto& [from, to] = a.parameters[i];
    if (a.updates[i] == from->updates()) continue;
    a.updates[i] = from->updates();
    to->set_value(from->value().detach());
    to->set_trainable(from->trainable());
  }
}

void JointModel::give_gradients(int adapter) {
  if (adapter < 0) return;
  for (const auto& [from, to] : find(adapter).parameters)
    if (to->trainable()) add_gradient(*to, *from);
}

bool JointPass::fit(const Request& a, const Request& b) {
  const auto form = [](const Request& r) {
    return std::make_tuple(r.trains, r.options.temperature, r.options.entropy,
                           r.options.log_sum_exp, r.options.recompute);
  };
  return form(a) == form(b);
}

// An adapter's rows stand together.
JointPass::JointPass(JointModel& model, const std::vector<Request*>& requests)
    : model_(model), parts_(requests.size()) {
  const auto size = [this] {
    return model_.language() ? pass_.num_targets() : pass_.forest->num_tokens();
  };
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return requests[i]->adapter; });
  for (const size_t i : order) {
    model_.refresh(requests[i]->adapter);
    parts_[i].adapter = requests[i]->adapter;
    parts_[i].begin = size();
    append(pass_, *requests[i]->pass, requests[i]->adapter);
    parts_[i].end = size();
  }
  PassOptions options = requests[0]->options;
  options.adapter = requests[order[0]]->adapter;
  options.dropout = options.watched = false;
  const at::AutoGradMode mode(requests[0]->trains);
  outputs_ = run(options);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < requests.size(); ++i)
    for (const at::Tensor& all : outputs_) {
      const int64_t count = parts_[i].end - parts_[i].begin;
      requests[i]->out.push_back(
          all.defined() ? all.detach().narrow(0, parts_[i].begin, count).clone() : at::Tensor());
    }
  if (!requests[0]->trains) outputs_.clear();
}

std::vector<at::Tensor> JointPass::run(const PassOptions& options) {
  if (models::CausalLM* model = model_.language()) {
    const ops::TokenLogp out = token_logp(*model, pass_, options);
    return {out.logp, out.entropy, out.log_sum_exp};
  }
  return {model_.model().forward(context_of(pass_, options))};
}

void JointPass::take(size_t part, std::vector<at::Tensor> gradients) {
  parts_[part].gradients = std::move(gradients);
  parts_[part].taken = true;
}

bool JointPass::is_ready() const {
  return std::ranges::all_of(parts_, [](const Part& part) { return part.taken || part.left; });
}

void JointPass::backward() {
  done_ = true;
  std::vector<at::Tensor> from, gradients;
  for (size_t k = 0; k < outputs_.size(); ++k) {
    const at::Tensor& output = outputs_[k];
    const auto given = [&](const Part& part) { return part.taken && part.gradients[k].defined(); };
    if (!output.defined() || !output.requires_grad() || std::ranges::none_of(parts_, given))
      continue;
    at::Tensor gradient = at::zeros(output.sizes(), output.options().requires_grad(false));
    for (const Part& part : parts_)
      if (given(part))
        gradient.narrow(0, part.begin, part.end - part.begin).copy_(part.gradients[k]);
    from.push_back(output);
    gradients.push_back(gradient);
  }
  outputs_.clear();
  if (!from.empty()) torch::autograd::backward(from, gradients);
  for (const Part& part : parts_)
    if (part.taken) model_.give_gradients(part.adapter);
}

}  // namespace temper::train
