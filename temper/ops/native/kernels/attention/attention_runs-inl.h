// Which rows of a batch over the sampler's pages go on with one sequence, and which sequences begin
// alike. Included once for each SIMD target.
#if defined(TEMPER_ATTENTION_RUNS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_ATTENTION_RUNS_INL_H
#undef TEMPER_ATTENTION_RUNS_INL_H
#else
#define TEMPER_ATTENTION_RUNS_INL_H
#endif

#include <algorithm>
#include <vector>

#include "temper/ops/native/kernels/attention/attention_pages-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// Consecutive positions of one sequence: they share tiles.
struct CachedRun {
  int64_t begin, end;  // rows of the batch
};
// Of at most `longest` rows each.
inline std::vector<CachedRun> runs_of(int64_t num_tokens, const CachedQuery* rows,
                                      int64_t longest) {
  std::vector<CachedRun> runs;
  for (int64_t i = 0; i < num_tokens; ++i) {
    const bool follows = i > 0 && rows[i].pages == rows[i - 1].pages &&
                         rows[i].position == rows[i - 1].position + 1 &&
                         i - runs.back().begin < longest;
    if (!follows) runs.push_back({i, i});
    runs.back().end = i + 1;
  }
  return runs;
}

// Runs [begin, end) whose sequences begin with the same pages.
struct RunFamily {
  size_t begin, end;
  int64_t shared;  // pages
};
// Neighbours that share as many pages as the first two of them and, together, fill at most
// `most_rows` rows of a tile: the samples of one prompt.
inline std::vector<RunFamily> families_of(const AttentionShape& shape,
                                          const std::vector<CachedRun>& runs,
                                          const CachedQuery* rows, int64_t most_rows) {
  // Pages that both have, of those that their first queries see whole.
  const auto common = [&](const CachedRun& a, const CachedRun& b) {
    if (shape.window > 0) return int64_t{0};
    const CachedQuery &one = rows[a.begin], &other = rows[b.begin];
    const int64_t most = (std::min(one.position, other.position) + 1) / kPage;
    int64_t n = 0;
    while (n < most && one.pages[n] == other.pages[n]) ++n;
    return n;
  };
  std::vector<RunFamily> families;
  int64_t taken = 0;
  for (size_t r = 0; r < runs.size(); ++r) {
    const int64_t count = runs[r].end - runs[r].begin;
    bool joins = false;
    if (r > 0 && taken + count <= most_rows) {
      RunFamily& family = families.back();
      const int64_t with_first = common(runs[family.begin], runs[r]);
      joins = with_first > 0 && (family.end - family.begin == 1 || with_first >= family.shared);
      if (joins && family.end - family.begin == 1) family.shared = with_first;
    }
    if (!joins) families.push_back({r, r, 0}), taken = 0;
    families.back().end = r + 1;
    taken += count;
  }
  return families;
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
