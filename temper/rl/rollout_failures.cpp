#include "temper/rl/rollout_failures.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "temper/base/error.h"

namespace temper::rl {
namespace {

constexpr int64_t kLeastJudged = 128;  // completions, before a run whose rewards all fail ends

}  // namespace

void RolloutFailures::count(PartialBatch& batch, dist::Group& group) {
  const rewards::FailureCounts& now = rewards_.failures();
  const EnvironmentCounts episodes = episodes_now();
  std::vector<double> sums{static_cast<double>(batch.dropped),
                           static_cast<double>(now.timed_out - rewards_seen_.timed_out),
                           static_cast<double>(now.crashed - rewards_seen_.crashed),
                           static_cast<double>(now.malformed - rewards_seen_.malformed),
                           static_cast<double>(batch.judged),
                           static_cast<double>(episodes.timed_out - episodes_seen_.timed_out),
                           static_cast<double>(episodes.crashed - episodes_seen_.crashed),
                           static_cast<double>(episodes.malformed - episodes_seen_.malformed),
                           static_cast<double>(episodes.unread_calls - episodes_seen_.unread_calls),
                           static_cast<double>(episodes.episodes - episodes_seen_.episodes),
                           static_cast<double>(episodes.failed - episodes_seen_.failed)};
  pass_over();
  group.all_reduce_sum(sums);
  const auto sum = [&](size_t i) { return static_cast<int64_t>(sums[i]); };
  batch.dropped = sum(0);
  rewards_failed_.timed_out += sum(1);
  rewards_failed_.crashed += sum(2);
  rewards_failed_.malformed += sum(3);
  judged_ += sum(4);
  episodes_failed_.timed_out += sum(5);
  episodes_failed_.crashed += sum(6);
  episodes_failed_.malformed += sum(7);
  episodes_failed_.unread_calls += sum(8);
  episodes_failed_.episodes += sum(9);
  episodes_failed_.failed += sum(10);
  check_any_succeeds();
}

void RolloutFailures::pass_over() {
  rewards_seen_ = rewards_.failures();
  episodes_seen_ = episodes_now();
}

std::string RolloutFailures::first() const {
  const std::string& reward = rewards_.first_failure();
  const std::string environment = episodes_ ? episodes_->first_failure() : "";
  return reward + (reward.empty() || environment.empty() ? "" : "; ") + environment;
}

void RolloutFailures::check_any_succeeds() const {
  const int64_t ended = episodes_failed_.episodes;
  check(ended < kLeastJudged || episodes_failed_.failed < ended, "the environment failed in all ",
        ended, " episodes so far (the first failure: ", episodes_ ? episodes_->first_failure() : "",
        "); nothing would be trained");
  const int64_t asked = judged_ * static_cast<int64_t>(rewards_.names().size());
  check(asked == 0 || judged_ < kLeastJudged || rewards_failed_.all() < asked,
        "rewards failed on all ", judged_,
        " completions so far (the first failure: ", rewards_.first_failure(),
        "); nothing would be trained");
}

void RolloutFailures::warn(train::Messages& messages) const {
  if (rewards_failed_.all() > 0)
    messages.warn_once("failures",
                       str("rewards failed on ", rewards_failed_.all(),
                           " completions (the first: ", rewards_.first_failure(),
                           "); they are handled as rewards.on_failure says and counted in "
                           "reward_timeouts, reward_crashes and reward_malformed"));
  if (episodes_failed_.failures() > 0)
    messages.warn_once("environment failures",
                       str("the environment failed ", episodes_failed_.failures(),
                           " times (the first: ", episodes_->first_failure(),
                           "); this is handled as environment.on_failure says and counted in "
                           "environment_timeouts, environment_crashes and environment_malformed"));
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
          {"episodes", {episodes_failed_.episodes, episodes_failed_.failed}},
          {"judged", judged_}};
}

void RolloutFailures::restore(const Json& state, const std::string& where) {
  const std::vector<int64_t> rewards = whole_numbers(state, "reward_failures", 3, where),
                             episodes = whole_numbers(state, "environment_failures", 4, where),
                             ended = whole_numbers(state, "episodes", 2, where);
  rewards_failed_ = {rewards[0], rewards[1], rewards[2]};
  episodes_failed_ = {episodes[0], episodes[1], episodes[2], episodes[3], ended[0], ended[1]};
  const Json judged = state.value("judged", Json(0));
  judged_ = judged.is_number_integer() ? judged.get<int64_t>() : 0;
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
