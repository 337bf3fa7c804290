#include "temper/rl/rollout/rollout_failures.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "temper/base/error.h"
#include "temper/dist/environment.h"
#include "temper/train/run/agreed_error.h"

namespace temper::rl {
namespace {

// The failure, preceded by the rank where it happened if there are several.
std::string with_rank(const std::string& failure, int64_t rank, bool alone) {
  return failure.empty() || alone ? failure : str(failure, ", on rank ", rank);
}

}  // namespace

// The part of the config whose failures are worth more than its negative values.
std::string RolloutFailures::rewarded_here() const {
  if (const std::string name = rewards_.rewarded_failures(); !name.empty())
    return "the reward " + name;
  return episodes_ && episodes_->rewards_failures() ? "the environment" : "";
}

// Counts since the last call, and the first causes.
Json RolloutFailures::of_this_rank(const PartialBatch& batch, const dist::Group& group) {
  const rewards::FailureCounts& now = rewards_.failures();
  const EnvironmentCounts episodes = episodes_now();
  const std::vector<int64_t> counts{batch.counts.dropped,
                                    batch.judged,
                                    batch.unrewarded,
                                    batch.episodes,
                                    batch.failed_episodes,
                                    now.timed_out - rewards_seen_.timed_out,
                                    now.crashed - rewards_seen_.crashed,
                                    now.malformed - rewards_seen_.malformed,
                                    episodes.timed_out - episodes_seen_.timed_out,
                                    episodes.crashed - episodes_seen_.crashed,
                                    episodes.malformed - episodes_seen_.malformed,
                                    episodes.unread_calls - episodes_seen_.unread_calls};
  Json unanswered = Json::array();
  for (const auto& [reward, found] : batch.unanswered)
    unanswered.push_back({reward, found.completions, found.why});
  Json mine = {{"counts", counts},
               {"unanswered", std::move(unanswered)},
               {"rank", dist::run_rank(group)},
               {"reward", rewards_.take_first_failure()},
               {"environment", episodes_ ? episodes_->take_first_failure() : ""},
               {"rewarded", rewarded_here()}};
  pass_over();
  return mine;
}

void RolloutFailures::count(PartialBatch& batch, dist::Group& group) {
  const bool alone = group.size() == 1 && !group.has_twins();
  std::vector<int64_t> sum(12);
  std::string reward, environment;
  const std::string mine = dump_json(of_this_rank(batch, group));
  batch.unanswered.clear();
  for (const std::string& text : group.all_gather(group.agreed(mine))) {
    const Json one = parse_json(text, "another rank");
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += one["counts"].at(i).get<int64_t>();
    const int64_t rank = one["rank"].get<int64_t>();
    if (rewarded_.empty()) rewarded_ = one["rewarded"].get<std::string>();
    for (const Json& found : one["unanswered"]) {
      Unanswered& of_reward = batch.unanswered[found.at(0).get<size_t>()];
      if (of_reward.completions == 0)
        of_reward.why = with_rank(found.at(2).get<std::string>(), rank, alone);
      of_reward.completions += found.at(1).get<int64_t>();
    }
    if (reward.empty()) reward = with_rank(one["reward"].get<std::string>(), rank, alone);
    if (environment.empty())
      environment = with_rank(one["environment"].get<std::string>(), rank, alone);
  }
  batch.counts.dropped = sum[0];
  batch.judged = sum[1];
  batch.unrewarded = sum[2];
  batch.episodes = sum[3];
  batch.failed_episodes = sum[4];
  rewards_failed_.timed_out += sum[5];
  rewards_failed_.crashed += sum[6];
  rewards_failed_.malformed += sum[7];
  episodes_failed_.timed_out += sum[8];
  episodes_failed_.crashed += sum[9];
  episodes_failed_.malformed += sum[10];
  episodes_failed_.unread_calls += sum[11];
  if (first_of_rewards_.empty()) first_of_rewards_ = reward;
  if (first_of_environment_.empty()) first_of_environment_ = environment;
  check_answered(batch);
  check_any_succeeds(batch, reward, environment);
}

void RolloutFailures::pass_over() {
  rewards_seen_ = rewards_.failures();
  episodes_seen_ = episodes_now();
  rewards_.take_first_failure();
  if (episodes_) episodes_->take_first_failure();
}

std::string RolloutFailures::first() const {
  if (first_of_rewards_.empty() && first_of_environment_.empty()) return "none";
  const bool both = !first_of_rewards_.empty() && !first_of_environment_.empty();
  return first_of_rewards_ + (both ? "; " : "") + first_of_environment_;
}

// The batch is not trained on: it is sampled and judged anew when the run goes on.
void RolloutFailures::check_answered(const PartialBatch& batch) const {
  for (const auto& [reward, found] : batch.unanswered)
    check<train::AgreedError>(
        found.completions < batch.judged, "the reward ", rewards_.names()[reward],
        ": the judge's server answered for none of a rollout's ", batch.judged,
        " completions (the first failure: ", found.why,
        "); once it answers, the same command goes on from the last whole step");
}

// All ranks have the same counts, and throw the same error.
void RolloutFailures::check_any_succeeds(const PartialBatch& batch, const std::string& reward,
                                         const std::string& environment) {
  if (batch.judged == 0 && batch.episodes == 0) return;  // nothing was sampled
  const bool no_episode = batch.episodes > 0 && batch.failed_episodes == batch.episodes;
  const bool no_reward = batch.judged > 0 && batch.unrewarded == batch.judged;
  if (!no_episode && !no_reward) {
    failed_in_a_row_ = 0;
    cause_.clear();
    return;
  }
  if (cause_.empty()) cause_ = no_episode ? environment : reward;
  if (++failed_in_a_row_ < kMostFailedRollouts) return;
  const char* const section = no_episode ? "environment" : "rewards";
  throw train::AgreedError(str(
      no_episode ? "the environment failed in all episodes" : "rewards failed on all completions",
      " of ", failed_in_a_row_, " rollouts in a row (the first failure: ", cause_,
      "); nothing is learned from them. Repair the program, or raise ", section,
      ".timeout_seconds where it is only slow; the same command then resumes"));
}

void RolloutFailures::warn(train::Messages& messages) const {
  if (!first_of_rewards_.empty())
    messages.warn_once(
        "failures",
        str("rewards failed ", rewards_failed_.all(), " times (the first: ", first_of_rewards_,
            "); completions without an answer are handled as rewards.on_failure "
            "says, further lines are ignored; both are counted in "
            "reward_timeouts, reward_crashes and reward_malformed"));
  if (!first_of_environment_.empty())
    messages.warn_once("environment failures",
                       str("the environment failed ", episodes_failed_.failures(),
                           " times (the first: ", first_of_environment_,
                           "); this is handled as environment.on_failure says and counted in "
                           "environment_timeouts, environment_crashes and environment_malformed"));
  if (!rewarded_.empty())
    messages.warn_once(
        "rewarded failures",
        str(rewarded_,
            " failed on some completions and gave negative values to others: a failure counts 0, "
            "which is more, so the policy may learn to cause failures; on_failure: drop leaves "
            "such "
            "completions out, stop ends the run"));
}

void RolloutFailures::describe(MetricsRow& row) const {
  row.set("reward_timeouts", rewards_failed_.timed_out);
  row.set("reward_crashes", rewards_failed_.crashed);
  row.set("reward_malformed", rewards_failed_.malformed);
  if (!episodes_) return;
  row.set("environment_timeouts", episodes_failed_.timed_out);
  row.set("environment_crashes", episodes_failed_.crashed);
  row.set("environment_malformed", episodes_failed_.malformed);
  row.set("tool_calls_unread", episodes_failed_.unread_calls);
}

Json RolloutFailures::state() const {
  return {{"reward_failures",
           {rewards_failed_.timed_out, rewards_failed_.crashed, rewards_failed_.malformed}},
          {"environment_failures",
           {episodes_failed_.timed_out, episodes_failed_.crashed, episodes_failed_.malformed,
            episodes_failed_.unread_calls}},
          {"failed_in_a_row", {failed_in_a_row_}}};
}

void RolloutFailures::restore(const Json& state, const std::string& where) {
  const std::vector<int64_t> rewards = whole_numbers(state, "reward_failures", 3, where),
                             episodes = whole_numbers(state, "environment_failures", 4, where);
  rewards_failed_ = {rewards[0], rewards[1], rewards[2]};
  episodes_failed_ = {episodes[0], episodes[1], episodes[2], episodes[3]};
  failed_in_a_row_ = whole_numbers(state, "failed_in_a_row", 1, where)[0];
}

std::vector<int64_t> whole_numbers(const Json& state, const char* key, size_t count,
                                   const std::string& where) {
  const Json counts = state.value(key, Json(std::vector<int64_t>(count)));
  check<DataError>(counts.is_array() && counts.size() == count &&
                       std::all_of(counts.begin(), counts.end(),
                                   [](const Json& n) { return n.is_number_integer(); }),
                   where, ": `", key, "` must be ", count, " whole numbers");
  return counts.get<std::vector<int64_t>>();
}

}  // namespace temper::rl
