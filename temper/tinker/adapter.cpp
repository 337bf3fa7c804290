#include "temper/tinker/adapter.h"

#include <ATen/ATen.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <set>

#include "temper/base/error.h"
#include "temper/io/safetensors.h"
#include "temper/models/adapters/adapter_copies.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/adapters/adapter_parts.h"
#include "temper/models/adapters/expert_adapters.h"

namespace temper::tinker {
namespace {

constexpr const char* kOptimizerFile = "/optimizer.safetensors";
constexpr const char* kSteps = "steps";  // of the file's metadata

// Whether a linear layer belongs to what transforms each token alone: MLPs and experts.
bool is_of_mlp(const models::Target& target) {
  return target.is(nn::Role::kMlp) || target.is(nn::Role::kExpert);
}

// The model has an adapter of its own only while it is copied.
struct OwnAdapter {
  explicit OwnAdapter(models::CausalLM& m) : model(m) {}
  ~OwnAdapter() { models::remove_adapter(model); }
  models::CausalLM& model;
};

}  // namespace

models::LoraConfig lora_config(models::CausalLM& model, const AdapterRequest& request) {
  models::LoraConfig config;
  config.rank = request.rank;
  config.alpha = kAlpha;
  if (request.train_attn && request.train_mlp && !request.train_unembed) return config;
  std::set<std::string> names;
  for (const models::Target& target : models::adaptable_layers(model))
    if (is_of_mlp(target) ? request.train_mlp : request.train_attn)
      names.insert(models::last_part(target.path));
  if (request.train_unembed) names.insert("lm_head");
  config.target_modules.assign(names.begin(), names.end());
  return config;
}

AdapterWidths adapter_widths(models::CausalLM& model) {
  AdapterWidths widths;
  for (const models::Target& target : models::adaptable_layers(model)) {
    const int64_t width = target.layer->in() + target.layer->out();
    (is_of_mlp(target) ? widths.mlp : widths.attn) += width;
    if (!target.is(nn::Role::kExpert)) widths.active += width;
  }
  widths.unembed = model.hidden_size + model.vocab_size;
  return widths;
}

int64_t training_bytes(const AdapterWidths& widths, const AdapterRequest& request) {
  constexpr int64_t kBytes = 4 * sizeof(float);  // value, gradient, two moments
  const int64_t adapted = (request.train_attn ? widths.attn : 0) +
                          (request.train_mlp ? widths.mlp : 0) +
                          (request.train_unembed ? widths.unembed : 0);
  check<ConfigError>(adapted > 0,
                     "lora_config: at least one of train_attn, train_mlp and train_unembed must be "
                     "true: nothing else trains");
  return adapted * request.rank * kBytes;
}

AdapterPlace::~AdapterPlace() {
  const std::lock_guard lock(ended_->mutex);
  ended_->indices.push_back(index_);
}

std::shared_ptr<AdapterPlace> AdapterPlaces::hold(int index) {
  return std::shared_ptr<AdapterPlace>(new AdapterPlace(ended_, index));
}

void AdapterPlaces::remove_ended() {
  std::vector<int> indices;
  {
    const std::lock_guard lock(ended_->mutex);
    indices.swap(ended_->indices);
  }
  for (const int index : indices) models::remove_adapter_copy(model, index);
}

TrainedAdapter::TrainedAdapter(AdapterPlaces& places, const AdapterRequest& request)
    : places_(places), config_(lora_config(places.model, request)) {
  const OwnAdapter own(places.model);
  models::add_lora(places.model, config_, request.seed);
  take_copy(0);
}

TrainedAdapter::TrainedAdapter(AdapterPlaces& places, const std::string& directory,
                               bool with_optimizer)
    : places_(places) {
  const OwnAdapter own(places.model);
  config_ = models::load_adapter(places.model, directory);
  check<ConfigError>(config_.trained_tokens.empty(), directory,
                     ": trains rows of the embeddings (trainable_token_indices), which an adapter "
                     "that clients train does not");
  take_copy(0);
  if (with_optimizer) read_optimizer(directory);
}

void TrainedAdapter::take_copy(int from) {
  copy_ = models::train_adapter_copy(places_.model, from);
  place_ = places_.hold(copy_.index);
  std::vector<train::NamedParameter> parameters;
  for (const auto& [name, parameter] : copy_.parameters) parameters.push_back({name, parameter});
  optimizer_ = std::make_unique<train::Optimizer>(train::OptimizerSection(), std::move(parameters));
}

double TrainedAdapter::step(const AdamFields& fields) {
  const double norm = optimizer_->grad_norm();
  if (!std::isfinite(norm)) optimizer_->zero_grad();
  check<DataError>(
      std::isfinite(norm),
      "the gradients are not finite; the step was skipped and the gradients discarded; "
      "use a smaller learning rate, weights or advantages");
  train::OptimizerSection section;
  section.betas = {fields.beta1, fields.beta2};
  section.eps = fields.eps;
  section.weight_decay = fields.weight_decay;
  optimizer_->set(section);
  const bool clips = fields.grad_clip_norm > 0;
  optimizer_->step(fields.learning_rate,
                   clips ? std::min(1.0, fields.grad_clip_norm / (norm + 1e-6)) : 1);
  return norm;
}

std::vector<at::Tensor> TrainedAdapter::take_gradients() {
  std::vector<at::Tensor> gradients;
  for (const auto& [name, parameter] : copy_.parameters) {
    at::Tensor& grad = parameter->trained().mutable_grad();
    gradients.push_back(grad.defined() ? grad.detach() : at::Tensor());
    grad.reset();
  }
  return gradients;
}

void TrainedAdapter::put_gradients(const std::vector<at::Tensor>& gradients) {
  for (size_t i = 0; i < gradients.size(); ++i)
    copy_.parameters[i].second->trained().mutable_grad() = gradients[i];
}

void TrainedAdapter::add_gradients(const std::vector<at::Tensor>& gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    at::Tensor& grad = copy_.parameters[i].second->trained().mutable_grad();
    grad = grad.defined() ? grad.detach() + gradients[i] : gradients[i];
  }
}

std::shared_ptr<AdapterPlace> TrainedAdapter::snapshot() {
  return places_.hold(models::freeze_adapter_copy(places_.model, copy_.index));
}

void TrainedAdapter::save(const std::string& base, const std::string& directory,
                          bool with_optimizer) {
  models::save_adapter(places_.model, config_, base, directory, copy_.index);
  if (!with_optimizer) return;
  write_safetensors(directory + kOptimizerFile, optimizer_->save(),
                    {{kSteps, std::to_string(steps())}});
}

void TrainedAdapter::read_optimizer(const std::string& directory) {
  const std::string path = directory + kOptimizerFile;
  check<ConfigError>(std::filesystem::exists(path),
                     "the checkpoint has no optimizer state: it was saved for sampling; load it "
                     "with optimizer: false");
  const SafetensorsMetadata metadata = read_safetensors_metadata(path);
  const auto steps = metadata.find(kSteps);
  check<DataError>(steps != metadata.end(), path, ": the number of steps is missing");
  const std::string& text = steps->second;
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  check<DataError>(error == std::errc() && end == text.data() + text.size() && number >= 0, path,
                   ": found ", text.substr(0, 100), " steps, expected a number");
  optimizer_->load(read_safetensors(path), number, path);
}

void TrainedAdapter::load(const std::string& directory, bool with_optimizer) {
  TrainedAdapter saved(places_, directory, with_optimizer);
  check<ConfigError>(saved.config_.rank == config_.rank &&
                         saved.copy_.parameters.size() == copy_.parameters.size(),
                     "the checkpoint's adapter is of rank ", saved.config_.rank, " on ",
                     saved.copy_.parameters.size() / 2, " layers, this model's of rank ",
                     config_.rank, " on ", copy_.parameters.size() / 2,
                     "; create a training client from the checkpoint instead");
  std::swap(copy_, saved.copy_);
  std::swap(config_, saved.config_);
  std::swap(place_, saved.place_);
  std::swap(optimizer_, saved.optimizer_);
}

std::shared_ptr<AdapterPlace> load_place(AdapterPlaces& places, const std::string& directory) {
  return places.hold(models::load_frozen_adapter(places.model, directory));
}

}  // namespace temper::tinker
