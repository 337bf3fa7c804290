// The combinations of keys that reinforcement learning refuses.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "temper/base/error.h"
#include "temper/rl/config.h"
#include "temper/rl/episode.h"
#include "temper/rl/rollout/rollout_files.h"

namespace temper::rl {
namespace {

constexpr int64_t kMostRollouts = 1'000'000;

}  // namespace

void RlConfig::validate() const {
  RunConfig::validate();
  require(has_critic() || !rl.algorithm->needs().critic, "rl.algorithm",
          "its critic is trained by another verb: temper ppo");
  const std::string problem = env::find_problem(environment);
  check<ConfigError>(problem.empty(), problem);
  const std::string wrong_reward = rewards::find_problem(rewards);
  require(wrong_reward.empty(), "rewards", wrong_reward);
  require(train.eval_rewards.empty() || !environment.any(), "train.eval_rewards",
          "found rewards with an environment, expected none: its episodes are evaluated by its own "
          "rewards and `rewards`");
  require(adapter.dropout == 0, "adapter.dropout", "found ", adapter.dropout, ", expected 0 under ",
          verb.value_or("grpo"), ": the sampler's log-probabilities must be the trainer's");
  require(train.neftune_alpha == 0, "train.neftune_alpha", "found ", train.neftune_alpha,
          ", expected 0 under ", verb.value_or("grpo"),
          ": the sampler's log-probabilities must be the trainer's");
  require(train.z_loss == 0, "train.z_loss", "found ", train.z_loss,
          ", expected 0: only sft's loss has this term");
  validate_batches();
  rollout.validate();
  if (rollout.replay_sampling_mask == true) {
    require(
        !rollout.server.used(), "rollout.replay_sampling_mask",
        "found true with rollout.server, expected null or false: servers do not say which tokens "
        "truncation left");
    require(
        !rollout.options(0).sampling.changes_logits(), "rollout.replay_sampling_mask",
        "found true with penalties, no_repeat_ngram or logit_bias, expected null or false: what "
        "is sampled from is then no truncation of the policy's distribution");
  }
  validate_sampler();
  validate_mesh();
  const int64_t least = rl.algorithm->needs().min_group_size;
  require(rl.replay || rl.group_size >= least, "rl.group_size", "found ", rl.group_size,
          ", expected at least ", least, ": an advantage compares completions of one prompt");
  for (const rewards::RewardSection& reward : rewards)
    require(reward.label() != kEnvironmentReward || !environment.any(), "rewards",
            "a reward is called `", kEnvironmentReward,
            "`, as the environment's own is; give it another name");
}

// Checks the keys that say what a rollout batch is and what trains on it.
void RlConfig::validate_batches() const {
  require(rl.prompts_per_rollout <= kMostRollouts / rl.group_size, "rl.prompts_per_rollout",
          "found ", rl.prompts_per_rollout, " of rl.group_size ", rl.group_size,
          ", expected at most ", kMostRollouts, " completions in a rollout batch");
  require(RolloutRetention::parse(rl.save_rollouts).has_value(), "rl.save_rollouts", "found ",
          rl.save_rollouts, ", expected all, none, every K or last K with a whole number K >= 1, ",
          "as in `every 10`");
  const int64_t rows = rl.prompts_per_rollout * rl.group_size;
  require(rl.minibatches <= rows, "rl.minibatches", "found ", rl.minibatches,
          ", expected at most the ", rows,
          " rows of a rollout batch (rl.prompts_per_rollout x rl.group_size)");
  require(rl.top_entropy_fraction > 0, "rl.top_entropy_fraction",
          "found 0, expected number > 0 and "
          "<= 1: no token would have a policy loss");
  require(rl.reference_update_every == 0 || !has_adapter(), "rl.reference_update_every", "found ",
          rl.reference_update_every,
          ", expected 0 with an adapter: its reference is the frozen base, which has no weights of "
          "its own");
  require(rl.reference_update_every == 0 || roles.reference.empty(), "rl.reference_update_every",
          "found ", rl.reference_update_every,
          ", expected 0 with roles.reference: ranks of their own do not get the policy's weights");
  const double dual_clip = rl.algorithm->dual_clip();
  require(dual_clip == 0 || dual_clip >= 1, "rl.dual_clip", "found ", dual_clip,
          ", expected 0 (off) or at least 1: below 1 it would bound the loss of tokens whose "
          "probability has not changed");
  require(rollout.sampling.temperature > 0, "rollout.temperature",
          "found 0, expected number > 0: greedy completions are all the same, and the policy's "
          "log-probabilities are those at this temperature");
  const DifficultySection& difficulty = rl.difficulty;
  require(difficulty.lowest < difficulty.highest, "rl.difficulty.lowest", "found ",
          difficulty.lowest, ", expected less than rl.difficulty.highest, ", difficulty.highest);
  require(
      difficulty.mode == DifficultySection::Mode::kNone || (rl.max_staleness == 0 && !rl.replay),
      "rl.difficulty.mode",
      "prompts are chosen by the rewards of the batch before: it needs rl.max_staleness 0, and "
      "no rl.replay");
}

// Checks the keys that say who samples, and with weights of which version.
void RlConfig::validate_sampler() const {
  constexpr int64_t kMostStaleness = 1000;
  require(rl.max_staleness <= kMostStaleness, "rl.max_staleness", "found ", rl.max_staleness,
          ", expected at most ", kMostStaleness);
  require(rl.replay || models::is_exact(device_choice()) ||
              rl.on_mismatch == RlSection::OnMismatch::kCorrect,
          "rl.on_mismatch",
          "found stop, expected correct: sampling and training differ by rounding on the backend "
          "aten");
  require(rl.max_staleness == 0 || rl.on_mismatch == RlSection::OnMismatch::kCorrect,
          "rl.on_mismatch", "found stop with rl.max_staleness ", rl.max_staleness,
          ", expected correct: a stale sampler's log-probabilities are not the trainer's");
  const int64_t sampling = !roles.rollout.empty()  ? roles.tensor
                           : rollout.server.used() ? 1
                                                   : mesh.tensor;
  require(sampling == mesh.tensor || rl.on_mismatch == RlSection::OnMismatch::kCorrect,
          "rl.on_mismatch", "found stop, expected correct: training divides the model over ",
          mesh.tensor, mesh.tensor == 1 ? " rank" : " ranks", " (mesh.tensor), sampling over ",
          sampling, " (", roles.rollout.empty() ? "rollout.server" : "roles.tensor",
          "), and their sums round differently");
  require(!rl.replay || rl.max_staleness == 0, "rl.max_staleness", "found ", rl.max_staleness,
          ", expected 0 with rl.replay: nothing is sampled");
  const bool continues = rollout.update == RlRolloutSection::Update::kContinue;
  const auto finish = [&](bool holds, const std::string& why) {
    require(!continues || holds, "rollout.update", "found continue, expected finish ", why);
  };
  finish(rl.max_staleness > 0, "with rl.max_staleness 0: no update happens during sampling");
  finish(!rollout.server.used(),
         "with rollout.server: a server samples a completion with one version of the weights");
  finish(!environment.any(),
         "with an environment: an episode is sampled with one version of the weights");
  finish(rl.algorithm->max_refills() == 0,
         "with dynamic sampling: further prompts are drawn only after a batch has its rewards");
  require(!rl.replay || !rollout.server.used(), "rollout.server",
          "found servers and rl.replay; expected one of them");
  const generate::ServerSection &server = rollout.server, none;
  const bool asked = server.kind != none.kind || server.sync != none.sync || server.weights_dir ||
                     server.api_key_env || server.timeout_seconds != none.timeout_seconds ||
                     server.wait_minutes != none.wait_minutes;
  require(server.used() || !asked, "rollout.server.urls",
          "found none, expected the servers' addresses, such as [http://127.0.0.1:8000]");
  // The first batch alone is sampled by the policy that it trains.
  const bool one_batch = train.max_steps && *train.max_steps <= rl.updates_per_batch();
  const bool keeps_weights = server.used() && server.sync == generate::ServerSection::Sync::kNone;
  require(!keeps_weights || one_batch || rl.on_mismatch == RlSection::OnMismatch::kCorrect,
          "rl.on_mismatch", "found stop with rollout.server.sync none, expected correct, or sync ",
          "disk: the servers keep their weights, and from the second rollout batch on their "
          "log-probabilities are those of an older policy");
  if (server.used())
    if (const auto problem = server.find_unsupported(rollout); problem)
      fail(problem->key, problem->message);
  const std::pair<const char*, std::optional<int64_t>> sizes[] = {
      {"data.min_image_pixels", data.min_image_pixels},
      {"data.max_image_pixels", data.max_image_pixels}};
  for (const auto& [key, pixels] : sizes)
    require(!server.used() || !pixels, key, "found ", pixels.value_or(0),
            " with rollout.server, expected null: servers resize images by the "
            "preprocessor_config.json of their model directory; set the size there, and in that of "
            "model.path");
  validate_server_rows();
  require(rl.importance_bounds[0] < rl.importance_bounds[1], "rl.importance_bounds", "found ",
          rl.importance_bounds[0], " and ", rl.importance_bounds[1],
          ", expected a lower and an upper bound");
}

// Servers get each version of the weights as a whole model, or an adapter, whose rows of embeddings
// only some kinds take. Under an adapter new tokens that do not train are in neither.
void RlConfig::validate_server_rows() const {
  if (!rollout.server.used()) return;
  const bool syncs = rollout.server.sync == generate::ServerSection::Sync::kDisk,
             rows = has_adapter() && adapter.train_tokens.any();
  require(!syncs || !rows || servers_take_rows(), "adapter.train_tokens",
          "found tokens with rollout.server, expected null: servers of kind ", rollout.server.kind,
          " take an adapter's low-rank matrices, not rows of embeddings");
  require(model.new_tokens.empty() ||
              (syncs && (!has_adapter() || (rows && adapter.train_tokens.all_new))),
          "model.new_tokens",
          "found tokens with rollout.server, whose model lacks their rows; expected null, or ",
          syncs ? "" : "rollout.server.sync: disk and ",
          "what sends the rows: adapter.method: none, or adapter.train_tokens: new");
}

// Checks the combinations that sampling does not support where ranks hold parts of the model.
void RlConfig::validate_mesh() const {
  const bool whole = mesh.is_whole(&dist::Axis::divides_any);
  const bool others_sample = !roles.rollout.empty() || rollout.server.used();
  require(whole || rl.max_staleness == 0 || others_sample, "rl.max_staleness",
          "ranks that share weights or rows cannot sample while they train; expected ",
          dist::one_rank_each(&dist::Axis::divides_any),
          " with it, or others that sample (roles.rollout, rollout.server)");
  require(environment.openai.command.empty() || !others_sample, "environment.openai",
          "agents are answered by the ranks that train; expected neither rollout.server nor "
          "roles.rollout with it");
  require(
      environment.openai.command.empty() || !rollout.form.any(), "environment.openai",
      "agents say what they ask for; expected neither rollout.json_schema nor rollout.regex nor "
      "rollout.grammar with it");
  require(mesh.is_whole(&dist::Axis::shares_rows) || !environment.any(), "environment",
          "ranks that compute the same rows must sample the same turns at the same time, which "
          "episodes do not guarantee; expected ",
          dist::one_rank_each(&dist::Axis::shares_rows), " with it");
}

}  // namespace temper::rl
