// Ranks that divide a mixture's experts among them: one rank's training, to the bit.
#include <nlohmann/json.hpp>

#include "temper/base/file.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/init.h"
#include "temper/models/split.h"
#include "temper/train/run/checkpoint/checkpoint.h"
#include "tests/train/tiny.h"

using namespace temper;
using tiny::RowsTask;

namespace {

models::HfConfig config_of(const std::string& family) {
  std::string json = R"({"model_type": ")" + family +
                     R"(", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 24,
    "moe_intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "num_experts": 8, "num_local_experts": 8,
    "num_experts_per_tok": 3, "norm_topk_prob": true, "eos_token_id": 2,
    "enable_moe_block": true, "top_k_experts": 3, "global_head_dim": 16, "sliding_window": 6,
    "hidden_size_per_layer_input": 0})";
  return models::HfConfig::parse(parse_json(json, "tiny"), "tiny");
}

dist::Mesh expert_mesh(dist::Group& group) {
  dist::Mesh mesh = dist::Mesh::tensor_parallel({&group, [](dist::Group*) {}});
  mesh.by_expert = true;
  return mesh;
}

struct ExpertsSetup {
  std::string family = "qwen3_moe", optimizer = "adamw";
  std::optional<models::LoraConfig> lora = {};
  bool recompute = false;
  std::optional<double> balance = {};
  std::string load_from = {}, save_to = {};
  int64_t steps = 3;
  std::function<void(nn::Module&)> freeze = {};
};

struct TrainedExperts {
  std::vector<double> losses, norms, shares;
  tiny::Weights weights, moments;
  int64_t kept = 0;  // elements of weights that a rank keeps
};

TrainedExperts train_experts_on(const dist::Mesh& mesh, const ExpertsSetup& setup) {
  const models::HfConfig config = config_of(setup.family);
  train::Policy policy;
  policy.lora = setup.lora;
  policy.model = models::make_model(config);
  if (mesh.tensor->size() > 1) {
    REQUIRE(models::split_experts(*policy.model, mesh.tensor, "mesh.expert", "tiny"));
    policy.tensor = mesh.tensor;
    policy.by_expert = true;
  }
  std::map<std::string, at::Tensor> values;
  const auto whole = models::init_model(config, 3);
  whole->each_parameter(
      [&](const std::string& name, nn::Parameter& p) { values[name] = p.value(); });
  policy.model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    p.set_whole_value(values.at(name));
    p.set_trainable(!setup.lora);
  });
  if (setup.lora) models::add_lora(*policy.model, *setup.lora, 5);
  if (setup.freeze) setup.freeze(*policy.model);
  train::OptimizerSection section = tiny::constant_rate(1e-2);
  section.name = setup.optimizer;
  section.weight_decay = 0.1;
  section.max_grad_norm = 0.1;
  if (setup.optimizer == "muon") section.momentum = 0.95;
  train::Roles roles(std::move(policy), section);
  RowsTask task(roles, *mesh.data_parallel);
  task.max_tokens = 24;
  task.recompute = setup.recompute;
  train::TrainSection trained;
  trained.router_aux_loss = setup.balance;
  train::Trainer trainer(trained, 0, roles, mesh, task);
  if (!setup.load_from.empty()) train::Checkpoints::load(setup.load_from, roles.trainables);
  TrainedExperts out;
  for (int64_t s = 0; s < setup.steps; ++s) {
    REQUIRE(trainer.step());
    out.losses.push_back(trainer.row().number("loss").value());
    out.norms.push_back(trainer.row().number("grad_norm").value());
    out.shares.push_back(trainer.row().number("expert_share_max").value());
  }
  if (!setup.save_to.empty())
    train::Checkpoints(setup.save_to, 1)
        .save(setup.steps, roles.trainables, Json::object(), {}, mesh);
  roles.policy.model->each_parameter(
      [&](const std::string&, nn::Parameter& p) { out.kept += p.trained().numel(); });
  out.weights = tiny::weights(*roles.policy.model);
  out.moments = tiny::moments(roles.trainables[0]->optimizer);
  return out;
}

TrainedExperts on_ranks(int ranks, const ExpertsSetup& setup) {
  TrainedExperts first;
  tiny::ThreadRanks(ranks).run([&](dist::Group& group) {
    TrainedExperts mine = train_experts_on(expert_mesh(group), setup);
    if (group.rank() == 0) first = std::move(mine);
  });
  return first;
}

TrainedExperts on_one(const ExpertsSetup& setup) { return train_experts_on(tiny::alone(), setup); }

void check_bits(const TrainedExperts& found, const TrainedExperts& expected) {
  CHECK(found.losses == expected.losses);
  CHECK(found.norms == expected.norms);
  CHECK(found.shares == expected.shares);
  CHECK((found.weights == expected.weights));
  CHECK((found.moments == expected.moments));
}

const models::LoraConfig kLora{.rank = 3, .alpha = 6, .target_modules = {"all-linear"}};

}  // namespace

TEST_CASE("ranks that divide the experts train a mixture to one rank's bits") {
  for (const std::string family : {"qwen3_moe", "gpt_oss", "gemma4_text"})
    for (const auto& lora : {std::optional<models::LoraConfig>(), std::optional(kLora)})
      for (const bool recompute : {false, true}) {
        CAPTURE(family);
        CAPTURE(lora.has_value());
        CAPTURE(recompute);
        const ExpertsSetup setup{.family = family, .lora = lora, .recompute = recompute};
        const TrainedExperts one = on_one(setup);
        for (const int ranks : {2, 8}) {  // of 8 some get no row
          CAPTURE(ranks);
          const TrainedExperts all = on_ranks(ranks, setup);
          check_bits(all, one);
          CHECK(all.kept < one.kept);
        }
      }
}

TEST_CASE("every optimizer updates the experts where they are") {
  for (const auto& entry : train::optimizers().list()) {
    CAPTURE(entry.name);
    const ExpertsSetup setup{.optimizer = entry.name};
    check_bits(on_ranks(2, setup), on_one(setup));
  }
}

TEST_CASE("ranks whose experts alone train, and the balance of experts, keep the bits") {
  const auto experts_alone = [](nn::Module& model) {
    model.each_parameter([](const std::string& name, nn::Parameter& p) {
      p.set_trainable(name.find(".experts.") != std::string::npos);
    });
  };
  const models::LoraConfig of_experts{
      .rank = 3, .alpha = 6, .target_modules = {"gate_up_proj", "down_proj"}};
  for (const bool recompute : {false, true})
    for (const ExpertsSetup& setup : {ExpertsSetup{.recompute = recompute, .freeze = experts_alone},
                                      ExpertsSetup{.lora = of_experts, .recompute = recompute},
                                      ExpertsSetup{.recompute = recompute, .balance = 0.1}})
      for (const int ranks : {2, 8}) {
        CAPTURE(recompute);
        CAPTURE(ranks);
        check_bits(on_ranks(ranks, setup), on_one(setup));
      }
}

TEST_CASE("a checkpoint of divided experts goes on under another mesh, to the bit") {
  for (const std::string optimizer : {"adamw", "muon"}) {
    CAPTURE(optimizer);
    const tiny::Folder folder;
    on_ranks(2, {.optimizer = optimizer, .save_to = folder / "two"});
    on_one({.optimizer = optimizer, .save_to = folder / "one"});
    for (const std::string file : {"policy.safetensors", "policy.optimizer.safetensors"}) {
      const std::string path = "/checkpoints/step-3/" + file;
      CHECK(read_file(folder / ("one" + path), 1 << 24) ==
            read_file(folder / ("two" + path), 1 << 24));
    }
    const ExpertsSetup more{.optimizer = optimizer, .load_from = folder / "two/checkpoints/step-3"};
    const TrainedExperts one = on_one(more);
    check_bits(on_ranks(2, more), one);
    check_bits(on_ranks(4, more), one);
  }
}

TEST_CASE("experts that the ranks do not divide are refused") {
  const auto model = models::make_model(config_of("qwen3_moe"));
  tiny::ThreadRanks(3).run([&](dist::Group& group) {
    CHECK_THROWS_WITH_AS(
        models::split_experts(*model, {&group, [](dist::Group*) {}}, "mesh.expert", "tiny"),
        doctest::Contains("mesh.expert: 3 ranks do not divide the 8 experts of "
                          "`model.layers.0.mlp.experts` (tiny)"),
        ConfigError);
  });
}
