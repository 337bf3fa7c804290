#include "temper/preference/mismatched.h"

#include <algorithm>

namespace temper::preference {

Mismatched::Mismatched(std::span<const PreferenceRow> rows) {
  std::vector<data::TokenPath> prompts, completions;
  const auto add = [&](const PreferenceRow& row, Side side) {
    if (!row.has(side)) return;
    prompts.push_back(row.path(side, true));
    completions.push_back(row.path(side, false));
  };
  constexpr Side kSides[] = {Side::kChosen, Side::kRejected};
  if (std::any_of(rows.begin(), rows.end(), [](const auto& row) { return row.paired(); })) {
    for (const Side side : kSides)
      for (const PreferenceRow& row : rows) add(row, side);
  } else {
    for (const PreferenceRow& row : rows)
      for (const Side side : kSides) add(row, side);
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    data::TokenPath& completion = completions[(i + prompts.size() - 1) % prompts.size()];
    PreferenceRow& row = rows_.emplace_back();
    int32_t parent = -1;
    if (!prompts[i].tokens.empty()) {
      row.segments.push_back(
          {-1, true, false, true, std::move(prompts[i].tokens), std::move(prompts[i].labels)});
      parent = 0;
    }
    row.segments.push_back(
        {parent, true, false, false, std::move(completion.tokens), std::move(completion.labels)});
  }
  for (size_t i = 0; i < rows_.size(); ++i)
    units_.push_back(unit_of(rows_[i], static_cast<int64_t>(i), Targets::kCompletions));
}

}  // namespace temper::preference
