#include "temper/train/ranks.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "temper/base/version.h"
#include "temper/dist/agreement.h"
#include "temper/dist/environment.h"
#include "temper/models/device.h"
#include "temper/models/files/load.h"
#include "temper/ops/backend.h"
#include "temper/train/roles/policy.h"
#include "temper/train/run/run_inputs.h"

namespace temper::train {
namespace {

constexpr int64_t kBucket = int64_t{1} << 22;  // elements that are summed at once

// Sums tensors over the group, many at a time.
void sum_in_buckets(dist::Group& group, const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  for (size_t begin = 0; begin < tensors.size();) {
    size_t end = begin;
    int64_t count = 0;
    do count += tensors[end++].numel();
    while (end < tensors.size() && count + tensors[end].numel() <= kBucket);
    if (end == begin + 1) {
      at::Tensor alone = tensors[begin];
      if (count > 0) group.all_reduce_sum(alone);
    } else {
      at::Tensor bucket = at::empty({count}, tensors[begin].options());
      int64_t place = 0;
      const auto each = [&](const auto& copy) {
        place = 0;
        for (size_t i = begin; i < end; place += tensors[i++].numel())
          copy(bucket.narrow(0, place, tensors[i].numel()), tensors[i].view({-1}));
      };
      each([](at::Tensor to, const at::Tensor& from) { to.copy_(from); });
      if (count > 0) group.all_reduce_sum(bucket);
      each([](const at::Tensor& from, at::Tensor to) { to.copy_(from); });
    }
    begin = end;
  }
}

}  // namespace

std::string serving_name(int rank) { return str("serving/", rank); }

namespace {

using Inputs = std::vector<std::pair<std::string, std::string>>;

// Throws, on every rank, where one was started with another program, config or files than rank 0:
// before any of them does what its own config says.
void check_all_same(dist::World& world, const Inputs& what) {
  constexpr const char* kVerdict = "what rank 0 found";
  constexpr const char* kMissing = "rank 0 did not say whether all were started alike";
  const auto name = [](int rank) { return str("started with/", rank); };
  if (world.size() == 1) return;
  const std::string own = dist::say(what);
  if (world.rank() > 0) {
    world.tell(name(world.rank()), own);
    const std::string verdict = world.ask(kVerdict, kMissing);
    check(verdict == "same", verdict);
    return;
  }
  try {
    for (int rank = 1; rank < world.size(); ++rank)
      dist::check_same(
          own, rank,
          world.ask(name(rank), str("rank ", rank, " did not say what it was started with")));
  } catch (const RunError& e) {
    world.tell(kVerdict, e.what());
    std::this_thread::sleep_for(std::chrono::seconds(2));  // they ask this process
    throw;
  }
  world.tell(kVerdict, "same");
}

// Hosts may be in different time zones, and a run may begin at midnight.
void agree_on_begin(RunConfig& config, dist::World& world) {
  constexpr const char *kName = "when the run began", *kRules = "rules of the run's rows";
  if (world.rank() == 0) {
    config.data.begun = begin_of_run(config);
    config.data.earlier_rules = has_earlier_rules(config);
  }
  if (world.size() == 1) return;
  if (world.rank() == 0) {
    world.tell(kName, config.data.begun);
    world.tell(kRules, config.data.earlier_rules ? "earlier" : "now");
  } else {
    config.data.begun = world.ask(kName, "rank 0 did not say when the run began");
    config.data.earlier_rules =
        world.ask(kRules, "rank 0 did not say how the run draws its rows") == "earlier";
  }
}

}  // namespace

RunRanks join_ranks(RunConfig& config, const RunHost& host) {
  const dist::Environment launched = dist::read_environment();
  // Errors are reported before any rank waits.
  const std::vector<int> training = config.training_ranks(launched.size);
  const auto trains = [&](int rank) {
    return std::find(training.begin(), training.end(), rank) != training.end();
  };
  Inputs what{
      {"version", kVersion},
      {"config", dump_run_config(config)},
      // Hosts may have different defaults, and no backend gives the bits of another.
      {"backend (model.backend, TEMPER_BACKEND)",
       models::backend_for(config.device_choice()).name()},
  };
  check_divisible(config);
  if (launched.size > 1)
    for (auto& input : run_inputs(config, trains(launched.rank))) what.push_back(std::move(input));
  RunRanks ranks{std::make_unique<dist::World>(config.mesh, host.stop), true, {}};
  dist::World& world = *ranks.world;
  check_all_same(world, what);
  agree_on_begin(config, world);
  ranks.trains = trains(world.rank());
  if (ranks.trains) ranks.mesh = world.mesh(config.mesh, training, config.where("mesh"));
  return ranks;
}

dist::Mesh join_mesh(RunConfig& config, const RunHost& host) {
  return join_ranks(config, host).mesh;
}

void check_divisible(RunConfig& config) {
  const auto check_axis = [&](const std::string& key, int64_t ranks, bool by_expert = false) {
    if (ranks == 1) return;
    find_model(config);  // with its new tokens
    models::Storage storage = policy_storage(config);
    storage.by_expert = by_expert;
    models::check_divisible(config.model.path, storage, static_cast<int>(ranks), config.where(key));
  };
  for (size_t i = 0; i < dist::axes().size(); ++i)
    if (const dist::Axis& axis = dist::axes()[i]; axis.divides_work())
      check_axis(str("mesh.", axis.name), config.mesh[i],
                 axis.divides == dist::Axis::Divides::kExperts);
  if (config.roles.any()) check_axis("roles.tensor", config.roles.tensor);
}

void reduce_gradients(const dist::Mesh& mesh, const Trainables& trainables) {
  if (mesh.world->size() == 1) return;
  std::vector<at::Tensor> partial, sharded, whole;
  for (const auto& trainable : trainables)
    for (const NamedParameter& p : trainable->optimizer.parameters()) {
      at::Tensor& grad = p.parameter->trained().mutable_grad();
      const at::Tensor& trained = p.parameter->trained();
      if (!grad.defined()) grad = at::zeros(trained.sizes(), trained.options());
      if (!grad.is_contiguous()) grad = grad.contiguous();
      if (p.parameter->gradient_is_partial()) partial.push_back(grad);
      const nn::Placement* placement = p.parameter->placement();
      (placement && placement->fsdp ? sharded : whole).push_back(grad);
    }
  if (mesh.tensor->size() > 1) sum_in_buckets(*mesh.tensor, partial);
  if (mesh.data->size() > 1) sum_in_buckets(*mesh.data, sharded);
  if (mesh.tokens->size() > 1) sum_in_buckets(*mesh.tokens, whole);
}

}  // namespace temper::train
