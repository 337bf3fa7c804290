#include "temper/rewards/reward.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "temper/base/error.h"
#include "temper/rewards/command.h"
#include "temper/rewards/judge.h"

namespace temper::rewards {
namespace {

[[noreturn]] void fail_missing(const Json& row, const std::string& where, const std::string& reward,
                               const std::string& field) {
  std::string known;
  for (const auto& [name, value] : row.items()) known += (known.empty() ? "" : ", ") + name;
  throw DataError(where + ": " + reward + " reads the field `" + field + "`, and the row has [" +
                  known + "]; data.columns (--columns) renames fields");
}

}  // namespace

bool is_reward(double value) { return std::isfinite(value) && std::abs(value) <= kLargestReward; }

Verdict valued(double value) {
  if (is_reward(value)) return {Verdict::Kind::kValue, value, {}};
  return {Verdict::Kind::kMalformed, 0,
          temper::str("found the reward ", value, ", expected a finite number of at most ",
                      kLargestReward)};
}

Registry<MakeReward>& registry() {
  static Registry<MakeReward> table("reward");
  return table;
}

void register_reward(RewardEntry entry) { registry().add(std::move(entry)); }

std::unique_ptr<Reward> make_reward(const RewardSection& section) {
  if (!section.command.empty()) return std::make_unique<CommandReward>(section);
  if (section.judge.url) return make_server_judge(section);
  if (section.judge.model)
    return registry().find("judge", "rewards")(section);  // rl/rollout/model_judge.h
  if (section.model)
    return registry().find("model", "rewards")(section);  // rl/rollout/model_reward.h
  const std::string& name = section.reward.empty() ? section.name : section.reward;
  for (const auto& [ending, program] : {std::pair(".py", "python3"), std::pair(".sh", "sh")})
    check<ConfigError>(!name.ends_with(ending), "rewards: `", name,
                       "` is no built-in reward; of a program write rewards=[{command: [", program,
                       ", ", name, "]}]");
  return registry().find(name, "rewards")(section);
}

std::vector<Verdict> SimpleReward::judge(std::span<const Sample> samples) {
  std::vector<Verdict> verdicts;
  for (const Sample& sample : samples) verdicts.push_back(valued(score(sample)));
  return verdicts;
}

std::string text_field(const Sample& sample, const std::string& field) {
  const Json& row = *sample.row;
  const Json* const found = find_field(row, field);
  if (!found) fail_missing(row, sample.where, "a reward", field);
  return found->is_string() ? found->get<std::string>() : dump_json(*found);
}

std::string one_line(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t last = line.find_last_not_of(kSpace);
    if (last == std::string_view::npos) continue;
    if (!out.empty()) out += " | ";
    out += line.substr(0, last + 1);
  }
  return out;
}

RewardSet::RewardSet(std::span<const RewardSection> sections, bool has_text, const Make& make)
    : sections_(sections.begin(), sections.end()) {
  const std::string problem = find_problem(sections);
  check<ConfigError>(problem.empty(), "rewards: ", problem);
  for (const RewardSection& section : sections_) {
    rewards_.push_back(make(section));
    names_.push_back(section.label());
    check<ConfigError>(
        has_text || !rewards_.back()->needs_text(), "rewards: ", names_.back(),
        " reads text, and the model has no tokenizer; a command can judge completion_tokens");
  }
  counted_zero_.resize(names_.size());
  gave_negative_.resize(names_.size());
}

void RewardSet::tell_failures(const std::function<void(const std::string&)>& heard) {
  for (size_t r = 0; r < rewards_.size(); ++r)
    rewards_[r]->tell_failures(
        [heard, name = names_[r], told = false](const std::string& detail, bool last) mutable {
          if (!std::exchange(told, true) || last) heard(name + ": " + one_line(detail));
        });
}

std::string RewardSet::rewarded_failures() const {
  for (size_t r = 0; r < names_.size(); ++r)
    if (counted_zero_[r] && gave_negative_[r] && sections_[r].weight != 0) return names_[r];
  return {};
}

void RewardSet::check_row(const Json& row, const std::string& where) const {
  for (size_t r = 0; r < rewards_.size(); ++r)
    for (const std::string& field : rewards_[r]->required_fields())
      if (!find_field(row, field)) fail_missing(row, where, "the reward " + names_[r], field);
}

void RewardSet::count(size_t reward, const Verdict& verdict) {
  failures_.malformed += verdict.unasked_lines;
  switch (verdict.kind) {
    case Verdict::Kind::kValue:
      if (verdict.unasked_lines == 0) return;
      break;
    case Verdict::Kind::kTimedOut:
      ++failures_.timed_out;
      break;
    case Verdict::Kind::kCrashed:
      ++failures_.crashed;
      break;
    case Verdict::Kind::kMalformed:
      ++failures_.malformed;
      break;
  }
  const std::string detail = one_line(verdict.detail);
  if (first_failure_.empty()) first_failure_ = names_[reward] + ": " + detail;
  check(sections_[reward].on_failure != RewardSection::OnFailure::kStop, "reward ", names_[reward],
        ": ", detail, " (its on_failure is stop)");
}

namespace {

// Whether a server that judges gave no answer, and not just one without a number.
bool is_outage(const RewardSection& section, const Verdict& verdict) {
  return section.judge.url && section.ends_where_dead &&
         (verdict.kind == Verdict::Kind::kTimedOut || verdict.kind == Verdict::Kind::kCrashed);
}

}  // namespace

std::vector<RewardResult> RewardSet::judge(std::span<const Sample> samples) {
  std::vector<RewardResult> out(samples.size());
  const bool any_weighs = std::any_of(sections_.begin(), sections_.end(),
                                      [](const RewardSection& s) { return s.weight != 0; });
  for (RewardResult& result : out) result.failed = !rewards_.empty();
  for (size_t r = 0; r < rewards_.size(); ++r) {
    const bool weighs = sections_[r].weight != 0 || !any_weighs;
    std::vector<Verdict> verdicts = rewards_[r]->judge(samples);
    for (Verdict& verdict : verdicts)
      if (verdict.kind == Verdict::Kind::kValue && valued(verdict.value).kind != verdict.kind)
        verdict = valued(verdict.value);
    for (size_t i = 0; i < samples.size(); ++i) {
      count(r, verdicts[i]);
      out[i].each.push_back(verdicts[i].value);
      out[i].reward += sections_[r].weight * verdicts[i].value;
      const bool has_value = verdicts[i].kind == Verdict::Kind::kValue;
      if (sections_[r].weight * verdicts[i].value < 0) gave_negative_[r] = true;
      if (!has_value && sections_[r].on_failure == RewardSection::OnFailure::kZero)
        counted_zero_[r] = true;
      out[i].dropped |= !has_value && sections_[r].on_failure == RewardSection::OnFailure::kDrop;
      out[i].failed &= !(has_value && weighs);
      out[i].unanswered.push_back(weighs && is_outage(sections_[r], verdicts[i])
                                      ? one_line(verdicts[i].detail)
                                      : std::string());
    }
  }
  for (RewardResult& result : out) result.failed |= result.dropped;
  return out;
}

}  // namespace temper::rewards
