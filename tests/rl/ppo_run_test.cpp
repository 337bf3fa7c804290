// Whole runs of PPO with a critic: interrupted, replayed, on a base that policy and critic share.
#include "temper/base/file.h"
#include "temper/io/safetensors.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/rl/run.h"
#include "tests/preference/folder.h"
#include "tests/train/tiny.h"

using namespace temper;
using tiny::Folder;

namespace {

// The tiny model as a directory, and prompts.
void make_inputs(const Folder& folder) {
  const std::string model = folder / "model";
  std::filesystem::create_directories(model);
  write_file_atomic(model + "/config.json",
                    R"({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    "tie_word_embeddings": true, "eos_token_id": 2})");
  models::save_weights(*tiny::model(), model, at::kFloat);
  std::string prompts;
  for (const std::vector<int32_t>& row : tiny::rows(20))
    prompts += "{\"prompt_ids\": " + Json(row).dump() + "}\n";
  write_file_atomic(folder / "prompts.jsonl", prompts);
}

struct PpoRun {
  const Folder& folder;
  std::string output;
  std::vector<std::string> arguments;
  train::RunOutcome outcome;

  PpoRun(const Folder& in, const std::string& name, const std::vector<std::string>& more = {})
      : folder(in),
        output(in / name),
        arguments{"output_dir=" + output,
                  "model.path=" + (in / "model"),
                  "data.train=" + (in / "prompts.jsonl"),
                  "rewards=[{name: even_ids}]",
                  "rl={prompts_per_rollout: 6, minibatches: 2, iterations: 2}",
                  "rollout={max_new_tokens: 6, temperature: 0.9}",
                  "train={max_steps: 8, micro_batch_tokens: 64}",
                  "optimizer={learning_rate: 1.0e-2, schedule: constant}",
                  "metrics.sinks=[jsonl]"} {
    if (!std::filesystem::exists(in / "model")) make_inputs(in);
    arguments.insert(arguments.end(), more.begin(), more.end());
  }
  PpoRun& go(size_t stop_after = 0) {
    rl::PpoConfig config;
    read_run_config(config, arguments, "ppo");
    std::ostringstream console;
    const std::string metrics = output + "/metrics.jsonl";
    outcome = rl::run_ppo(config, {console, false, [&] {
                                     return stop_after > 0 && std::filesystem::exists(metrics) &&
                                            read_metrics_file(metrics).size() >= stop_after;
                                   }});
    return *this;
  }
  std::string file(const std::string& name) const { return read_file(output + "/" + name); }
  std::vector<MetricsRow> rows() const { return read_metrics_file(output + "/metrics.jsonl"); }
  double mean(const std::string& metric, size_t first, size_t count) const {
    double sum = 0;
    for (size_t i = first; i < first + count; ++i) sum += rows().at(i).number(metric).value();
    return sum / static_cast<double>(count);
  }
};

// Everything that a run leaves but times.
void check_same(const PpoRun& a, const PpoRun& b) {
  CHECK(a.file("final/model.safetensors") == b.file("final/model.safetensors"));
  CHECK(a.file("critic/model.safetensors") == b.file("critic/model.safetensors"));
  CHECK(tiny::logged(a.output) == tiny::logged(b.output));
}

}  // namespace

TEST_CASE("a run of ppo that stops anywhere goes on to the same bits, its critic too") {
  const Folder folder;
  const std::vector<std::string> keys{"ppo.critic_warmup_steps=2", "ppo.critic_learning_rate=3e-3"};
  const PpoRun whole = PpoRun(folder, "whole", keys).go();
  CHECK(whole.rows().size() == 8);
  for (const std::vector<size_t>& stops : std::vector<std::vector<size_t>>{{3}, {1, 2, 4, 6, 7}}) {
    const std::string name = str("cut-", stops.size());
    CAPTURE(name);
    PpoRun cut(folder, name, keys);
    for (const size_t stop : stops) CHECK(cut.go(stop).outcome.interrupted);
    const std::string checkpoint = str("checkpoints/step-", stops.back(), "/critic.safetensors");
    CHECK(std::filesystem::exists(cut.output + "/" + checkpoint));
    cut.go();
    check_same(cut, whole);
    for (const char* state : {"policy", "critic"})
      CHECK(cut.file(str("checkpoints/step-8/", state, ".optimizer.safetensors")) ==
            whole.file(str("checkpoints/step-8/", state, ".optimizer.safetensors")));
  }
  for (const MetricsRow& row : whole.rows()) {
    CHECK(row.number("sampler_trainer_max_abs_diff").value_or(0) == 0);
    CHECK(row.number("critic_learning_rate") == 3e-3);
    CHECK_FALSE(row.number("zero_std_groups").has_value());  // its groups have one completion
  }
}

TEST_CASE("training ppo on a run's rollouts again is the run, to the bit") {
  const Folder folder;
  const PpoRun run = PpoRun(folder, "run").go();
  write_file_atomic(folder / "all.jsonl",
                    run.file("rollouts/step-1.jsonl") + run.file("rollouts/step-5.jsonl"));
  PpoRun replay(folder, "replay", {"rl.replay=" + (folder / "all.jsonl"), "rewards=[]"});
  replay.go();
  CHECK(replay.file("final/model.safetensors") == run.file("final/model.safetensors"));
  CHECK(replay.file("critic/model.safetensors") == run.file("critic/model.safetensors"));
  for (const char* metric : {"loss", "value_loss", "kl", "returns_mean", "explained_variance"})
    CHECK(replay.rows().back().number(metric) == run.rows().back().number(metric));
}

TEST_CASE("the first updates may train the critic alone") {
  const Folder folder;
  const PpoRun warm =
      PpoRun(folder, "warm", {"ppo.critic_warmup_steps=8", "optimizer.weight_decay=0.1"}).go();
  CHECK(warm.file("final/model.safetensors") == read_file(folder / "model/model.safetensors"));
  CHECK(warm.rows().back().number("learning_rate") == 0);
  CHECK(warm.rows().back().number("critic_learning_rate") == 1e-2);
  CHECK(warm.rows().back().number("grad_norm").value() > 0);
  CHECK(warm.rows()[7].number("value_loss").value() < warm.rows()[0].number("value_loss").value());
  // What the policy then makes of the same rollouts is as if it had just begun.
  const PpoRun then = PpoRun(folder, "then", {"ppo.critic=" + warm.output + "/critic"}).go();
  CHECK(then.rows()[0].number("explained_variance").value() >
        PpoRun(folder, "fresh").go().rows()[0].number("explained_variance").value());
}

TEST_CASE("ppo raises a reward") {
  const Folder folder;
  const PpoRun run = PpoRun(folder, "run",
                            {"train.max_steps=120", "rl={prompts_per_rollout: 16, iterations: 2}",
                             "ppo.critic_learning_rate=3e-3"})
                         .go();
  CHECK(run.mean("reward_mean", 110, 10) > run.mean("reward_mean", 0, 10) + 0.25);
  CHECK(run.mean("value_loss", 110, 10) < run.mean("value_loss", 0, 10));
}

TEST_CASE("a critic on the policy's base begins as one of its own, and trains") {
  const Folder folder;
  const std::vector<std::string> lora{"adapter={method: lora, rank: 4}"};
  std::vector<std::string> shared = lora;
  shared.push_back("ppo.share_base=true");
  const PpoRun own = PpoRun(folder, "own", lora).go();
  const PpoRun one = PpoRun(folder, "one", shared).go();
  CHECK(one.rows()[0].number("value_loss") == own.rows()[0].number("value_loss"));
  CHECK(one.rows()[0].number("loss") == own.rows()[0].number("loss"));
  CHECK(one.rows()[0].number("explained_variance") == own.rows()[0].number("explained_variance"));
  CHECK(one.rows()[7].number("value_loss") < one.rows()[0].number("value_loss"));
  const auto first_loss = [&](const char* name, const char* share) {
    return PpoRun(folder, name, {"adapter={method: qlora, rank: 4}", share, "train.max_steps=1"})
        .go()
        .rows()[0]
        .number("value_loss")
        .value();
  };
  CHECK(first_loss("own-qlora", "ppo.share_base=false") ==
        first_loss("one-qlora", "ppo.share_base=true"));
  // It is left as a model, resumes, and computes the same with less memory.
  PpoRun cut(folder, "cut", shared);
  for (const size_t stop : {1, 3, 6}) cut.go(stop);
  cut.go();
  const auto same = [](const PpoRun& a, const PpoRun& b) {
    CHECK(a.file("final/adapter_model.safetensors") == b.file("final/adapter_model.safetensors"));
    CHECK(a.file("critic/model.safetensors") == b.file("critic/model.safetensors"));
  };
  same(cut, one);
  shared.push_back("train.recompute=blocks");
  same(PpoRun(folder, "recomputed", shared).go(), one);
  std::vector<std::string> next = lora;
  next.push_back("ppo.critic=" + one.output + "/critic");
  CHECK(PpoRun(folder, "next", next).go().outcome.steps == 8);
}

TEST_CASE("a critic that QLoRA trained goes on from the weights that it was trained on") {
  const Folder folder;
  make_inputs(folder);
  pref::write_rows(folder / "pairs.jsonl", pref::pairs(8));
  preference::PreferenceConfig reward = pref::config(folder, "");
  reward.model.path = folder / "model";
  reward.output_dir = folder / "rm";
  reward.data.train = {{.path = folder / "pairs.jsonl"}};
  reward.adapter.method = models::AdapterSection::Method::kQlora;
  reward.adapter.rank = 4;
  reward.adapter.target_modules = {"q_proj", "up_proj"};  // others have nothing to merge
  reward.train.max_steps = 2;
  pref::run(&preference::run_reward, reward);
  const std::string trained = reward.output_dir + "/final";

  const PpoRun run =
      PpoRun(folder, "run", {"ppo.critic=" + trained, "ppo.critic_learning_rate=1.0e-30"}).go();
  const auto merged = [&](const models::Storage& storage) {
    auto model = models::load_scalar_model(folder / "model", storage);
    models::load_adapter(*model, trained);
    models::merge_adapters(*model);
    tiny::Weights out;
    model->each_parameter([&](const std::string& name, nn::Parameter& p) {
      const at::Tensor value = p.float_value().contiguous();
      out[name].assign(value.const_data_ptr<float>(),
                       value.const_data_ptr<float>() + value.numel());
    });
    return out;
  };
  const auto left = models::load_scalar_model(run.output + "/critic");
  // The updates of that rate move nothing but zeros.
  CHECK(tiny::distance(tiny::weights(*left), merged({.blocks = ops::WeightFormat::kNf4})) < 1e-20);
  CHECK(tiny::distance(tiny::weights(*left), merged({})) > 1e-3);
}

TEST_CASE("a classifier of two labels is no critic") {
  const Folder folder;
  make_inputs(folder);
  auto tensors = read_safetensors(folder / "model/model.safetensors");
  const at::Tensor two = at::zeros({2, 32});
  tensors["score.weight"] = models::to_view(two);
  std::filesystem::create_directories(folder / "two");
  std::filesystem::copy(folder / "model/config.json", folder / "two/config.json");
  write_safetensors(folder / "two/model.safetensors", tensors);
  try {
    PpoRun(folder, "run", {"ppo.critic=" + (folder / "two")}).go();
    FAIL("it was taken");
  } catch (const ConfigError& e) {
    const std::string message = e.what();
    CHECK(message.find("ppo.critic: ") != std::string::npos);
    CHECK(message.find("a classifier of 2 labels") != std::string::npos);
  }
}
