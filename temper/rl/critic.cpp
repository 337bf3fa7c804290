#include "temper/rl/critic.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/base/glob.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/files/load.h"
#include "temper/rl/scalar_directory.h"
#include "temper/train/policy.h"

namespace temper::rl {
namespace {

// Stores every weight in float32, in which it trains, with the value that it was read as.
void keep_in_float32(models::ScalarModel& model) {
  model.each_parameter([](const std::string&, nn::Parameter& p) {
    if (p.format() == ops::WeightFormat::kFloat32) return;
    const at::Tensor value = p.float_value();
    p.set_format(ops::WeightFormat::kFloat32);
    p.set_value(value);
  });
}

// The directory that the config names.
std::unique_ptr<train::Critic> named_critic(const PpoConfig& config, const train::Roles& roles) {
  const std::string& path = *config.ppo.critic;
  const int64_t vocabulary = roles.policy.model->vocab_size;
  ScalarDirectory found = load_scalar_directory(path, "", "critic");
  check_reads_tokens(path, roles.policy.tokenizer.get(), vocabulary, path);
  check<ConfigError>(found.model->config().vocab_size >= vocabulary, path, " has ",
                     found.model->config().vocab_size, " tokens, the policy ", vocabulary,
                     "; it must read the policy's token ids");
  if (found.adapted) {
    models::merge_adapters(*found.model);
    keep_in_float32(*found.model);
  }
  if (config.model.dtype == models::ModelSection::Dtype::kBfloat16)
    models::set_storage(*found.model,
                        {ops::WeightFormat::kRoundedBFloat16, {}, train::arithmetic_of(config)});
  return train::critic_model(std::move(found.model), {found.base, config.model.path},
                             config.train.freeze);
}

// The policy's own weights, its adapter included, with a fresh head.
std::unique_ptr<train::Critic> critic_of_policy(const PpoConfig& config, train::Roles& roles) {
  const std::string& base = config.model.path;
  const uint64_t seed = static_cast<uint64_t>(config.seed);
  if (config.ppo.share_base) return train::critic_on_base(roles.policy, {base, base}, seed);
  // Quantized weights are read as the policy reads them.
  models::Storage storage;
  storage.blocks = train::policy_storage(config).blocks;
  std::unique_ptr<models::ScalarModel> model = models::load_scalar_model(base, storage, seed);
  if (config.adapter.path) {
    models::load_adapter(*model, *config.adapter.path);
    models::merge_adapters(*model);
  }
  keep_in_float32(*model);
  if (config.model.dtype == models::ModelSection::Dtype::kBfloat16)
    models::set_storage(*model,
                        {ops::WeightFormat::kRoundedBFloat16, {}, train::arithmetic_of(config)});
  return train::critic_model(std::move(model), {base, base}, config.train.freeze);
}

}  // namespace

void load_critic(const PpoConfig& config, train::Roles& roles) {
  if (!config.ppo.critic) return add_critic(config, roles, critic_of_policy(config, roles));
  try {
    add_critic(config, roles, named_critic(config, roles));
  } catch (const ConfigError& e) {
    throw ConfigError(config.where("ppo.critic") + ": " + e.what());
  }
}

void add_critic(const PpoConfig& config, train::Roles& roles,
                std::unique_ptr<train::Critic> critic) {
  roles.critic = std::move(critic);
  std::vector<train::NamedParameter> parameters = roles.critic->parameters();
  train::scale_lora_b(parameters, config.adapter.loraplus_ratio);
  train::OptimizerSection settings = config.optimizer;
  settings.learning_rate = config.ppo.critic_learning_rate.value_or(settings.learning_rate);
  std::erase_if(settings.groups, [&](const train::ParameterGroup& group) {
    return std::none_of(parameters.begin(), parameters.end(),
                        [&](const auto& p) { return matches_glob(group.match, p.name); });
  });
  const auto save = [critic = roles.critic.get()](const std::string& directory) {
    critic->save(directory);
  };
  roles.trainables.push_back(std::make_unique<train::Trainable>(
      "critic", settings, std::move(parameters), save, config.where("optimizer.groups")));
  roles.trainables.front()->frozen_steps = config.ppo.critic_warmup_steps;
}

}  // namespace temper::rl
