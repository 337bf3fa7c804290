#include "temper/ops/top_tokens.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "temper/ops/head_blocks.h"

namespace temper::ops {
namespace {

// The k likeliest of each row so far: a heap with the least likely in front.
template <class T>
class Likeliest {
 public:
  Likeliest(int64_t m, int64_t k) : k_(static_cast<size_t>(k)), rows_(static_cast<size_t>(m)) {}
  void add(int64_t row, int64_t rows, int64_t first, int64_t columns, const at::Tensor& logits) {
    const T* x = values<T>(logits);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      std::vector<Entry>& heap = rows_[static_cast<size_t>(row + r)];
      for (int64_t j = 0; j < columns; ++j) {
        const Entry entry{x[r * columns + j], first + j};
        if (heap.size() == k_ && !before(entry, heap.front())) continue;
        if (heap.size() == k_) {
          std::pop_heap(heap.begin(), heap.end(), before);
          heap.pop_back();
        }
        heap.push_back(entry);
        std::push_heap(heap.begin(), heap.end(), before);
      }
    }
  }
  TopTokens take(const at::TensorOptions& options) {
    const int64_t m = static_cast<int64_t>(rows_.size()), k = static_cast<int64_t>(k_);
    TopTokens top{at::empty({m, k}, at::kLong), at::empty({m, k}, options)};
    for (int64_t r = 0; r < m; ++r) {
      std::vector<Entry>& heap = rows_[static_cast<size_t>(r)];
      std::sort(heap.begin(), heap.end(), before);
      for (int64_t j = 0; j < k; ++j) {
        top.id.mutable_data_ptr<int64_t>()[r * k + j] = heap[static_cast<size_t>(j)].id;
        top.logit.mutable_data_ptr<T>()[r * k + j] = heap[static_cast<size_t>(j)].logit;
      }
    }
    return top;
  }

 private:
  struct Entry {
    T logit;
    int64_t id;
  };
  static bool before(const Entry& a, const Entry& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }
  size_t k_;
  std::vector<std::vector<Entry>> rows_;
};

template <class T>
TopTokens find(const TeacherHead& teacher, double temperature, int64_t k) {
  const at::Tensor& hidden = teacher.hidden;
  HeadSpec spec = teacher.spec;
  spec.temperature = temperature;
  Likeliest<T> found(hidden.size(0), k);
  each_block(teacher.weight, hidden.size(0), [&](int64_t first, const Weight& part) {
    for (int64_t row = 0; row < hidden.size(0); row += kRows) {
      const int64_t rows = std::min(kRows, hidden.size(0) - row);
      at::Tensor x = at::empty({rows, part.out()}, hidden.options());
      chunk_logits<T>(spec, hidden.narrow(0, row, rows), part, x);
      found.add(row, rows, first, part.out(), x);
    }
  });
  return found.take(hidden.options());
}

}  // namespace

TopTokens likeliest_tokens(const TeacherHead& teacher, double temperature, int64_t k) {
  const TeacherHead contiguous{teacher.spec, teacher.hidden.contiguous(), teacher.weight};
  return dispatch(teacher.hidden, [&](auto zero) {
    return find<decltype(zero)>(contiguous, temperature, std::min(k, teacher.weight.out()));
  });
}

TopTokens top_tokens(const TeacherHead& teacher, int64_t k) {
  TopTokens top = likeliest_tokens(teacher, 1, k);
  HeadSpec spec = teacher.spec;
  spec.temperature = 1;
  spec.log_sum_exp = true;
  const std::vector<int64_t> any(static_cast<size_t>(teacher.hidden.size(0)), 0);
  const at::Tensor lse =
      token_logp(spec, teacher.hidden.contiguous(), teacher.weight, any).log_sum_exp;
  top.logit = top.logit - lse.unsqueeze(1);
  return top;
}

}  // namespace temper::ops
