// PPO: what its credit is, and whole runs with a critic: interrupted, replayed, with a base that
// policy and critic share.
#include "temper/rl/ppo.h"

#include <ATen/ATen.h>

#include "temper/base/file.h"
#include "temper/rl/gae.h"
#include "temper/rl/replayed.h"
#include "temper/rl/run.h"
#include "tests/train/tiny.h"

using namespace temper;
using tiny::Folder;

namespace {

// A prompt with completions of these lengths and rewards, and these values at every token.
rl::EpisodeGroup group_of(const std::vector<size_t>& lengths, const std::vector<double>& rewards,
                          float value = 0) {
  rl::EpisodeGroup group;
  group.segments.push_back({.tokens = {3, 4}});
  for (size_t i = 0; i < lengths.size(); ++i) {
    group.segments.push_back({.parent = 0,
                              .tokens = std::vector<int32_t>(lengths[i], 5),
                              .sampled = true,
                              .value = std::vector<float>(lengths[i], value)});
    group.episodes.push_back({.sample = static_cast<int64_t>(i),
                              .path = {static_cast<int32_t>(i) + 1},
                              .reward = rewards[i]});
  }
  return group;
}

rl::Ppo without_kl() {
  rl::Ppo ppo;
  ppo.keys.beta = 0;
  ppo.section.gae_lambda = 1;
  return ppo;
}

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

std::string error_of(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"output_dir=run", "model.path=m", "data.train=d",
                                     "rewards=[gsm8k]"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  try {
    rl::PpoConfig config;
    read_run_config(config, arguments, "ppo");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a critic of zeros leaves REINFORCE with whitened rewards") {
  rl::Ppo ppo = without_kl();
  std::vector<rl::EpisodeGroup> groups{group_of({2, 4}, {1, 0}), group_of({3}, {5})};
  ppo.assign_batch(groups);
  std::vector<float> expected{1, 1, 0, 0, 0, 0, 5, 5, 5};  // each token its episode's reward
  rl::whiten(expected);
  std::vector<float> found;
  for (const rl::EpisodeGroup& group : groups)
    for (const rl::Segment& segment : group.segments)
      found.insert(found.end(), segment.advantage.begin(), segment.advantage.end());
  CHECK(found == expected);
  CHECK(groups[1].segments[1].returns == std::vector<float>(3, 5));  // as they were before
  // Whose loss, at a batch's first update, has the gradient of -mean(A log p).
  rl::TokenBatch b;
  b.logp_M = at::linspace(-3, -1, 9).requires_grad_(true);
  b.old_logp_M = b.logp_M.detach();
  b.entropy_M = at::zeros(9);
  b.advantage_M = at::tensor(found);
  b.value_M = b.old_value_M = b.return_M = at::zeros(9);
  b.weight_M = at::full({9}, 1.0 / 9);
  b.update_tokens = 9;
  const train::Loss loss = ppo.loss(b);
  (loss.terms[0].value * loss.terms[0].weight).sum().backward();
  CHECK(at::allclose(b.logp_M.grad(), -b.advantage_M / 9));
  CHECK(loss.terms[0].name == "policy");
  CHECK(loss.terms[1].separate);
}

TEST_CASE("a bandit's advantage is its reward less what was expected") {
  rl::Ppo ppo = without_kl();
  ppo.section.whiten_advantages = false;
  rl::EpisodeGroup arms = group_of({1, 1, 1}, {0, 1, 0.25}, 0.5F);
  std::vector<rl::EpisodeGroup> groups{arms};
  ppo.assign_batch(groups);
  CHECK(groups[0].segments[1].advantage == std::vector<float>{-0.5F});
  CHECK(groups[0].segments[2].advantage == std::vector<float>{0.5F});
  CHECK(groups[0].segments[3].advantage == std::vector<float>{-0.25F});
  CHECK(groups[0].segments[3].returns == std::vector<float>{0.25F});
}

TEST_CASE("the KL is paid at its token, the reward and its penalty at the last one") {
  rl::Ppo ppo;
  ppo.keys.beta = 0.5;
  ppo.section = {.gamma = 1, .gae_lambda = 1, .whiten_advantages = false};
  rl::EpisodeGroup group = group_of({3}, {2});
  group.segments[1].old_logp = {-1, -2, -3};
  group.segments[1].ref_logp = {-2, -2, -1};  // KL_t of k1: 1, 0, -2
  group.episodes[0].penalty = -0.5;
  ppo.assign(group);
  CHECK(group.segments[1].advantage == std::vector<float>{2.0F, 2.5F, 2.5F});
  MetricsRow row(1);
  ppo.describe(std::vector<const rl::Segment*>{&group.segments[1]}, row);
  CHECK(row.number("kl").value() == doctest::Approx(-1.0 / 3));
  CHECK(row.number("returns_mean").value() == doctest::Approx(7.0 / 3));
}

TEST_CASE("an observation has neither a value nor a reward") {
  rl::Ppo ppo = without_kl();
  ppo.section = {.gamma = 0.5, .gae_lambda = 1, .whiten_advantages = false};
  rl::EpisodeGroup group;
  group.segments = {{.tokens = {3}},
                    {.parent = 0, .tokens = {4, 5}, .sampled = true, .value = {1, 1}},
                    {.parent = 1, .tokens = {6, 7, 8}},
                    {.parent = 2, .tokens = {9}, .sampled = true, .value = {1}}};
  group.episodes.push_back({.path = {1, 2, 3}, .reward = 4});
  ppo.assign(group);
  CHECK(group.segments[1].advantage == std::vector<float>{0, 1});
  CHECK(group.segments[2].advantage.empty());
  CHECK(group.segments[3].advantage == std::vector<float>{3});
}

TEST_CASE("the value loss is clipped around the old values") {
  rl::Ppo ppo;
  const auto value_loss = [&](double v, double old, double target) {
    rl::TokenBatch b;
    b.logp_M = b.old_logp_M = b.entropy_M = b.advantage_M = at::zeros(1);
    b.weight_M = at::ones(1);
    b.value_M = at::full({1}, v);
    b.old_value_M = at::full({1}, old);
    b.return_M = at::full({1}, target);
    b.update_tokens = 1;
    const train::Loss loss = ppo.loss(b);
    const train::Term& term = loss.terms[1];
    return term.coefficient / term.denominator * term.value.item<double>();
  };
  CHECK(value_loss(1, 1, 3) == doctest::Approx(2));
  CHECK(value_loss(2, 1, 3) == doctest::Approx(0.5 * 1.8 * 1.8));  // it went too far already
  CHECK(value_loss(0, 1, 3) == doctest::Approx(4.5));              // the wrong way: it counts
  ppo.section.value_clip = 0;
  CHECK(value_loss(2, 1, 3) == doctest::Approx(0.5));
}

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

TEST_CASE("ppo says what is wrong with its config") {
  CHECK(error_of({}) == "no error");
  CHECK(error_of({"rl.algorithm=ppo"}) == "no error");
  CHECK(error_of({"rl.algorithm=grpo"}).find("found grpo, expected ppo") != std::string::npos);
  CHECK(error_of({"rl.scale_rewards=true"}).find("scale_rewards") != std::string::npos);
  CHECK(error_of({"ppo.gama=0.9"}).find("did you mean `gamma`?") != std::string::npos);
  CHECK(error_of({"ppo.gae_lambda=1.5"}).find("ppo.gae_lambda") != std::string::npos);
  CHECK(error_of({"ppo.share_base=true"}).find("adapter.method: lora") != std::string::npos);
  CHECK(error_of({"ppo.share_base=true", "adapter.method=lora", "ppo.critic=c"})
            .find("a model of its own") != std::string::npos);
  CHECK(error_of({"adapter.method=lora", "adapter.dropout=0.1"}).find("adapter.dropout") !=
        std::string::npos);
  rl::RlConfig grpo;
  const std::vector<std::string> arguments{"output_dir=run", "model.path=m", "rl.replay=r",
                                           "rl.algorithm=ppo"};
  CHECK_THROWS_AS(read_run_config(grpo, arguments, "grpo"), ConfigError);
}
