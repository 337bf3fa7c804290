#include "temper/preference/sides.h"

#include <ATen/ATen.h>

#include <map>

namespace temper::preference {
namespace {

// A segment's tag: its unit, and whose it is.
constexpr int64_t kChosen = 1, kRejected = 2, kPrompt = 4, kUnit = 8;

bool tag_is_of(int64_t tag, Side side) {
  return (tag & (side == Side::kChosen ? kChosen : kRejected)) != 0;
}

// The sides whose last token is the segment's.
int64_t ending(const PreferenceRow& row, size_t segment) {
  int64_t sides = 0;
  for (const Side side : {Side::kChosen, Side::kRejected}) {
    bool last = row.segments[segment].of(side);
    for (size_t s = segment + 1; s < row.segments.size(); ++s) last &= !row.segments[s].of(side);
    if (last) sides |= side == Side::kChosen ? kChosen : kRejected;
  }
  return sides;
}

at::Tensor indices(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

}  // namespace

train::PackUnit unit_of(const PreferenceRow& row, int64_t index, Targets targets) {
  train::PackUnit unit;
  for (size_t s = 0; s < row.segments.size(); ++s) {
    const PreferenceRow::Segment& segment = row.segments[s];
    train::PackUnit::Segment& out = unit.segments.emplace_back();
    out.parent = segment.parent;
    out.tokens = segment.tokens;
    out.images = segment.images;
    if (targets == Targets::kScores) {
      const int64_t sides = ending(row, s);
      out.scored = sides != 0;
      out.tag = kUnit * index + sides;
      continue;
    }
    out.tag = kUnit * index + kChosen * segment.chosen + kRejected * segment.rejected +
              kPrompt * segment.prompt;
    if (!segment.prompt)
      out.labels = segment.labels;
    else if (targets == Targets::kWithChosenPrompt && segment.chosen)
      out.labels = segment.tokens;
  }
  return unit;
}

double supervised(const train::PackUnit& unit, Side side) {
  double count = 0;
  for (const train::PackUnit::Segment& segment : unit.segments) {
    if (!tag_is_of(segment.tag, side) || (segment.tag & kPrompt) != 0) continue;
    for (size_t i = segment.parent < 0; i < segment.labels.size(); ++i)
      count += segment.labels[i] >= 0;
  }
  return count;
}

double supervised(const train::PackUnit& unit) {
  double count = 0;
  for (const train::PackUnit::Segment& segment : unit.segments) {
    const double sides = ((segment.tag & kChosen) != 0) + ((segment.tag & kRejected) != 0);
    // A prompt's targets are chosen's alone.
    const double times = (segment.tag & kPrompt) != 0 ? 1 : sides;
    if (segment.scored) count += sides;
    for (size_t i = segment.parent < 0; i < segment.labels.size(); ++i)
      count += segment.labels[i] >= 0 ? times : 0;
  }
  return count;
}

at::Tensor SideTargets::sum(const at::Tensor& value_M) const {
  const at::Tensor zero = at::zeros({static_cast<int64_t>(unit_S.size())}, at::kDouble);
  return zero.index_add(0, slot_T, value_M.index_select(0, target_T).to(at::kDouble));
}

SideTargets side_targets(const train::ForwardPass& pass, Side side, bool prompt) {
  SideTargets out;
  std::map<int64_t, int64_t> slots;
  std::vector<int64_t> target, slot;
  std::vector<double> count;
  for (const train::ForwardPass::Span& span : pass.spans) {
    if (!tag_is_of(span.tag, side) || ((span.tag & kPrompt) != 0 && !prompt)) continue;
    const auto [at, added] = slots.try_emplace(span.tag / kUnit, out.unit_S.size());
    if (added) {
      out.unit_S.push_back(at->first);
      count.push_back(0);
    }
    count[static_cast<size_t>(at->second)] += static_cast<double>(span.end - span.begin);
    for (int64_t t = span.begin; t < span.end; ++t) {
      target.push_back(t);
      slot.push_back(at->second);
    }
  }
  out.count_S = at::tensor(count, at::kDouble);
  out.target_T = indices(target);
  out.slot_T = indices(slot);
  return out;
}

SideScores side_scores(const train::ForwardPass& pass, Side side) {
  SideScores out;
  std::vector<int64_t> score;
  for (size_t k = 0; k < pass.scored_tag_K.size(); ++k) {
    if (!tag_is_of(pass.scored_tag_K[k], side)) continue;
    out.unit_S.push_back(pass.scored_tag_K[k] / kUnit);
    score.push_back(static_cast<int64_t>(k));
  }
  out.score_S = indices(score);
  return out;
}

Matched matched(const std::vector<int64_t>& chosen, const std::vector<int64_t>& rejected) {
  std::map<int64_t, int64_t> place;
  for (size_t i = 0; i < rejected.size(); ++i) place[rejected[i]] = static_cast<int64_t>(i);
  std::vector<int64_t> of_chosen, of_rejected;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const auto found = place.find(chosen[i]);
    if (found == place.end()) continue;
    of_chosen.push_back(static_cast<int64_t>(i));
    of_rejected.push_back(found->second);
  }
  return {indices(of_chosen), indices(of_rejected)};
}

}  // namespace temper::preference
