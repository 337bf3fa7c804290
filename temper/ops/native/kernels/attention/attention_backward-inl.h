// Attention's backward pass. Included once for each SIMD target.
#if defined(TEMPER_ATTENTION_BACKWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_ATTENTION_BACKWARD_INL_H
#undef TEMPER_ATTENTION_BACKWARD_INL_H
#else
#define TEMPER_ATTENTION_BACKWARD_INL_H
#endif

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "temper/ops/native/kernels/attention/attention_forward-inl.h"
#include "temper/ops/native/kernels/attention/gradient_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// The gradient of one tree and one query head. One thread computes it: every sum has one order. It
// meets blocks of queries with blocks of pages, and keeps no more than one such block of scores.
// A token's dK and dV are one chain of multiply-adds over the tree's queries that see it, in their
// order, however many positions a page holds.
class TreeGradient {
 public:
  struct Arrays {
    QueryRange queries;  // whose rows the arrays have
    const float *q, *out, *lse, *dout;
    float* dq;
  };
  // Scratch of a thread, for trees of at most `pages` pages.
  static int64_t scratch_floats(int64_t dim, int64_t pages) {
    return GradientBlock::scratch_floats(dim) + 2 * pages * kPage * dim;
  }

  TreeGradient(const AttentionShape& shape, const ForestView& forest, const ForestPages& pages,
               const Arrays& arrays, float* scratch)
      : shape_(shape),
        forest_(forest),
        pages_(pages),
        a_(arrays),
        block_(shape, scratch),
        sums_(scratch + GradientBlock::scratch_floats(shape.head_dim)) {}

  // `packed`: the forest's pages of the head's keys and values.
  void run(int64_t root, int64_t head, const float* packed) {
    head_ = head;
    first_page_ = pages_.begin(root);
    const int64_t end = forest_.subtree_end[root];
    num_pages_ = pages_.begin(end) - first_page_;
    std::fill(sums_, sums_ + 2 * num_pages_ * kPage * shape_.head_dim, 0.0f);
    for (int64_t s = root; s < end; ++s) {
      pages_.path(s, path_);
      give_back(s);
      take_over(s);
      const int64_t start = forest_.segment_start[s],
                    end_of_s = std::min(forest_.segment_start[s + 1], a_.queries.end) - start;
      for (int64_t i = std::max<int64_t>(0, a_.queries.first - start); i < end_of_s;
           i += GradientBlock::kQueries)
        queries(start + i - a_.queries.first, std::min(GradientBlock::kQueries, end_of_s - i),
                pages_.first_position(s) + i, packed,
                forest_.open ? forest_.open + start + i : nullptr);
    }
    give_back(end);
  }

  // Adds the sums of the last run to dk and dv, the rows of its kv head.
  void add_to(int64_t root, float* dk, float* dv) const {
    const int64_t dim = shape_.head_dim, row = shape_.num_kv_heads * dim;
    for (int64_t s = root; s < forest_.subtree_end[root]; ++s)
      for (int64_t t = forest_.segment_start[s]; t < forest_.segment_start[s + 1]; ++t) {
        const float* from = sums_ + pages_.slot(s, t - forest_.segment_start[s], first_page_) * dim;
        const float* from_v = from + num_pages_ * kPage * dim;  // as value_sums
        float *to_k = dk + t * row, *to_v = dv + t * row;
        for (int64_t d = 0; d < dim; ++d) to_k[d] += from[d];
        for (int64_t d = 0; d < dim; ++d) to_v[d] += from_v[d];
      }
  }

 private:
  float* key_sums(int64_t page) const {
    return sums_ + (page - first_page_) * kPage * shape_.head_dim;
  }
  float* value_sums(int64_t page) const { return key_sums(page + num_pages_); }

  // A segment's first page may begin with tokens of its ancestors. While the segment and its
  // descendants are at work, it holds their sums: taken over from the parent's last page, and given
  // back to it.
  void take_over(int64_t segment) {
    if (pages_.first_position(segment) % kPage == 0) return;
    copy_sums(segment, pages_.end(forest_.parent[segment]) - 1, pages_.begin(segment));
    open_.push_back(segment);
  }
  // Those whose descendants end before `segment`.
  void give_back(int64_t segment) {
    for (; !open_.empty() && forest_.subtree_end[open_.back()] <= segment; open_.pop_back())
      copy_sums(open_.back(), pages_.begin(open_.back()),
                pages_.end(forest_.parent[open_.back()]) - 1);
  }
  void copy_sums(int64_t segment, int64_t from, int64_t to) const {
    const int64_t count = pages_.first_position(segment) % kPage * shape_.head_dim;
    std::copy_n(key_sums(from), count, key_sums(to));
    std::copy_n(value_sums(from), count, value_sums(to));
  }

  // `count` queries from row `first` of the arrays on, which stands at `position`; their open
  // positions, or null.
  void queries(int64_t first, int64_t count, int64_t position, const float* packed,
               const OpenPositions* open) {
    const int64_t dim = shape_.head_dim, row = shape_.num_heads * dim,
                  at = first * row + head_ * dim;
    block_.begin({count, position, a_.q + at, a_.out + at, a_.dout + at, a_.dq + at, row,
                  a_.lse + first * shape_.num_heads + head_, shape_.num_heads, open});
    const int64_t end = block_.end_page();
    for (int64_t p = block_.first_page(), last; p < end; p = last) {
      const int64_t index = path_[static_cast<size_t>(p)];
      for (last = p + 1; last < std::min(end, p + GradientBlock::kPages); ++last)
        if (path_[static_cast<size_t>(last)] != index + last - p) break;  // not side by side
      block_.add(p, last, packed + index * GradientBlock::page_floats(dim), key_sums(index),
                 value_sums(index));
    }
    block_.write();
  }

  const AttentionShape& shape_;
  const ForestView& forest_;
  const ForestPages& pages_;
  const Arrays& a_;
  int64_t head_ = 0, first_page_ = 0, num_pages_ = 0;
  std::vector<int64_t> path_;  // pages of the segment at hand
  std::vector<int64_t> open_;  // segments that hold sums of their ancestors
  GradientBlock block_;
  float* sums_;  // dK, then dV, of the tree's pages: [pages][kPage][D]
};

// `largest`: pages of a tree.
inline PassFloats backward_floats(const AttentionShape& shape, const ForestPages& pages,
                                  int64_t largest) {
  const int64_t head_size = pages.count() * GradientBlock::page_floats(shape.head_dim);
  return {heads_at_once(shape, head_size), head_size,
          TreeGradient::scratch_floats(shape.head_dim, largest)};
}

inline int64_t pages_of_tree(const ForestView& forest, const ForestPages& pages, int64_t root) {
  return pages.begin(forest.subtree_end[root]) - pages.begin(root);
}

AttentionMemory AttentionBytes(const AttentionShape& shape, const ForestView& forest) {
  const ForestPages pages(forest);
  int64_t largest = 0;
  for (int64_t s = 0; s < forest.num_segments; s = forest.subtree_end[s])
    largest = std::max(largest, pages_of_tree(forest, pages, s));
  return {forward_floats(shape, pages, most_seen(shape, forest, pages)).bytes(),
          backward_floats(shape, pages, largest).bytes()};
}

void AttentionBackward(const AttentionShape& shape, const ForestView& forest, QueryRange queries,
                       const float* q, const float* k, const float* v, const float* out,
                       const float* lse, const float* dout, float* dq, float* dk, float* dv) {
  const int64_t kv_heads = shape.num_kv_heads, dim = shape.head_dim,
                group = shape.num_heads / kv_heads;
  const size_t kv_bytes = static_cast<size_t>(forest.num_tokens * kv_heads * dim) * sizeof(float);
  std::memset(dk, 0, kv_bytes);
  std::memset(dv, 0, kv_bytes);
  const ForestPages pages(forest);
  std::vector<int64_t> roots;
  int64_t largest = 0;
  for (int64_t s = 0; s < forest.num_segments; s = forest.subtree_end[s]) {
    roots.push_back(s);
    largest = std::max(largest, pages_of_tree(forest, pages, s));
  }
  const PassFloats floats = backward_floats(shape, pages, largest);
  const int64_t at_once = floats.at_once, head_size = floats.head_size,
                per_thread = floats.per_thread, page_size = GradientBlock::page_floats(dim);
  const Floats storage = allocate(at_once * head_size),
               scratch = allocate(omp_get_max_threads() * per_thread);
  const TreeGradient::Arrays arrays{queries, q, out, lse, dout, dq};
  // Heads that share keys add to the same dk and dv, each when it is its turn. Units are begun in
  // ascending order, so whoever has its turn before a waiting one is at work.
  const int64_t batches = (kv_heads + at_once - 1) / at_once;
  std::vector<std::atomic<int64_t>> next(static_cast<size_t>(batches)),
      turn(roots.size() * static_cast<size_t>(kv_heads));
#pragma omp parallel
  {
    TreeGradient gradient(shape, forest, pages, arrays,
                          scratch.get() + omp_get_thread_num() * per_thread);
    for (int64_t batch = 0; batch < batches; ++batch) {
      const int64_t first = batch * at_once, heads = std::min(at_once, kv_heads - first);
#pragma omp for collapse(2) schedule(static)
      for (int64_t g = 0; g < heads; ++g)
        for (int64_t p = 0; p < pages.count(); ++p) {
          float* key_columns = storage.get() + g * head_size + p * page_size;
          float* value_columns = key_columns + column_values(dim);
          float* key_rows = value_columns + column_values(dim);
          int64_t token[kPage];
          const int64_t count = pages.tokens(p, token);
          for (int64_t i = 0; i < count; ++i) {
            const int64_t at = (token[i] * kv_heads + first + g) * dim;
            write_column(key_columns, i, dim, k + at);
            write_column(value_columns, i, dim, v + at);
            write_row(key_rows, kPage, i, dim, k + at);
          }
        }
      const int64_t units = static_cast<int64_t>(roots.size()) * heads * group;
      for (int64_t unit; (unit = next[static_cast<size_t>(batch)]++) < units;) {
        const int64_t root = unit / (heads * group), g = unit / group % heads, h = unit % group;
        const int64_t segment = roots[static_cast<size_t>(root)];
        gradient.run(segment, (first + g) * group + h, storage.get() + g * head_size);
        std::atomic<int64_t>& at = turn[static_cast<size_t>(root * kv_heads + first + g)];
        for (int64_t now = at; now != h; now = at) at.wait(now);
        gradient.add_to(segment, dk + (first + g) * dim, dv + (first + g) * dim);
        at = h + 1;
        at.notify_all();
      }
#pragma omp barrier
    }
  }
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
