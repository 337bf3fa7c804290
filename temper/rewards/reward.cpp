#include "temper/rewards/reward.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"

namespace temper::rewards {

std::vector<Verdict> SimpleReward::judge(std::span<const Sample> samples) {
  std::vector<Verdict> verdicts;
  for (const Sample& sample : samples)
    verdicts.push_back({Verdict::Kind::kValue, score(sample), {}});
  return verdicts;
}

std::string text_field(const Sample& sample, const std::string& field) {
  const Json& row = *sample.row;
  const auto found = row.find(field);
  if (found == row.end()) {
    std::string known;
    for (const auto& [name, value] : row.items()) known += (known.empty() ? "" : ", ") + name;
    throw DataError(sample.where + ": a reward reads the field `" + field + "`, and the row has [" +
                    known + "]; data.columns renames fields");
  }
  return found->is_string() ? found->get<std::string>() : dump_json(*found);
}

RewardSet::RewardSet(std::span<const RewardSection> sections, bool has_text)
    : sections_(sections.begin(), sections.end()) {
  for (const RewardSection& section : sections_) {
    rewards_.push_back(make_reward(section));
    names_.push_back(section.label());
    check<ConfigError>(
        has_text || !rewards_.back()->needs_text(), "rewards: ", names_.back(),
        " reads text, and the model has no tokenizer; a command can judge completion_tokens");
  }
}

void RewardSet::count(size_t reward, const Verdict& verdict) {
  switch (verdict.kind) {
    case Verdict::Kind::kValue:
      return;
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
  if (first_failure_.empty()) first_failure_ = names_[reward] + ": " + verdict.detail;
  check(sections_[reward].on_failure != RewardSection::OnFailure::kStop, "reward ", names_[reward],
        ": ", verdict.detail, " (its on_failure is stop)");
}

std::vector<Judged> RewardSet::judge(std::span<const Sample> samples) {
  std::vector<Judged> out(samples.size());
  for (size_t r = 0; r < rewards_.size(); ++r) {
    const std::vector<Verdict> verdicts = rewards_[r]->judge(samples);
    for (size_t i = 0; i < samples.size(); ++i) {
      count(r, verdicts[i]);
      out[i].each.push_back(verdicts[i].value);
      out[i].reward += sections_[r].weight * verdicts[i].value;
      out[i].dropped |= verdicts[i].kind != Verdict::Kind::kValue &&
                        sections_[r].on_failure == RewardSection::OnFailure::kDrop;
    }
  }
  return out;
}

}  // namespace temper::rewards
