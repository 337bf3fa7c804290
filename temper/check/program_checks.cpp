#include "temper/check/program_checks.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/env/pool.h"

namespace temper::checks {

Finding probe_reward(const rewards::RewardSection& section,
                     std::span<const rewards::Sample> samples) {
  const rewards::Sample& sample = samples.front();
  rewards::RewardSection once = section;
  once.workers = 1;
  const std::unique_ptr<rewards::Reward> reward = rewards::make_reward(once);
  if (reward->needs_text() && !sample.has_text)
    return Finding::fail("it reads text, and the model has no tokenizer");
  for (const std::string& field : reward->required_fields())
    check<DataError>(sample.row->contains(field), sample.where, ": no field `", field,
                     "`, which the reward reads");
  // Asked twice: output that follows an answer is only seen with the next one.
  const std::vector<rewards::Sample> twice(2, sample);
  const std::vector<rewards::Verdict> verdicts = reward->judge(twice);
  const rewards::Verdict& verdict = verdicts[0];
  if (verdict.kind != rewards::Verdict::Kind::kValue)
    return Finding::fail("asked for " + sample.where + ": " + verdict.detail);
  const std::string answer =
      str("answers ", verdict.value, " to a completion of one token for ", sample.where);
  if (verdicts[1].unasked_lines > 0 && verdicts[1].kind == rewards::Verdict::Kind::kValue)
    return Finding::fail(
        str("answers ", sample.where, " with more than one line: ", verdicts[1].detail));
  if (verdict.unasked_lines > 0)
    return Finding::warn(str(answer, "; it wrote ", verdict.unasked_lines, " lines unasked"));
  // A reward that never differs gives every group equal rewards, and no gradient.
  const std::vector<rewards::Verdict> others = reward->judge(samples.subspan(1));
  const bool differs = std::any_of(others.begin(), others.end(), [&](const rewards::Verdict& v) {
    return v.kind != rewards::Verdict::Kind::kValue || v.value != verdict.value;
  });
  if (!differs && !others.empty())
    return Finding::warn(
        str(answer, ", and gives ", others.size(),
            " other completions, made of the rows' own fields, the same value: a reward that never "
            "differs gives no gradient"),
        {{"reward", verdict.value}});
  return Finding::pass(answer, {{"reward", verdict.value}});
}

namespace {

env::Reply one_reply(env::EnvironmentPool& pool, const env::EnvironmentSection& section,
                     const std::string& to) {
  const auto limit =
      std::chrono::duration<double>(section.timeout_seconds + section.start_timeout_seconds + 1);
  const auto begun = std::chrono::steady_clock::now();
  std::vector<env::Reply> replies;
  while (replies.empty() && std::chrono::steady_clock::now() - begun < limit)
    replies = pool.take(std::chrono::milliseconds(200));
  check(!replies.empty(), "no answer to ", to, " in ", limit.count(), " s");
  return std::move(replies[0]);
}

}  // namespace

Finding probe_environment(const env::EnvironmentSection& section, std::shared_ptr<const Json> row,
                          const std::string& where) {
  if (!section.openai.command.empty()) return Finding::pass("an agent, whose program is there");
  const bool tools_alone = section.command.empty() && section.name.empty();
  const bool asks = std::ranges::any_of(
      section.tools, [](const env::ToolSection& tool) { return !tool.mcp.empty(); });
  if (tools_alone && !asks)
    return Finding::pass(str(section.tools.size(), " tools, whose programs are there"));
  env::EnvironmentSection once = section;
  once.workers = 1;
  env::EnvironmentPool pool(once);
  const int64_t episode = pool.open(std::move(row), where);
  const env::Reply first = one_reply(pool, section, "the reset of " + where);
  if (first.failure) return Finding::fail("reset of " + where + ": " + first.failure->detail);
  if (tools_alone)
    return Finding::pass(str(first.observation.tools.size(), " tools, those of servers included"));
  pool.step(episode, {.completion = "x", .calls = {}, .problems = {}});
  const env::Reply next = one_reply(pool, section, "a step of " + where);
  if (next.failure) return Finding::fail("a step of " + where + ": " + next.failure->detail);
  pool.close(episode);
  const std::string answer =
      str("begins an episode of ", where, " with ", first.observation.messages.size(),
          " messages, and answers a step with reward ", next.observation.reward);
  if (first.unasked_lines + next.unasked_lines > 0)
    return Finding::warn(answer + "; " + (first.unasked_lines ? first : next).unasked);
  return Finding::pass(answer);
}

}  // namespace temper::checks
