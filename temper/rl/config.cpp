#include "temper/rl/config.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "temper/base/error.h"
#include "temper/generate/remote/protocol.h"
#include "temper/rl/episode.h"
#include "temper/rl/rollout/rollout_files.h"

namespace temper {

template <>
inline constexpr std::array enum_names<rl::RlSection::OnMismatch> = {"stop", "correct"};
template <>
inline constexpr std::array enum_names<rl::RlSection::Correction> = {
    "truncate", "mask", "sequence_truncate", "sequence_mask"};
template <>
inline constexpr std::array enum_names<rl::RlRolloutSection::Update> = {"finish", "continue"};

}  // namespace temper

namespace temper::rl {
namespace {

constexpr int64_t kMostRollouts = 1'000'000;

}  // namespace

void RlSection::set_algorithm(const std::string& name, const std::string& where) {
  algorithm = algorithms().find(name, where)();
  name_ = name;
}

std::unique_ptr<Algorithm> RlSection::untouched_algorithm() const {
  return algorithms().find(name_, "rl.algorithm")();
}

std::string RlSection::overridden_defaults(const RolloutLimits& limits) const {
  const std::unique_ptr<Algorithm> untouched = untouched_algorithm();
  untouched->prepare(limits);
  const std::vector<Field> papers = Fields::of(*untouched), own = Fields::of(*algorithm);
  std::string out;
  for (size_t i = 0; i < own.size(); ++i) {
    const std::string value = own[i].write().text, paper = papers.at(i).write().text;
    if (value != paper)
      out += str(out.empty() ? "" : ", ", "rl.", own[i].name, " is ", value, ", not ", paper);
  }
  return out;
}

ImportanceCorrection RlSection::correction() const {
  const auto is = [&](Correction how) { return importance_correction == how; };
  return {.mask = is(Correction::kMask) || is(Correction::kSequenceMask),
          .sequence = is(Correction::kSequenceTruncate) || is(Correction::kSequenceMask),
          .cap = importance_cap,
          .low = importance_bounds[0],
          .high = importance_bounds[1]};
}

void RlSection::fields(Fields& f) {
  f.add(
      "algorithm", name_,
      "the policy-gradient algorithm (temper list algorithms); sets its paper's defaults, but rloo "
      "averages the loss per completion, where its paper sums (loss_aggregation)");
  f.add("group_size", group_size, "completions sampled per prompt", at_least(1));
  f.add("prompts_per_rollout", prompts_per_rollout, "prompts per rollout batch", at_least(1));
  f.add("minibatches", minibatches,
        "number of minibatches, and so of updates, in one epoch over a rollout batch", at_least(1));
  f.add("iterations", iterations, "epochs over each rollout batch (PPO epochs)", at_least(1));
  f.add("replay", replay, "a rollout file (rollouts/step-N.jsonl) to train on instead of sampling",
        reads(InputFiles::kRows));
  f.add("save_rollouts", save_rollouts,
        "rollout batches that are kept in rollouts/: all, none, every K (one of K batches, as in "
        "every 10) or last K",
        without_effect());
  f.add("compress_rollouts", compress_rollouts,
        "write rollouts/step-N.jsonl.zst (Zstandard) in place of .jsonl; rl.replay reads both",
        without_effect());
  f.add(
      "max_staleness", max_staleness,
      "asynchronous rollout: maximum number of updates between the policy that samples a batch and "
      "the one that trains on it; 0: sampling and training alternate",
      at_least(0));
  f.add("difficulty", difficulty, "which prompts are drawn again");
  f.add("on_mismatch", on_mismatch,
        "when the log-probabilities of sampler and trainer differ: stop, or correct by importance "
        "sampling. Default: correct with max_staleness, rollout.server, model.backend: aten, or "
        "roles.tensor other than mesh.tensor; else stop. With rl.replay, if this key is not set, a "
        "difference only gives a warning, and the file's `logprobs` are not used");
  f.add(
      "importance_correction", importance_correction,
      "how on_mismatch: correct bounds a token's importance weight, trainer's over sampler's "
      "probability: truncate at importance_cap (TIS), or mask outside importance_bounds (IcePop); "
      "sequence_truncate, sequence_mask: the weight is the whole completion's (the product of its "
      "tokens'), at most importance_cap, or 0 above it");
  f.add("importance_cap", importance_cap,
        "upper bound of importance weights, but under importance_correction: mask", above(0));
  f.add("importance_bounds", importance_bounds,
        "under importance_correction: mask, tokens with weights outside [low, high] are masked",
        above(0));
  f.add("mask_truncated", mask_truncated,
        "completions that end for length train nothing and count in no mean of the loss; rewards "
        "and advantages are as without it");
  f.add("top_entropy_fraction", top_entropy_fraction,
        "only this share of an update's completion tokens, those of highest entropy, has a policy "
        "loss (Wang et al.; often 0.2); costs a forward pass; 1: all",
        between(0, 1));
  f.add("reference", reference,
        "directory of the reference model; null: the initial policy (with a new adapter, its base)",
        reads(InputFiles::kModel));
  f.add("reference_update_every", reference_update_every,
        "after every so many updates the reference becomes reference_mix x policy + (1 - "
        "reference_mix) x reference, from the next rollout batch on; 0: it stays; not with an "
        "adapter",
        at_least(0));
  f.add("reference_mix", reference_mix, "the policy's share in it", between(0, 1));
  algorithm->fields(f);
}

void RlRolloutSection::fields(Fields& f) {
  RolloutSection::fields(f);
  f.add("server", server, "servers that sample in place of this process");
  f.add("threads", threads,
        "with rl.max_staleness, CPU threads for sampling; training uses the others; null: half of "
        "them",
        at_least(1));
  f.add("update", update,
        "with rl.max_staleness, completions in progress at an update: finish with the weights that "
        "they began with, or continue with the new ones (in-flight weight updates)");
  f.add("replay_sampling_mask", replay_sampling_mask,
        "with top_k, top_p or min_p: record which tokens they left at each position, and compute "
        "the log-probabilities of policy and reference over these alone, so that ratios are of the "
        "distribution that was sampled from; null: true where that can be had (no servers, "
        "penalties or logit_bias)");
}

generate::GenerationOptions RlRolloutSection::options(int64_t seed) const {
  generate::GenerationOptions options = RolloutSection::options(seed);
  options.record_kept = replay_sampling_mask.value_or(true) && options.sampling.filters() &&
                        !options.sampling.changes_logits() && !server.used();
  return options;
}

std::vector<std::string> RlConfig::evaluated_metrics() const {
  if (!train.eval_rewards.empty()) return {};
  std::vector<std::string> metrics{"reward_mean", "completion_length_mean", "truncated_fraction",
                                   "rows"};
  for (const rewards::RewardSection& reward : rewards)
    metrics.push_back("rewards/" + reward.label());
  if (environment.any())
    metrics.insert(metrics.end(), {"turns_mean", str("rewards/", kEnvironmentReward)});
  return with_groups(std::move(metrics), {"reward"});
}

void RlConfig::fields(Fields& f) {
  RunConfig::fields(f);
  f.add("rl", rl, "the algorithm, and how rollout batches become updates");
  f.add("rollout", rollout, "how completions are sampled");
  f.add("rewards", rewards,
        "reward functions: a list of {name, weight}, {command, ...} or {model, ...}",
        one_or_list());
  f.add("environment", environment,
        "multi-turn episodes: a program, tools, or a built-in environment");
}

// The algorithm brings keys and defaults.
void RlConfig::prepare() {
  RunConfig::prepare();
  const YamlNode* name = find_key(written, "rl.algorithm");
  if (name && name->kind == YamlNode::Kind::kScalar)
    rl.set_algorithm(name->text, name->origin.str() + ": rl.algorithm");
  refuse_keys_of_others();
  refuse_empty_programs();
}

// An empty list is no program that was forgotten only in a resolved config, which has both keys.
void RlConfig::refuse_empty_programs() const {
  constexpr std::array kPrograms{"environment.command", "environment.openai.command"};
  if (was_set(kPrograms[0]) && was_set(kPrograms[1])) return;
  for (const char* key : kPrograms) {
    const YamlNode* node = find_key(written, key);
    require(!node || node->kind != YamlNode::Kind::kList || !node->items.empty(), key,
            "found an empty list, expected a program and its arguments, or null for none");
  }
}

// A key that only other algorithms have is no misspelling of one of this one's.
void RlConfig::refuse_keys_of_others() {
  const YamlNode* section = find_key(written, "rl");
  if (!section) return;
  const auto has = [](const std::vector<Field>& fields, const std::string& key) {
    return std::any_of(fields.begin(), fields.end(),
                       [&](const Field& field) { return field.name == key; });
  };
  const std::vector<Field> own = Fields::of(rl);
  for (const YamlNode::Entry& entry : section->entries) {
    if (has(own, entry.key)) continue;
    std::string others;
    for (const auto& other : algorithms().list())
      if (has(Fields::of(*other.value()), entry.key))
        others += (others.empty() ? "" : ", ") + other.name;
    check<ConfigError>(others.empty(), entry.origin.str(), ": unknown key `rl.", entry.key, "`; ",
                       has_critic() ? "it belongs to `temper grpo`, whose algorithms compare the "
                                      "completions of a prompt: "
                                    : "other algorithms have it (rl.algorithm): ",
                       others);
  }
}

void RlConfig::complete() {
  RunConfig::complete();
  rewards::note_written(find_key(written, "rewards"), rewards);
  // Where products round to bfloat16 by default, so does attention, and flash kernels read such a
  // cache.
  if (defaulted.contains("model.arithmetic") && !was_set("rollout.cache_dtype") &&
      !rollout.server.used()) {
    rollout.cache_dtype = ops::CacheDtype::kBFloat16;
    defaulted["rollout.cache_dtype"] = "bfloat16";
  }
  const bool split = !roles.rollout.empty() && mesh.tensor != roles.tensor;
  if (!was_set("rl.on_mismatch") && rl.on_mismatch == RlSection::OnMismatch::kStop) {
    const bool exact = models::is_exact(device_choice());
    const bool differs =
        rl.max_staleness > 0 || rollout.server.used() || split || (!exact && !rl.replay);
    if (differs) rl.on_mismatch = RlSection::OnMismatch::kCorrect;
    // Recorded also where the default stays stop: rl.replay takes a stop that a user wrote more
    // strictly.
    defaulted["rl.on_mismatch"] = differs ? "correct" : "stop";
  }
  // While one rank waits for a server, the others wait for that rank in a collective.
  if (!was_set("mesh.timeout_minutes"))
    mesh.timeout_minutes = std::max(
        mesh.timeout_minutes, dist::MeshSection().timeout_minutes + rollout.server.wait_minutes);
  const RolloutLimits limits = rollout_limits();
  rl.algorithm->prepare(limits);
  // A program may have set keys in C++, which no file shows: what the algorithm chose is what one
  // that nobody touched has.
  const std::unique_ptr<Algorithm> untouched = rl.untouched_algorithm();
  untouched->prepare(limits);
  const auto text = [](const Field& key) { return dump_yaml(write_fields({&key, 1})); };
  std::set<std::string> chosen;
  for (const Field& key : Fields::of(*untouched)) chosen.insert(text(key));
  for (const Field& key : Fields::of(*rl.algorithm))
    if (!was_set("rl." + key.name) && chosen.contains(text(key)))
      defaulted["rl." + key.name] = key.write().text;
  std::string unused;
  for (const std::string& key : rl.algorithm->unused_keys())
    if (was_set("rl." + key)) unused += str(unused.empty() ? "" : ", ", "rl.", key);
  if (!unused.empty())
    warnings.push_back(
        str("without effect under rl.algorithm: ", rl.algorithm_name(), ": ", unused));
  if (!rl.algorithm->needs().reference)
    for (const char* key : {"rl.reference", "rl.reference_update_every"})
      if (was_set(key) && (rl.reference || rl.reference_update_every > 0))
        warnings.push_back(str(where(key), " has no effect: rl.beta is 0"));
  if (train.batch_size != train::TrainSection().batch_size)
    warnings.emplace_back(
        "train.batch_size has no effect here: an update has rl.prompts_per_rollout x "
        "rl.group_size / rl.minibatches completions");
}

RolloutLimits RlConfig::rollout_limits() const {
  RolloutLimits limits{rollout.max_new_tokens, !rl.replay.has_value()};
  for (const rewards::RewardSection& reward : rewards)
    limits.reward_weights[reward.label()] = reward.weight;
  return limits;
}

std::vector<train::MissingKey> RlConfig::missing() const {
  std::vector<train::MissingKey> keys = RunConfig::missing();
  const bool from_environment = !environment.name.empty() || !environment.command.empty() ||
                                !environment.openai.command.empty();
  if (rl.replay)
    std::erase_if(keys, [](const train::MissingKey& m) { return m.key == "data.train"; });
  else if (rewards.empty() && !from_environment && env::find_problem(environment).empty())
    keys.push_back({"rewards", str(environment.any() ? "tools give no rewards; " : "",
                                   "a list of {name, weight}, {command, ...} or {model, ...}")});
  return keys;
}

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

std::string RlConfig::no_rollout_role() const {
  if (rl.replay) return "rl.replay is read instead of sampling";
  if (rollout.server.used()) return "the servers of rollout.server sample";
  return {};
}

std::string RlConfig::no_reference_role() const {
  if (rl.algorithm->needs().reference) return {};
  return "no reference model is asked for (rl.beta is 0)";
}

std::string RlConfig::no_reward_role() const {
  const auto is_model = &rewards::RewardSection::is_model;
  if (std::ranges::any_of(train.eval_rewards, is_model)) return {};
  if (rl.replay) return "rl.replay has the rewards";
  if (std::ranges::none_of(rewards, is_model))
    return "no entry of rewards has a model or a judge's model";
  return {};
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

bool RlConfig::servers_take_rows() const {
  return generate::remote::make_protocol(rollout.server.kind, 0)->takes_token_rows();
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
