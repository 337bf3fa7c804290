#include "temper/rl/actor.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "temper/base/error.h"
#include "temper/rl/group.h"

namespace temper::rl {
namespace {

// Keys of evaluation prompts stand apart from those of training prompts, so that evaluating changes
// no sample.
constexpr int64_t kEvaluationKeys = int64_t{1} << 40;

data::PromptFormat prompt_format(const train::Run& run) {
  const DataSection& section = run.config.data;
  data::PromptFormat f;
  f.tokenizer = run.policy.tokenizer;
  f.chat = run.policy.chat;
  f.columns = section.columns;
  f.max_length = section.max_length;
  f.overlong = static_cast<data::Overlong>(section.overlong);
  f.vocabulary = run.policy.model->vocab_size;
  return f;
}

generate::EngineOptions engine_options(const RunConfig& config) {
  const RolloutSection& r = config.rollout;
  generate::EngineOptions o;
  o.sampling.temperature = r.temperature;
  o.sampling.top_k = r.top_k;
  o.sampling.top_p = r.top_p;
  o.sampling.min_p = r.min_p;
  o.sampling.repetition_penalty = r.repetition_penalty;
  o.sampling.seed = static_cast<uint64_t>(config.seed);
  o.max_new_tokens = r.max_new_tokens;
  o.ignore_eos = r.ignore_eos;
  o.stop = r.stop;
  if (r.cache_bytes) o.cache_bytes = *r.cache_bytes;
  return o;
}

}  // namespace

Actor::Actor(train::Run& run, const Algorithm& algorithm)
    : run_(run),
      algorithm_(algorithm),
      loader_(train::sources(run.config.data.train),
              train::loader_options(run.config, run.config.rl.prompts_per_rollout),
              data::prompt_reader(prompt_format(run))),
      engine_(*run.policy.model, engine_options(run.config), run.policy.tokenizer),
      rewards_(run.config.rewards, run.policy.tokenizer != nullptr),
      judge_(rewards_) {
  const data::PromptFormat format = prompt_format(run);
  for (const DataSource& source : run.config.data.eval) {
    const data::RowFile file(source.path);
    for (int64_t r = 0; r < file.size(); ++r) {
      bool truncated = false;
      std::optional<data::PromptRow> row =
          data::read_prompt_row(format, file.row(r), file.where(r), &truncated);
      if (row)
        eval_prompts_.push_back(
            {kEvaluationKeys + static_cast<int64_t>(eval_prompts_.size()), std::move(*row)});
    }
  }
}

void Actor::judge_group(const Group& group, std::vector<Rollout> rollouts) {
  std::vector<rewards::Sample> samples;
  for (const Rollout& r : rollouts) {
    rewards::Sample s;
    s.row = group.prompt.fields;
    s.where = group.prompt.where;
    s.prompt_tokens = group.prompt.tokens;
    s.completion_tokens = r.completion_tokens;
    s.completion = r.text;
    s.has_text = run_.policy.tokenizer != nullptr;
    s.truncated = !r.stopped;
    s.max_new_tokens = run_.config.rollout.max_new_tokens;
    samples.push_back(std::move(s));
  }
  judge_.submit(group.key, std::move(samples));
}

// Samples this rank's groups; a group is judged as soon as its last completion is done.
std::vector<Rollout> Actor::sample(const std::vector<Group>& groups, int64_t samples,
                                   RolloutStatistics& statistics) {
  const double start = train::wall_seconds();
  std::map<int64_t, std::vector<Rollout>> by_key;
  std::map<int64_t, const Group*> group_of;
  std::map<int64_t, int64_t> unfinished;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (static_cast<int>(g) % run_.group->size() != run_.group->rank()) continue;
    by_key[groups[g].key].resize(static_cast<size_t>(samples));
    group_of[groups[g].key] = &groups[g];
    unfinished[groups[g].key] = samples;
    engine_.submit({groups[g].key, groups[g].prompt.tokens, samples});
  }
  engine_.run([&](generate::Completion c) {
    Rollout& r = by_key[c.index][static_cast<size_t>(c.sample)];
    r.group = c.index;
    r.sample = c.sample;
    r.prompt_tokens = group_of[c.index]->prompt.tokens;
    r.completion_tokens = std::move(c.tokens);
    r.logprobs = std::move(c.logprobs);
    r.text = std::move(c.text);
    r.stopped = c.stopped;
    if (--unfinished[c.index] == 0) judge_group(*group_of[c.index], by_key[c.index]);
  });
  engine_.check_invariants();
  engine_.release_memory();  // the next batch is sampled with other weights
  statistics.rollout_seconds += train::wall_seconds() - start;
  const std::map<int64_t, std::vector<rewards::Judged>> judged = judge_.collect();
  statistics.reward_seconds += judge_.take_seconds();
  std::vector<Rollout> mine;
  for (auto& [key, rollouts] : by_key) {
    const std::vector<rewards::Judged>& verdicts = judged.at(key);
    for (size_t i = 0; i < rollouts.size(); ++i) {
      statistics.dropped += verdicts[i].dropped;
      if (verdicts[i].dropped) continue;
      rollouts[i].reward = verdicts[i].reward;
      for (size_t n = 0; n < rewards_.names().size(); ++n)
        rollouts[i].rewards.emplace_back(rewards_.names()[n], verdicts[i].each[n]);
      mine.push_back(std::move(rollouts[i]));
    }
  }
  return gather(std::move(mine));
}

// The rollouts of all ranks, by group: a file's lines are what travels.
std::vector<Rollout> Actor::gather(std::vector<Rollout> mine) const {
  if (run_.group->size() == 1) return mine;
  std::string lines;
  for (const Rollout& r : mine) lines += to_line(r) + "\n";
  std::vector<Rollout> all;
  for (const std::string& text : run_.group->all_gather(lines)) {
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
      all.push_back(parse_rollout(parse_json(line, "another rank"), run_.policy.model->vocab_size,
                                  "another rank"));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Rollout& a, const Rollout& b) { return a.group < b.group; });
  return all;
}

RolloutBatch Actor::next(RolloutStatistics& statistics) {
  const at::NoGradGuard no_grad;
  const RlSection& rl = run_.config.rl;
  const rewards::FailureCounts before = rewards_.failures();
  std::vector<std::vector<Rollout>> kept, dull;  // groups with signal, and without
  int64_t wanted = rl.prompts_per_rollout;
  while (true) {
    const int64_t first_key = loader_.state().rows;
    std::vector<Group> groups;
    for (data::PromptRow& row : loader_.next(wanted))
      groups.push_back({first_key + static_cast<int64_t>(groups.size()), std::move(row)});
    if (groups.empty()) break;
    statistics.groups_sampled += static_cast<int64_t>(groups.size());
    RolloutBatch sampled{sample(groups, rl.group_size, statistics)};
    const std::vector<size_t> bounds = sampled.bounds();
    for (size_t g = 0; g + 1 < bounds.size(); ++g) {
      std::vector<Rollout> group(
          std::make_move_iterator(sampled.rollouts.begin() + static_cast<int64_t>(bounds[g])),
          std::make_move_iterator(sampled.rollouts.begin() + static_cast<int64_t>(bounds[g + 1])));
      shape_and_compare(run_.config, algorithm_, group);
      (rl.dynamic_sampling && without_signal(group) ? dull : kept).push_back(std::move(group));
    }
    wanted = rl.prompts_per_rollout - static_cast<int64_t>(kept.size());
    if (!rl.dynamic_sampling || wanted <= 0 || statistics.refills == rl.max_refills) break;
    ++statistics.refills;
  }
  // Where refilling ended early, groups without signal fill the batch: its size stays what the
  // config says.
  for (std::vector<Rollout>& group : dull)
    if (static_cast<int64_t>(kept.size()) < rl.prompts_per_rollout)
      kept.push_back(std::move(group));
  RolloutBatch batch;
  for (std::vector<Rollout>& group : kept)
    batch.rollouts.insert(batch.rollouts.end(), std::make_move_iterator(group.begin()),
                          std::make_move_iterator(group.end()));
  const rewards::FailureCounts& now = rewards_.failures();
  std::vector<double> sums{static_cast<double>(statistics.dropped),
                           static_cast<double>(now.timed_out - before.timed_out),
                           static_cast<double>(now.crashed - before.crashed),
                           static_cast<double>(now.malformed - before.malformed)};
  run_.group->all_reduce_sum(sums);
  const auto sum = [&](size_t i) { return static_cast<int64_t>(sums[i]); };
  statistics.dropped = sum(0);
  statistics.failures = {sum(1), sum(2), sum(3)};
  statistics.rollout_seconds = run_.group->all_reduce_max(statistics.rollout_seconds);
  statistics.reward_seconds = run_.group->all_reduce_max(statistics.reward_seconds);
  return batch;
}

RolloutBatch Actor::evaluate() {
  const at::NoGradGuard no_grad;
  RolloutStatistics ignored;
  return {sample(eval_prompts_, 1, ignored)};
}

}  // namespace temper::rl
