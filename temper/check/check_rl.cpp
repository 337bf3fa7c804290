// Checks of runs of reinforcement learning: prompts, rewards, environments, and rollout sizes.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/check/check_run.h"
#include "temper/check/kept_warnings.h"
#include "temper/check/memory/disk.h"
#include "temper/check/memory/memory.h"
#include "temper/check/program_checks.h"
#include "temper/check/rollout_check.h"
#include "temper/check/text.h"
#include "temper/generate/remote/server_check.h"
#include "temper/models/files/directory.h"
#include "temper/rl/episodes/episode_sampler.h"
#include "temper/rl/reference.h"
#include "temper/rl/rollout/model_reward.h"
#include "temper/rl/rollout/prompts.h"
#include "temper/rl/rollout/replay_source.h"
#include "temper/rl/run.h"
#include "temper/rl/weights/behavior_policy.h"
#include "temper/rl/weights/server_policy.h"
#include "temper/train/run/reward_evaluation.h"

namespace temper::checks {
namespace {

constexpr int64_t kBatches = 100;    // rollout batches whose passes are measured, at most
constexpr size_t kMostSamples = 10;  // most completions that a reward is asked about
constexpr int64_t kMostRows = 3;     // most rows that these completions are made of

rewards::Sample sample_of(const data::PromptRow& row, const Tokenizer* tokenizer,
                          std::vector<int32_t> completion, int64_t max_new_tokens) {
  rewards::Sample sample;
  sample.row = row.fields;
  sample.where = row.where;
  sample.prompt_tokens = row.tokens;
  sample.has_text = tokenizer != nullptr;
  if (tokenizer) sample.prompt = tokenizer->decode(row.tokens, true);
  sample.completion_tokens = std::move(completion);
  if (tokenizer) sample.completion = tokenizer->decode(sample.completion_tokens, true);
  sample.max_new_tokens = max_new_tokens;
  return sample;
}

// Completions to ask the rewards about, made of the first prompts: a single token
// (a completion has at least one, and a reward need not accept fewer), the prompt itself and, as
// one of them may be the right answer, the row's own fields. None: no prompt can be read.
std::vector<rewards::Sample> samples_of(std::span<const data::PromptRow> rows,
                                        const Tokenizer* tokenizer, int64_t max_new_tokens) {
  std::vector<rewards::Sample> samples;
  for (const data::PromptRow& row : rows.first(std::min<size_t>(rows.size(), kMostRows))) {
    const auto add = [&](std::vector<int32_t> completion) {
      if (!completion.empty() && samples.size() < kMostSamples)
        samples.push_back(sample_of(row, tokenizer, std::move(completion), max_new_tokens));
    };
    add({row.tokens.back()});
    add(row.tokens);
    for (const auto& [name, value] : row.fields->items())
      if (tokenizer && (value.is_string() || value.is_number()) && name != "prompt")
        add(tokenizer->encode_first(
            value.is_string() ? value.get_ref<const std::string&>() : dump_json(value),
            static_cast<size_t>(max_new_tokens)));
  }
  return samples;
}

// Those of the first prompts that can be read.
std::vector<rewards::Sample> probe_samples(const rl::RlConfig& config, const RunChecks& checks,
                                           const data::RowOrder& order) {
  const auto read = rl::prompt_rows(config, checks.policy).train;
  std::vector<data::PromptRow> rows;
  for (int64_t r = 0; r < order.rows_of(0).size() && std::ssize(rows) < kMostRows; ++r)
    if (auto row = data::read_one(read, order.rows_of(0), r)) rows.push_back(std::move(*row));
  return samples_of(rows, checks.policy.tokenizer.get(), config.rollout.max_new_tokens);
}

// Plans the memory of a reward's model; `served`: ranks with the role `reward` have it, and those
// that train do not.
Finding plan_judge(RunChecks& checks, ModelRole role, const std::string& what, bool served) {
  if (served)
    return Finding::pass(str(what, " on ranks of its own, whose weights take ",
                             megabytes(static_cast<double>(
                                 model_bytes(role, checks.config.optimizer, Ranks()).weights))));
  checks.shape.others.push_back(std::move(role));
  return Finding::pass(what);
}

Finding check_reward(RunChecks& checks, const rewards::RewardSection& section,
                     const std::vector<rewards::Sample>& samples, bool served) {
  if (section.model) {
    const rl::ScalarPlace place = rl::find_scalar_directory(
        *section.model, "rewards: " + section.label() + ": ", "reward model");
    rl::check_reward_models({&section, 1}, checks.policy.tokenizer.get(),
                            checks.policy.model->vocab_size);
    ModelRole role{.role = "reward_" + section.label(),
                   .shape = checks.other_model(place.base, true),
                   .trains = false,
                   .shared_by = SharedBy::kNone};
    role.storage = rl::trained_storage(place);
    role.note_held(place.base);
    return plan_judge(checks, std::move(role), *section.model + ": a reward model", served);
  }
  if (section.judge.model) {
    rewards::make_reward(section);  // throws what is wrong with it; reads no weights
    const std::string base = models::named_model(*section.judge.model, "rewards: judge.model");
    ModelRole role{.role = "reward_" + section.label(),
                   .shape = checks.other_model(base),
                   .trains = false,
                   .shared_by = SharedBy::kNone};
    role.note_held(base);
    return plan_judge(checks, std::move(role), *section.judge.model + ": a judge", served);
  }
  if (samples.empty()) {
    rewards::make_reward(section);  // throws where there is none
    return Finding::warn("not asked: there is no prompt to ask it about");
  }
  return probe_reward(section, samples);
}

// The pack units of a batch of groups as RlTask makes them (rl/batch.h): a group's prompt with
// completions of full length, at most the tokens of a pass in a unit.
std::vector<RowSize> units_of_groups(const rl::RlConfig& config, std::span<const RowSize> prompts) {
  const int64_t most = train::pass_tokens(config), length = config.rollout.max_new_tokens;
  std::vector<RowSize> units;
  for (const RowSize& prompt : prompts) {
    const int64_t fit =
        most > 0 ? std::max<int64_t>((most - prompt.tokens) / length, 1) : config.rl.group_size;
    for (int64_t left = config.rl.group_size; left > 0; left -= fit) {
      const int64_t count = std::min(left, fit);
      units.push_back({prompt.tokens + count * length, count * length});
    }
  }
  return units;
}

// The rollout batches of the run's first prompts, refills included.
int64_t measured_batches(const rl::RlConfig& config) {
  if (!config.train.max_steps) return kBatches;
  const int64_t batches = quotient_up(*config.train.max_steps, config.rl.updates_per_batch());
  return std::min(kBatches, saturated_product(batches, 1 + config.rl.algorithm->max_refills()));
}

void shape_run(RunChecks& checks, const rl::RlConfig& config, const RunChecks::Rows& rows) {
  const int64_t per_batch = config.rl.prompts_per_rollout;
  const std::vector<RowSize> prompts =
      drawn_rows(*rows.order, rows.sizes, measured_batches(config) * per_batch);
  const std::vector<RowSize> units = units_of_groups(config, prompts);
  const int64_t of_batch = static_cast<int64_t>(units.size()) * per_batch /
                           std::max<int64_t>(1, static_cast<int64_t>(prompts.size()));
  plan_passes(units, std::max<int64_t>(1, of_batch / config.rl.minibatches),
              train::pass_tokens(config), checks.ranks.product(&dist::Axis::own_rows),
              checks.shape);
  SamplingShape& s = checks.shape.sampling;
  s.samples = !config.rl.replay && !config.rollout.server.used();
  s.versions = rl::versions_here(config);
  s.prompts = std::max<int64_t>(1, per_batch / checks.ranks.product(&dist::Axis::own_rows));
  s.sequences = s.prompts * config.rl.group_size;
  s.prompt_tokens = rows.longest_prompt;
  s.new_tokens = config.rollout.max_new_tokens;
}

// The run's shape without rows to measure: `rl.replay`.
void shape_replay(RunChecks& checks, const rl::RlConfig& config) {
  const RowSize prompt{std::min<int64_t>(config.data.max_length, 256), 0};
  const std::vector<RowSize> prompts(static_cast<size_t>(config.rl.prompts_per_rollout), prompt);
  const std::vector<RowSize> units = units_of_groups(config, prompts);
  plan_passes(units, static_cast<int64_t>(units.size()), train::pass_tokens(config),
              checks.ranks.product(&dist::Axis::own_rows), checks.shape);
}

// Throws what the run will find wrong with the rewards of a batch. What models would compute of it
// is zeros here.
void check_advantages(rl::Algorithm& algorithm, std::span<rl::EpisodeGroup> groups) {
  algorithm.prepare_batch(groups);
  for (rl::EpisodeGroup& group : groups)
    for (rl::Segment& segment : group.segments)
      for (auto numbers : {&rl::Segment::old_logp, &rl::Segment::ref_logp, &rl::Segment::value})
        if (segment.sampled) (segment.*numbers).assign(segment.tokens.size(), 0);
  algorithm.assign_batch(groups);
}

// The file's first batches, read as the run will read them.
Finding check_replay(const RunChecks& checks, const rl::RlConfig& config) {
  const data::RowSet file(data::SourceSpec{*config.rl.replay});
  KeptWarnings kept;
  rl::ReplaySource source(config, rl::line_format(config, checks.policy), kept);
  rl::Algorithm& algorithm = *config.rl.algorithm;
  const Json before = algorithm.state();
  for (int64_t i = 0; i < std::min(kBatches, source.planned_batches()); ++i) {
    rl::RolloutBatch batch = source.next(0);
    check_advantages(algorithm, batch.groups);
  }
  algorithm.restore(before, *config.rl.replay);
  if (!kept.warnings.empty()) return Finding::warn(kept.warnings.front());
  return Finding::pass(str(*config.rl.replay, ": ", counted(file.size()), " rows to replay"),
                       {{"rows", file.size()}});
}

std::optional<RunChecks::Rows> check_prompts(RunChecks& checks, const rl::RlConfig& config) {
  if (config.rl.replay) {
    checks.with_model("rl.replay", [&] { return check_replay(checks, config); });
    shape_replay(checks, config);
    checks.list.skip("lengths", "the rows are replayed");
    return {};
  }
  std::vector<rewards::RewardSection> programs;
  for (const rewards::RewardSection& reward : config.rewards)
    if (!reward.model) programs.push_back(reward);
  std::optional<rewards::RewardSet> set;
  try {
    set.emplace(programs, checks.policy.tokenizer != nullptr);
  } catch (const Error&) {
    // The check of the reward says so.
  }
  auto rows = checks.rows<data::PromptRow>(
      [&] {
        train::VerbRows<data::PromptRow> declared = rl::prompt_rows(config, checks.policy);
        for (auto* read : {&declared.train, &declared.evaluation})
          *read = rl::looking(*read, [&set](const data::PromptRow& row) {
            if (set) set->check_row(*row.fields, row.where);
          });
        return declared;
      },
      [&](const data::PromptRow& row) {
        const auto tokens = static_cast<int64_t>(row.tokens.size());
        RowSize size{tokens, 0, tokens};
        // An environment makes another episode of other fields, whatever the prompt.
        if (config.environment.any()) size.key = std::hash<std::string>()(dump_json(*row.fields));
        return size;
      },
      false);
  if (rows) shape_run(checks, config, *rows);
  return rows;
}

// "environment", of a run that samples in one.
void check_episodes(RunChecks& checks, const rl::RlConfig& config,
                    const std::vector<rewards::Sample>& samples) {
  if (!config.environment.any() || config.rl.replay) return;
  checks.with_model("environment", [&] {
    rl::check_environment(config.environment, rl::prompt_format(config, checks.policy));
    if (samples.empty())
      return Finding::warn("not checked: there is no prompt to begin an episode with");
    return probe_environment(config.environment, samples[0].row, samples[0].where);
  });
}

void check_critic(RunChecks& checks, const rl::PpoConfig& config) {
  checks.with_model("critic", [&] {
    if (!config.ppo.critic && config.ppo.share_base) {
      ++checks.shape.policy.adapters;
      ++checks.shape.policy.trained_copies;
      checks.shape.disk.merged = 4 * checks.shape.policy.shape.parameters();
      return Finding::pass("an adapter on the policy's base, with a fresh head");
    }
    const std::string directory =
        config.ppo.critic ? rl::critic_place(config, checks.policy).base : config.model.path;
    ModelRole role{.role = "critic",
                   .shape = checks.other_model(directory, true),
                   .shared_by = SharedBy::kFsdp};
    checks.shape.others.push_back(std::move(role));
    return Finding::pass(directory +
                         (config.ppo.critic ? "" : ": a copy of the policy with a fresh head"));
  });
}

void check_rl(RunChecks& checks, rl::RlConfig& config, const rl::PpoConfig* ppo) {
  checks.model();
  const std::optional<RunChecks::Rows> rows = check_prompts(checks, config);
  std::vector<rewards::Sample> samples;
  if (rows) samples = probe_samples(config, checks, *rows->order);
  const std::span<const rewards::RewardSection> asked =
      config.rl.replay ? std::span<rewards::RewardSection>() : std::span(config.rewards);
  for (const rewards::RewardSection& reward : asked)
    checks.with_model("rewards/" + reward.label(), [&] {
      return check_reward(checks, reward, samples, !config.roles.reward.empty());
    });
  if (config.rollout.server.used())
    checks.list.run("rollout.server", [&] {
      const generate::ServerSection& section = config.rollout.server;
      rl::check_server_takes(config, checks.policy);
      const auto needs = generate::remote::server_needs(
          section, config.rollout, checks.policy.lora.has_value(),
          checks.shape.policy.shape.vocabulary, checks.policy.tokenizer.get());
      return check_servers(section, section.weights_dir.value_or(config.output_dir + "/weights"),
                           needs);
    });
  check_episodes(checks, config, samples);
  if (!config.rl.replay) checks.rollout(config.rollout);
  check_eval_rewards(checks);
  if (config.rl.algorithm->needs().reference)
    checks.reference([&] { return rl::reference_source(config, checks.policy); });
  if (ppo) check_critic(checks, *ppo);
  int64_t steps = config.train.max_steps.value_or(1);
  if (!config.train.max_steps && rows)
    steps =
        saturated_product(rows->order->steps(config.train.epochs.value_or(1), rows->sizes.counts),
                          config.rl.updates_per_batch());
  if (rows) {
    const int64_t merged = checks.shape.disk.merged;
    checks.shape.disk = rollout_disk(config, checks.policy, *rows->order, steps);
    checks.shape.disk.merged = merged;
  }
  if (config.rl.reference_update_every > 0 && config.rl.algorithm->needs().reference)
    checks.shape.disk.reference = 4 * checks.shape.policy.shape.parameters();
  checks.finish(steps);
}

}  // namespace

void check_eval_rewards(RunChecks& checks) {
  const train::RunConfig& config = checks.config;
  if (config.train.eval_rewards.empty()) return;
  const int64_t new_tokens = config.sampling()->max_new_tokens;
  std::vector<std::vector<data::PromptRow>> prompts;
  int64_t count = 0, longest = 0;
  checks.with_model("train.eval_rewards", [&] {
    std::vector<rewards::RewardSection> programs;
    for (const rewards::RewardSection& reward : config.train.eval_rewards)
      if (!reward.model) programs.push_back(reward);
    const rewards::RewardSet set(programs, checks.policy.tokenizer != nullptr);
    prompts = train::evaluation_prompts(config, checks.policy, set);
    for (const std::vector<data::PromptRow>& rows : prompts)
      for (const data::PromptRow& row : rows) longest = std::max(longest, std::ssize(row.tokens));
    for (const std::vector<data::PromptRow>& rows : prompts) count += std::ssize(rows);
    count *= config.train.eval_completions;
    return Finding::pass(str(counted(count), " completions in each evaluation"));
  });
  const std::vector<rewards::Sample> samples =
      samples_of(prompts.empty() ? std::span<const data::PromptRow>() : prompts[0],
                 checks.policy.tokenizer.get(), new_tokens);
  for (const rewards::RewardSection& reward : config.train.eval_rewards)
    checks.with_model("train.eval_rewards/" + reward.label(), [&] {
      return check_reward(checks, reward, samples, !config.roles.reward.empty());
    });
  SamplingShape& s = checks.shape.sampling;
  if (s.samples || prompts.empty()) return;
  const int64_t ranks = checks.ranks.product(&dist::Axis::own_rows);
  s.samples = true;
  s.sequences = quotient_up(count, ranks);
  s.prompts = quotient_up(s.sequences, config.train.eval_completions);
  s.prompt_tokens = longest;
  s.new_tokens = new_tokens;
  checks.rollout(*config.sampling());
}

void check_run(RunChecks& checks, rl::RlConfig& config) { check_rl(checks, config, nullptr); }
void check_run(RunChecks& checks, rl::PpoConfig& config) { check_rl(checks, config, &config); }

}  // namespace temper::checks
