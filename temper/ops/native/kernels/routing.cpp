#include "temper/ops/native/kernels/routing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "temper/ops/native/kernels/loops.h"
#include "temper/ops/native/kernels/rows.h"

namespace temper::kernels {
namespace {

constexpr int64_t kParallelNumbers = 32768;  // numbers from which a second thread pays

// A row's exponentials or sigmoids, and the sum that its weights are divided by.
template <class T>
struct RowScores {
  explicit RowScores(int64_t experts)
      : score(static_cast<size_t>(experts)), shifted(static_cast<size_t>(experts)) {}

  void softmax(const T* x) {
    const auto count = static_cast<int64_t>(score.size());
    row_kernels<T>().exp_shifted(count, x, *std::max_element(x, x + count), score.data());
  }
  void sigmoid(const T* x) {
    const auto count = static_cast<int64_t>(score.size());
    for (size_t i = 0; i < score.size(); ++i) shifted[i] = -x[i];
    row_kernels<T>().exp_shifted(count, shifted.data(), T(0), score.data());
    for (T& s : score) s = T(1) / (T(1) + s);
  }
  void make(const RouterSpec& spec, const T* x) {
    spec.score == RouterScore::kSoftmax ? softmax(x) : sigmoid(x);
  }
  double sum() const {
    double sum = 0;
    for (const T s : score) sum += static_cast<double>(s);
    return sum;
  }
  // The divisor of the chosen experts' weights.
  double divisor(const RouterSpec& spec, const int64_t* expert) const {
    const bool softmax = spec.score == RouterScore::kSoftmax;
    if (!spec.normalize) return softmax ? sum() : 1.0;
    double sum = softmax ? 0 : 1e-20;
    for (int64_t j = 0; j < spec.chosen; ++j)
      sum += static_cast<double>(score[static_cast<size_t>(expert[j])]);
    return sum;
  }

  std::vector<T> score, shifted;
};

// The `count` largest of value, of equals the lower index, at the front of `order`. NaN, which
// would have no place in an order, becomes the least value.
template <class T>
void order_largest(std::vector<T>& value, int64_t count, std::vector<int64_t>& order) {
  for (T& x : value)
    if (std::isnan(x)) x = -std::numeric_limits<T>::infinity();
  std::iota(order.begin(), order.end(), int64_t{0});
  std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](int64_t a, int64_t b) {
    const T x = value[static_cast<size_t>(a)], y = value[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  });
}

// Leaves the groups that are not chosen without a score.
template <class T>
void keep_groups(const RouterSpec& spec, std::vector<T>& value) {
  if (spec.groups == spec.chosen_groups) return;
  const auto size = static_cast<int64_t>(value.size()) / spec.groups;
  std::vector<T> sums;
  for (auto group = value.begin(); group != value.end(); group += size) {
    std::vector<T> best(group, group + size);
    std::partial_sort(best.begin(), best.begin() + 2, best.end(), std::greater<>());
    sums.push_back(best[0] + best[1]);
  }
  std::vector<int64_t> order(sums.size());
  order_largest(sums, spec.groups, order);
  for (auto group = order.begin() + spec.chosen_groups; group != order.end(); ++group)
    std::fill_n(value.begin() + *group * size, size, -std::numeric_limits<T>::infinity());
}

template <class T>
double dot(int64_t width, const T* a, const T* b) {
  double part[8] = {};
  int64_t i = 0;
  for (; i + 8 <= width; i += 8)
    for (int64_t l = 0; l < 8; ++l)
      part[l] += static_cast<double>(a[i + l]) * static_cast<double>(b[i + l]);
  double sum = 0;
  for (const double p : part) sum += p;
  for (; i < width; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

}  // namespace

template <class T>
void route(const RouterSpec& spec, int64_t rows, const T* logits, const T* bias, int64_t* expert,
           T* weight) {
  const int64_t experts = spec.experts, chosen = spec.chosen;
#pragma omp parallel if (rows * experts > kParallelNumbers)
  {
    RowScores<T> row(experts);
    std::vector<T> choice(static_cast<size_t>(experts));
    std::vector<int64_t> order(static_cast<size_t>(experts));
#pragma omp for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      const T* x = logits + r * experts;
      row.make(spec, x);
      // Exponentials of different logits may be equal: the choice of softmax is by the logits.
      for (size_t i = 0; i < choice.size(); ++i)
        choice[i] = spec.score == RouterScore::kSoftmax ? x[i] : row.score[i];
      if (bias)
        for (size_t i = 0; i < choice.size(); ++i) choice[i] += bias[i];
      keep_groups(spec, choice);
      order_largest(choice, chosen, order);
      int64_t* to = expert + r * chosen;
      std::copy_n(order.begin(), chosen, to);
      std::sort(to, to + chosen);
      const double divisor = row.divisor(spec, to);
      for (int64_t j = 0; j < chosen; ++j)
        weight[r * chosen + j] = static_cast<T>(
            static_cast<double>(row.score[static_cast<size_t>(to[j])]) * spec.scale / divisor);
    }
  }
}

// With q_j = s_j / divisor: d q_j / d s_i has the divisor's part where the divisor has s_i in it.
// Softmax: ds = e dx; sigmoid: ds = s (1 - s) dx.
template <class T>
void route_backward(const RouterSpec& spec, int64_t rows, const T* logits, const int64_t* expert,
                    const T* dweight, T* dlogits) {
  const int64_t experts = spec.experts, chosen = spec.chosen;
  const bool softmax = spec.score == RouterScore::kSoftmax;
#pragma omp parallel if (rows * experts > kParallelNumbers)
  {
    RowScores<T> row(experts);
    std::vector<double> ds(static_cast<size_t>(experts));
#pragma omp for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      row.make(spec, logits + r * experts);
      const int64_t* of = expert + r * chosen;
      const double divisor = row.divisor(spec, of);
      const auto score = [&](int64_t i) {
        return static_cast<double>(row.score[static_cast<size_t>(i)]);
      };
      const auto g = [&](int64_t j) {
        return spec.scale * static_cast<double>(dweight[r * chosen + j]);
      };
      double mean = 0;  // Σ g q
      for (int64_t j = 0; j < chosen; ++j) mean += g(j) * score(of[j]) / divisor;
      const bool all = softmax && !spec.normalize;
      std::fill(ds.begin(), ds.end(), all ? -mean / divisor : 0.0);
      for (int64_t j = 0; j < chosen; ++j)
        ds[static_cast<size_t>(of[j])] = (g(j) - (softmax || spec.normalize ? mean : 0)) / divisor;
      for (int64_t i = 0; i < experts; ++i)
        dlogits[r * experts + i] =
            static_cast<T>(ds[static_cast<size_t>(i)] * score(i) * (softmax ? 1 : 1 - score(i)));
    }
  }
}

template <class T>
void router_probabilities(int64_t rows, int64_t experts, const T* logits, T* p) {
#pragma omp parallel if (rows * experts > kParallelNumbers)
  {
    RowScores<T> row(experts);
#pragma omp for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      row.softmax(logits + r * experts);
      const double sum = row.sum();
      for (int64_t i = 0; i < experts; ++i)
        p[r * experts + i] =
            static_cast<T>(static_cast<double>(row.score[static_cast<size_t>(i)]) / sum);
    }
  }
}

template <class T>
void router_probabilities_backward(int64_t rows, int64_t experts, const T* logits, const T* g,
                                   T* dlogits) {
#pragma omp parallel if (rows * experts > kParallelNumbers)
  {
    RowScores<T> row(experts);
#pragma omp for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      row.softmax(logits + r * experts);
      const double sum = row.sum();
      const auto p = [&](int64_t i) {
        return static_cast<double>(row.score[static_cast<size_t>(i)]) / sum;
      };
      const T* of = g + r * experts;
      double mean = 0;
      for (int64_t i = 0; i < experts; ++i) mean += static_cast<double>(of[i]) * p(i);
      for (int64_t i = 0; i < experts; ++i)
        dlogits[r * experts + i] = static_cast<T>(p(i) * (static_cast<double>(of[i]) - mean));
    }
  }
}

template <class T>
void combine(int64_t rows, int64_t chosen, int64_t width, const T* x, const T* weight,
             const int64_t* place, T* y, bool accumulate) {
  for_each_index(rows, rows * chosen * width > kParallelNumbers, [=](int64_t n) {
    T* to = y + n * width;
    if (!accumulate) std::fill_n(to, width, T(0));
    for (int64_t j = n * chosen; j < (n + 1) * chosen; ++j)
      if (place[j] >= 0)
        row_kernels<T>().add_scaled(width, to, weight[j], x + place[j] * width, to);
  });
}

template <class T>
void combine_backward(int64_t rows, int64_t chosen, int64_t width, const T* x, const T* weight,
                      const int64_t* place, const T* dy, T* dx, T* dweight) {
#pragma omp parallel for schedule(static) if (rows * chosen * width > kParallelNumbers)
  for (int64_t n = 0; n < rows; ++n) {
    const T* g = dy + n * width;
    for (int64_t j = n * chosen; j < (n + 1) * chosen; ++j) {
      if (place[j] < 0) {
        dweight[j] = T(0);
        continue;
      }
      T* to = dx + place[j] * width;
      for (int64_t i = 0; i < width; ++i) to[i] = weight[j] * g[i];
      dweight[j] = static_cast<T>(dot(width, g, x + place[j] * width));
    }
  }
}

#define TEMPER_ROUTING(T)                                                                         \
  template void route(const RouterSpec&, int64_t, const T*, const T*, int64_t*, T*);              \
  template void route_backward(const RouterSpec&, int64_t, const T*, const int64_t*, const T*,    \
                               T*);                                                               \
  template void router_probabilities(int64_t, int64_t, const T*, T*);                             \
  template void router_probabilities_backward(int64_t, int64_t, const T*, const T*, T*);          \
  template void combine(int64_t, int64_t, int64_t, const T*, const T*, const int64_t*, T*, bool); \
  template void combine_backward(int64_t, int64_t, int64_t, const T*, const T*, const int64_t*,   \
                                 const T*, T*, T*);
TEMPER_ROUTING(float)
TEMPER_ROUTING(double)
#undef TEMPER_ROUTING

}  // namespace temper::kernels
