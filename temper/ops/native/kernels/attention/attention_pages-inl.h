// Pages of keys and values, as attention walks them: of a sampler's sequence, or packed from a
// forest. Included once for each SIMD target.
#if defined(TEMPER_ATTENTION_PAGES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_ATTENTION_PAGES_INL_H
#undef TEMPER_ATTENTION_PAGES_INL_H
#else
#define TEMPER_ATTENTION_PAGES_INL_H
#endif

#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "temper/ops/native/kernels/attention/cache_values-inl.h"
#include "temper/ops/native/kernels/attention/forest_attention.h"
#include "temper/ops/native/kernels/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// A page holds kPanel positions, aligned to absolute position, so that it is a panel of the
// register tile. Its keys, or values, are either columns, [D][kPage], to multiply a query with, or
// rows, [D / kPanel] panels of [kPage][kPanel], to be added up. Slots that no token has written are
// never read as rows; as columns they make sums that nobody reads.
constexpr int64_t kPage = kPanel;

inline int64_t pages_of(int64_t positions) { return (positions + kPage - 1) / kPage; }
inline int64_t padded(int64_t head_dim) { return (head_dim + kPanel - 1) / kPanel * kPanel; }
inline int64_t column_values(int64_t head_dim) { return head_dim * kPage; }
inline int64_t row_values(int64_t head_dim) { return padded(head_dim) * kPage; }
// The sampler's pages: keys as columns, then values as rows.
inline int64_t head_values(int64_t head_dim) {
  return column_values(head_dim) + row_values(head_dim);
}

// B: float, or of the sampler's pages what they are stored in; x has been rounded to it.
template <class B>
void write_column(B* page, int64_t slot, int64_t head_dim, const float* x) {
  for (int64_t first = 0; first < head_dim; first += kPanel) {
    const int64_t count = std::min<int64_t>(kPanel, head_dim - first);
    B values[kPanel];
    store_values(x + first, count, values);
    for (int64_t d = 0; d < count; ++d) page[(first + d) * kPage + slot] = values[d];
  }
}
// `slots`: of the panels, kPage in a page.
template <class B>
void write_row(B* panels, int64_t slots, int64_t slot, int64_t head_dim, const float* x) {
  for (int64_t d = 0; d < head_dim; d += kPanel)
    store_values(x + d, std::min<int64_t>(kPanel, head_dim - d),
                 panels + d * slots + slot * kPanel);
}

// Scratch, taken before a parallel region: no exception may leave one.
using Floats = hwy::AlignedFreeUniquePtr<float[]>;
inline Floats allocate(int64_t count) {
  Floats floats = hwy::AllocateAligned<float>(static_cast<size_t>(std::max<int64_t>(count, 1)));
  if (!floats) throw std::bad_alloc();
  return floats;
}

// Which tokens lie in which pages. A segment owns the pages from the one of its first position on;
// when it starts inside a page, that page begins with its ancestors' tokens. Pages before it are
// its ancestors', shared by all that descend from them.
class ForestPages {
 public:
  explicit ForestPages(const ForestView& forest) : forest_(forest) {
    const size_t segments = static_cast<size_t>(forest.num_segments);
    first_position_.resize(segments);
    begin_.resize(segments + 1);
    for (size_t s = 0; s < segments; ++s) {
      const int64_t parent = forest.parent[s];
      first_position_[s] = parent < 0 ? 0 : end_position(parent);
      const int64_t pages =
          pages_of(end_position(static_cast<int64_t>(s))) - first_position_[s] / kPage;
      owner_.insert(owner_.end(), static_cast<size_t>(pages), static_cast<int64_t>(s));
      begin_[s + 1] = begin_[s] + pages;
    }
  }

  int64_t count() const { return begin_.back(); }
  int64_t begin(int64_t segment) const { return begin_[static_cast<size_t>(segment)]; }
  int64_t end(int64_t segment) const { return begin(segment + 1); }
  int64_t first_position(int64_t segment) const {
    return first_position_[static_cast<size_t>(segment)];
  }
  int64_t end_position(int64_t segment) const {
    return first_position(segment) + forest_.segment_start[segment + 1] -
           forest_.segment_start[segment];
  }

  // Where a segment's i-th token stands among the slots of the pages from `first_page` on.
  int64_t slot(int64_t segment, int64_t i, int64_t first_page) const {
    const int64_t first = first_position(segment);
    return (begin(segment) - first_page - first / kPage) * kPage + first + i;
  }

  // The tokens of a page, slot by slot. Returns how many.
  int64_t tokens(int64_t page, int64_t* token) const {
    int64_t segment = owner_[static_cast<size_t>(page)];
    const int64_t from = (first_position(segment) / kPage + page - begin(segment)) * kPage;
    const int64_t to = std::min(end_position(segment), from + kPage);
    for (int64_t j = to - 1; j >= from; --j) {
      while (j < first_position(segment)) segment = forest_.parent[segment];
      token[j - from] = forest_.segment_start[segment] + j - first_position(segment);
    }
    return to - from;
  }

  // The pages of a segment's path, from position 0 to its end.
  void path(int64_t segment, std::vector<int64_t>& pages) const {
    int64_t p = pages_of(end_position(segment));
    pages.resize(static_cast<size_t>(p));
    for (; segment >= 0; segment = forest_.parent[segment])
      for (const int64_t first = first_position(segment) / kPage; p > first;) {
        --p;
        pages[static_cast<size_t>(p)] = begin(segment) + p - first;
      }
  }

 private:
  const ForestView& forest_;
  std::vector<int64_t> first_position_;  // [S]
  std::vector<int64_t> begin_;           // [S + 1], a segment's first page
  std::vector<int64_t> owner_;           // [pages], its segment
};

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
