#include "temper/plan/row_sizes.h"

namespace temper::plan {

int64_t RowSizes::longest() const {
  int64_t longest = 0;
  for (const auto& source : of)
    for (const RowSize& row : source) longest = std::max(longest, row.tokens);
  return longest;
}

int64_t RowSizes::longest_prompt() const {
  int64_t longest = 0;
  for (const std::vector<RowSize>& rows : of)
    for (const RowSize& row : rows) longest = std::max(longest, row.prompt);
  return longest;
}

int64_t RowSizes::longer_than(int64_t tokens) const {
  int64_t count = 0;
  for (const auto& source : of)
    count += std::count_if(source.begin(), source.end(),
                           [&](const RowSize& row) { return row.tokens > tokens; });
  return count;
}

std::vector<RowSize> drawn_rows(const data::RowOrder& order, const RowSizes& sizes, int64_t most) {
  std::vector<RowSize> drawn;
  data::LoaderState state;
  state.counts.assign(order.sources().size(), 0);
  for (int64_t tries = 0; static_cast<int64_t>(drawn.size()) < most && tries < 2 * most; ++tries) {
    const auto next = order.draw(state, false);
    if (!next) break;
    size_t s = 0;
    while (&order.rows_of(s) != next->file) ++s;
    const RowSize& size = sizes.of[s][static_cast<size_t>(next->row)];
    if (size.tokens > 0) drawn.push_back(size);
  }
  return drawn;
}

void plan_passes(std::span<const RowSize> units, int64_t batch, int64_t max_tokens, int64_t rows,
                 RunShape& run) {
  PassShape only, later;  // the largest pass that is its step's only one, or not the first
  int64_t steps = 0, tokens = 0;
  for (size_t begin = 0; begin < units.size(); begin += static_cast<size_t>(batch), ++steps) {
    const std::span<const RowSize> step =
        units.subspan(begin, std::min(static_cast<size_t>(batch), units.size() - begin));
    std::vector<int64_t> lengths;
    for (const RowSize& unit : step) {
      lengths.push_back(unit.tokens);
      tokens += unit.tokens;
    }
    for (const std::vector<size_t>& mine : data::split_rows(lengths, rows)) {
      std::vector<int64_t> my_lengths;
      for (const size_t i : mine) my_lengths.push_back(max_tokens > 0 ? lengths[i] : 1);
      const auto packed = data::pack_rows(my_lengths, std::max<int64_t>(max_tokens, 1));
      run.passes = std::max(run.passes, static_cast<int64_t>(packed.size()));
      for (size_t p = 0; p < packed.size(); ++p) {
        PassShape pass{0, 0, p == 0};
        for (const size_t i : packed[p]) {
          pass.tokens += step[mine[i]].tokens;
          pass.targets += step[mine[i]].targets;
        }
        PassShape& largest = p == 0 ? only : later;
        if (pass.tokens > largest.tokens) largest = pass;
      }
    }
  }
  run.largest.clear();
  for (const PassShape& pass : {only, later})
    if (pass.tokens > 0) run.largest.push_back(pass);
  run.step_tokens = steps > 0 ? tokens / steps : 0;
}

}  // namespace temper::plan
