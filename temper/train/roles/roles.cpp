#include "temper/train/roles/roles.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter_copies.h"
#include "temper/models/family.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/load.h"
#include "temper/models/vision/encoder.h"
#include "temper/text/tokens.h"
#include "temper/train/joint/joint_runs.h"

namespace temper::train {
namespace {

// A model that is kept from training: one of its own, or the policy under another adapter.
class FrozenModel : public Frozen {
 public:
  FrozenModel(models::CausalLM& model, int adapter, std::string description,
              std::unique_ptr<models::CausalLM> owned = nullptr)
      : model_(model),
        adapter_(adapter),
        description_(std::move(description)),
        owned_(std::move(owned)) {}

  at::Tensor token_logp(const ForwardPass& pass, double temperature) override {
    const at::NoGradGuard no_grad;
    const nn::TransientPanels packs_once;
    return train::token_logp(model_, pass, {.temperature = temperature, .adapter = adapter_}).logp;
  }
  models::CausalLM* model() const override { return &model_; }
  std::string describe() const override { return description_; }

 private:
  models::CausalLM& model_;
  int adapter_;
  std::string description_;
  std::unique_ptr<models::CausalLM> owned_;
};

}  // namespace

FrozenSource model_source(const std::string& directory, const RunConfig& config,
                          const Policy& policy) {
  const bool bfloat16 = config.model.dtype == models::ModelSection::Dtype::kBfloat16;
  return {FrozenSource::Kind::kModel,
          directory,
          {.weights = bfloat16 ? ops::WeightFormat::kBFloat16 : ops::WeightFormat::kFloat32,
           .blocks = {},
           .arithmetic = config.model.arithmetic,
           .cache_dtype = config.cache_dtype(),
           .tensor = policy.tensor,
           .by_expert = policy.by_expert,
           .token_ranks = policy.model->token_ranks,
           .file = !policy.tensor || policy.tensor->size() == 1 || policy.by_expert}};
}

namespace {

// Throws ConfigError where the ranks that divide the policy cannot divide such a model beside it,
// or those of roles.reference, where they have it.
void check_divides(const std::string& directory, const char* key, const RunConfig& config,
                   models::Storage storage) {
  const auto check_axis = [&](const std::string& axis, int64_t ranks, bool by_expert) {
    storage.by_expert = by_expert;
    storage.file = by_expert;  // what files hold quantized is divided as numbers
    models::check_divisible(directory, storage, static_cast<int>(ranks),
                            str(config.where(key), ": ", axis), true);
  };
  if (!config.roles.reference.empty())
    return check_axis("roles.tensor", config.roles.tensor, false);
  for (size_t i = 0; i < dist::axes().size(); ++i)
    if (const dist::Axis& axis = dist::axes()[i]; axis.divides_work())
      check_axis(str("mesh.", axis.name), config.mesh[i],
                 axis.divides == dist::Axis::Divides::kExperts);
}

}  // namespace

FrozenSource named_source(const std::string& directory, const char* key, const RunConfig& config,
                          const Policy& policy) {
  const std::string found = models::named_model(directory, config.where(key));
  const int64_t vocabulary = policy.model->vocab_size, theirs = models::vocabulary_of(found);
  config.require(theirs == vocabulary, key, "a vocabulary of ", theirs,
                 " tokens, that of model.path has ", vocabulary);
  if (const auto theirs = Tokenizer::load_directory(found); theirs && policy.tokenizer)
    if (const auto id = first_difference(*policy.tokenizer, *theirs))
      config.fail(key, str("another tokenizer: token ", *id, " is `", theirs->token_of(*id),
                           "`, that of model.path `", policy.tokenizer->token_of(*id), "`"));
  FrozenSource source = model_source(found, config, policy);
  check_divides(found, key, config, source.storage);
  return source;
}

FrozenSource start_source(const Policy& policy, const RunConfig& config) {
  using Kind = FrozenSource::Kind;
  if (policy.lora) return {config.adapter.path ? Kind::kAdapter : Kind::kBase};
  FrozenSource source = model_source(config.model.path, config, policy);
  // Weights that train are what quantized ones stand for, rounded as model.storage says.
  source.storage.file = false;
  if (config.model.storage == models::StorageName::kBFloat16)
    source.storage.weights = ops::WeightFormat::kBFloat16;
  return source;
}

std::unique_ptr<Frozen> FrozenSource::load(Policy& policy) const {
  if (kind == Kind::kBase)
    return std::make_unique<FrozenModel>(*policy.model, -1, "the base model without its adapter");
  if (kind == Kind::kAdapter)
    return std::make_unique<FrozenModel>(*policy.model, models::freeze_adapter_copy(*policy.model),
                                         "a copy of the adapter as it was");
  JointRun* const joint = JointRun::current();
  std::unique_ptr<models::CausalLM> model =
      joint ? joint->load_frozen(directory, storage) : models::load_model(directory, storage);
  models::CausalLM& loaded = *model;
  return std::make_unique<FrozenModel>(loaded, 0, directory, std::move(model));
}

std::unique_ptr<Trainable> policy_trainable(
    nn::Module& model, const RunConfig& config,
    std::function<void(const std::string& directory)> save_in) {
  std::vector<NamedParameter> parameters = trainable_parameters(model);
  scale_lora_b(parameters, config.adapter.loraplus_ratio);
  return std::make_unique<Trainable>("policy", config.optimizer, std::move(parameters),
                                     std::move(save_in), config.where("optimizer.groups"));
}

namespace {

// Of a Policy or ScalarPolicy, which outlives it.
template <class Trained>
std::unique_ptr<Trainable> trainable_of(const Trained& trained, const RunConfig& config) {
  const auto save = [&trained, base = config.model.path](const std::string& directory) {
    save_policy(trained, base, directory);
  };
  return policy_trainable(*trained.model, config, save);
}

}  // namespace

Roles::Roles(RunConfig& config, const dist::Mesh& mesh) : policy(load_policy(config, mesh)) {
  trainables.push_back(trainable_of(policy, config));
}

Roles::Roles(ScalarPolicy& scalar, RunConfig& config) : scalar_(scalar.model.get()) {
  trainables.push_back(trainable_of(scalar, config));
}

Roles::Roles(Policy own_policy, const OptimizerSection& section) : policy(std::move(own_policy)) {
  trainables.push_back(
      std::make_unique<Trainable>("policy", section, trainable_parameters(*policy.model)));
}

std::vector<nn::Module*> Roles::models() const {
  std::vector<nn::Module*> all{policy.model.get(), scalar_};
  if (critic) all.push_back(critic->module());
  for (const Frozen* frozen : {reference.get(), teacher.get()})
    if (frozen) all.push_back(frozen->model());
  all.insert(all.end(), others.begin(), others.end());
  std::vector<nn::Module*> unique;
  for (nn::Module* model : all)
    if (model && std::find(unique.begin(), unique.end(), model) == unique.end())
      unique.push_back(model);
  return unique;
}

std::vector<models::Encoder*> Roles::trained_encoders() const {
  std::vector<models::Encoder*> encoders;
  for (nn::Module* module : models())
    if (const auto* model = dynamic_cast<const models::Model*>(module);
        model && model->vision && model->vision->trains())
      encoders.push_back(model->vision.get());
  return encoders;
}

bool is_shared_out(const Trainables& trainables) {
  return std::any_of(trainables.begin(), trainables.end(),
                     [](const auto& trainable) { return trainable->shared_out; });
}

}  // namespace temper::train
