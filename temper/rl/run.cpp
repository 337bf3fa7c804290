#include "temper/rl/run.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/base/glob.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/family.h"
#include "temper/models/files/load.h"
#include "temper/rl/rollout/async_source.h"
#include "temper/rl/rollout/model_reward.h"
#include "temper/rl/rollout/replay_source.h"
#include "temper/rl/rollout/sync_source.h"
#include "temper/rl/task.h"
#include "temper/train/ranks.h"
#include "temper/train/roles/policy.h"
#include "temper/train/roles/roles.h"
#include "temper/train/run_task.h"
#include "temper/workers/model_worker.h"
#include "temper/workers/role_ranks.h"
#include "temper/workers/served_rewards.h"

namespace temper::rl {
namespace {

// Asynchronous rollout has collectives and messages of its own.
struct Ahead {
  std::shared_ptr<dist::Group> group;
  std::unique_ptr<KeptMessages> messages;
};

// Where the rewards' models are: on ranks of their own, or here. evaluates: train.eval_rewards.
rewards::RewardSet::Make make_rewards(const RlConfig& config, workers::RoleRanks* role_ranks,
                                      bool evaluates) {
  if (!role_ranks || config.roles.reward.empty()) return rewards::make_reward;
  return workers::served_rewards(*role_ranks, evaluates);
}

train::RunOutcome run(RlConfig& config, train::Roles& roles, const dist::Mesh& mesh,
                      workers::RoleRanks* role_ranks, const train::RunHost& host) {
  train::RunDirectory directory(config, host, mesh);
  dist::Group& group = *mesh.data_parallel;
  std::unique_ptr<ReferenceWorker> reference_worker;
  if (role_ranks && !config.roles.reference.empty()) {
    auto served = std::make_unique<workers::ServedReference>(
        *role_ranks, group, directory, roles.policy, reference_source(config, roles.policy));
    if (!config.rl.replay)
      reference_worker = std::make_unique<ReferenceWorker>(
          *served, config.train.micro_batch_tokens, config.rollout.sampling.temperature,
          std::min(workers::kMostScored, config.roles.leaders(config.roles.reference).size() + 1),
          static_cast<size_t>(config.train.max_inflight.value_or(ReferenceWorker::kMostWaiting)));
    roles.reference = std::move(served);
  }
  const bool samples_ahead = config.rl.max_staleness > 0;
  Ahead ahead;  // outlives the source
  std::unique_ptr<RolloutSource> source;
  const LineFormat lines = line_format(config, roles.policy);
  if (samples_ahead)
    ahead = {group.clone_for_thread("sampling ahead"), std::make_unique<KeptMessages>(directory)};
  train::Messages& messages =
      samples_ahead ? *ahead.messages : static_cast<train::Messages&>(directory);
  if (config.rl.replay) {
    source = std::make_unique<ReplaySource>(config, lines, messages);
  } else {
    std::unique_ptr<BehaviorPolicy> behavior =
        make_behavior_policy(config, roles.policy, mesh, role_ranks, messages, host.stop);
    auto sampled = std::make_unique<SyncSource>(
        config, roles.policy, samples_ahead ? *ahead.group : group, messages, std::move(behavior),
        std::move(reference_worker), make_rewards(config, role_ranks, false));
    if (samples_ahead)
      source = std::make_unique<AsyncSource>(config, std::move(sampled), std::move(ahead.messages),
                                             lines);
    else
      source = std::move(sampled);
  }
  RlTask task(config, roles, group, *source, directory, config.output_dir);
  check_reward_models(config.train.eval_rewards, roles.policy.tokenizer.get(),
                      roles.policy.model->vocab_size);
  return train::run_task(config, roles, mesh, directory, task,
                         make_rewards(config, role_ranks, true));
}

// A rank that has roles of its own: judges, or samples, computes the reference model's
// log-probabilities, or both, until the run ends.
train::RunOutcome serve_run(RlConfig& config, dist::World& world) {
  if (config.roles.judges(world.rank()))
    return workers::serve_rewards(config, config.rewards, world);
  return workers::serve_run(
      config, world, [&](const train::Policy& policy) { return reference_source(config, policy); },
      [&](train::Policy& policy) {
        return std::make_unique<workers::Sampling>(
            policy, config.rollout.options(config.seed), config.rollout.engine_options(),
            config.rl.max_staleness, train::images_of(config, policy.tokenizer.get()));
      });
}

// The run of a rank, whatever its role. `load` adds models to those of a rank that trains.
train::RunOutcome run_rank(RlConfig& config, const train::RunHost& host,
                           const std::function<void(train::Roles&)>& load) {
  train::RunRanks ranks = train::join_ranks(config, host);
  if (!ranks.trains) return serve_run(config, *ranks.world);
  const std::unique_ptr<workers::RoleRanks> role_ranks = workers::find_role_ranks(config, ranks);
  train::Roles roles(config, ranks.mesh);
  load(roles);
  const train::RunOutcome outcome = run(config, roles, ranks.mesh, role_ranks.get(), host);
  if (role_ranks) role_ranks->end(outcome);
  return outcome;
}

// Stores every weight in float32, in which it trains, with the value that it was read as.
void keep_in_float32(models::ScalarModel& model) {
  model.each_parameter([](const std::string&, nn::Parameter& p) {
    if (p.format() == ops::WeightFormat::kFloat32) return;
    const at::Tensor value = p.float_value();
    p.set_format(ops::WeightFormat::kFloat32);
    p.set_value(value);
  });
}

// Stores the model as the config says; its tokens are divided as the policy's.
std::unique_ptr<train::Critic> critic_of(const PpoConfig& config, const train::Roles& roles,
                                         std::unique_ptr<models::ScalarModel> model,
                                         const std::string& base) {
  if (config.model.dtype == models::ModelSection::Dtype::kBfloat16)
    models::set_storage(*model, {ops::WeightFormat::kRoundedBFloat16, {}, config.model.arithmetic});
  model->token_ranks = roles.policy.model->token_ranks;
  const bool whole = !model->whole.empty();
  return train::critic_model(std::move(model), {base, config.model.path, whole},
                             config.train.freeze);
}

// The directory that the config names.
std::unique_ptr<train::Critic> named_critic(const PpoConfig& config, const train::Roles& roles) {
  const ScalarPlace place = critic_place(config, roles.policy);
  ScalarDirectory found = [&] {
    try {
      return load_scalar_directory(place);
    } catch (const ConfigError& e) {
      throw ConfigError(str(config.where("ppo.critic"), ": ", e.what()));
    }
  }();
  if (found.adapted) {
    models::merge_adapters(*found.model);
    keep_in_float32(*found.model);
  }
  return critic_of(config, roles, std::move(found.model), found.base);
}

// The policy's own weights, its adapter included, with a fresh head.
std::unique_ptr<train::Critic> critic_of_policy(const PpoConfig& config, train::Roles& roles) {
  const std::string& base = config.model.path;
  const uint64_t seed = static_cast<uint64_t>(config.seed);
  if (config.ppo.share_base)
    return train::critic_on_base(roles.policy, {base, base, !roles.policy.model->whole.empty()},
                                 seed);
  // Quantized weights are read as the policy reads them.
  models::Storage storage;
  const models::Storage of_policy = train::policy_storage(config);
  storage.whole = of_policy.whole;
  storage.sees = of_policy.sees;
  storage.blocks = of_policy.blocks;
  storage.file = of_policy.file;
  std::unique_ptr<models::ScalarModel> model = models::load_scalar_model(base, storage, seed);
  if (config.adapter.path) {
    models::load_adapter(*model, *config.adapter.path);
    models::merge_adapters(*model);
  }
  keep_in_float32(*model);
  return critic_of(config, roles, std::move(model), base);
}

// Sets roles.critic, with the trainable "critic": the policy's optimizer settings at its own
// learning rate, and the directory `critic/`. Keys that choose parameters by name (train.freeze,
// optimizer.groups) count where they match one. The policy waits for ppo.critic_warmup_steps.
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

}  // namespace

ScalarPlace critic_place(const PpoConfig& config, const train::Policy& policy) {
  const std::string &path = *config.ppo.critic, where = config.where("ppo.critic") + ": ";
  ScalarPlace place = find_scalar_directory(path, where, "critic");
  const int64_t theirs = models::vocabulary_of(place.base), own = policy.model->vocab_size;
  check_reads_tokens(path, policy.tokenizer.get(), own, where + path);
  check<ConfigError>(theirs >= own, where, path, " has ", theirs, " tokens, the policy ", own,
                     "; it must read the policy's token ids");
  return place;
}

train::RunOutcome run_rl(RlConfig& config, const train::RunHost& host) {
  config.resolve("grpo");
  return run_rank(config, host, [](train::Roles&) {});
}

train::RunOutcome run_ppo(PpoConfig& config, const train::RunHost& host) {
  config.resolve("ppo");
  return run_rank(config, host, [&](train::Roles& roles) {
    add_critic(config, roles,
               config.ppo.critic ? named_critic(config, roles) : critic_of_policy(config, roles));
  });
}

}  // namespace temper::rl
