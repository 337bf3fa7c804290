// Sweeps over the vocabulary, on temper/ops/native/kernels/rows.h and divergence.h.
#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/exact_math.h"
#include "temper/ops/native/kernels/divergence.h"
#include "temper/ops/native/kernels/rows.h"
#include "temper/ops/native/native.h"
#include "temper/ops/tensor_data.h"

namespace temper::ops {
namespace {
using kernels::divergence_kernels;
using kernels::DivergencePart;
using kernels::MixturePart;
using kernels::row_kernels;
using kernels::SoftmaxPart;

static_assert(kLogitsBlock == kernels::kVocabularyBlock);

// The first of a row's parts, which lie side by side; rows are parts.stride(0) numbers apart.
template <class Part, class T>
Part* parts_data(const at::Tensor& parts) {
  check(parts.numel() == 0 || (parts.stride(2) == 1 && parts.stride(1) == parts.size(2) &&
                               parts.stride(0) % parts.size(2) == 0),
        "parts of rows lie side by side");
  return reinterpret_cast<Part*>(parts.mutable_data_ptr<T>());
}
int64_t parts_stride(const at::Tensor& parts) { return parts.stride(0) / parts.size(2); }

template <class T>
kernels::LogitRows<T> logit_rows(const at::Tensor& student, const at::Tensor& teacher,
                                 const DivergenceSums& sums) {
  return {student.size(0),
          student.size(1),
          values<T>(student),
          values<T>(teacher),
          values<T>(sums.lse_student),
          values<T>(sums.lse_teacher)};
}

// The likeliest first, of equals the lower id.
template <class T>
struct Candidate {
  T logit;
  int64_t id;
  static bool before(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }
};

// `found`, at most k, sorted, becomes the k likeliest of itself and of the logits x.
template <class T>
void join_row(std::vector<Candidate<T>>& found, const T* x, int64_t count, int64_t first,
              size_t k) {
  // A heap with the least likely in front.
  std::make_heap(found.begin(), found.end(), Candidate<T>::before);
  for (int64_t j = 0; j < count; ++j) {
    const Candidate<T> entry{x[j], first + j};
    if (found.size() == k && !Candidate<T>::before(entry, found.front())) continue;
    if (found.size() == k) {
      std::pop_heap(found.begin(), found.end(), Candidate<T>::before);
      found.pop_back();
    }
    found.push_back(entry);
    std::push_heap(found.begin(), found.end(), Candidate<T>::before);
  }
  std::sort(found.begin(), found.end(), Candidate<T>::before);
}

// Blocks of a row in ascending order, in double.
template <class T>
void join_row(const DivergencePart<T>* p, int64_t blocks, DivergenceKind kind, int64_t r,
              DivergenceSums& sums) {
  double max_s = p[0].max_s, max_t = p[0].max_t;
  for (int64_t b = 1; b < blocks; ++b) {
    max_s = std::max<double>(max_s, p[b].max_s);
    max_t = std::max<double>(max_t, p[b].max_t);
  }
  double sum_s = 0, sum_t = 0, cross_s = 0, cross_t = 0;
  for (int64_t b = 0; b < blocks; ++b) {
    const double fs = exact::quick_exp(p[b].max_s - max_s),
                 ft = exact::quick_exp(p[b].max_t - max_t);
    sum_s += p[b].sum_s * fs;
    cross_s += p[b].cross_s * fs;
    sum_t += p[b].sum_t * ft;
    cross_t += p[b].cross_t * ft;
  }
  const double lse_s = max_s + exact::quick_log(sum_s), lse_t = max_t + exact::quick_log(sum_t);
  const double forward = cross_t / sum_t - lse_t + lse_s, reverse = cross_s / sum_s - lse_s + lse_t;
  sums.lse_student.mutable_data_ptr<T>()[r] = static_cast<T>(lse_s);
  sums.lse_teacher.mutable_data_ptr<T>()[r] = static_cast<T>(lse_t);
  sums.value.mutable_data_ptr<T>()[r] =
      static_cast<T>(kind == DivergenceKind::kForwardKl ? forward : reverse);
}

}  // namespace

// 256 x 2048 logits are 2 MB.
HeadTileSize NativeBackend::head_tile() const { return {256, 4 * kernels::kVocabularyBlock}; }

void NativeBackend::finish_logits(const HeadSpec& spec, at::Tensor& x) const {
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    T* data = x.mutable_data_ptr<T>();
    const T scale = static_cast<T>(spec.scale);
    for (int64_t i = 0; scale != 1 && i < x.numel(); ++i) data[i] *= scale;
    if (spec.soft_cap > 0)
      row_kernels<T>().soft_cap(x.numel(), static_cast<T>(spec.soft_cap), data);
    if (spec.temperature == 1) return;
    const T temperature = static_cast<T>(spec.temperature);
    for (int64_t i = 0; i < x.numel(); ++i) data[i] /= temperature;
  });
}

void NativeBackend::softmax_parts(const at::Tensor& x, at::Tensor parts) const {
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    row_kernels<T>().softmax_parts(x.size(0), x.size(1), values<T>(x), x.size(1),
                                   parts_data<SoftmaxPart<T>, T>(parts), parts_stride(parts));
  });
}

SoftmaxSums NativeBackend::join_softmax_parts(const at::Tensor& parts) const {
  const int64_t m = parts.size(0);
  SoftmaxSums sums{at::empty({m}, parts.options()), at::empty({m}, parts.options())};
  dispatch(parts, [&](auto zero) {
    using T = decltype(zero);
    row_kernels<T>().join_parts(m, parts.size(1), parts_data<SoftmaxPart<T>, T>(parts),
                                sums.log_sum_exp.mutable_data_ptr<T>(),
                                sums.entropy.mutable_data_ptr<T>());
  });
  return sums;
}

void NativeBackend::softmax_gradient(at::Tensor& x, int64_t first, const at::Tensor& target,
                                     const SoftmaxSums& sums, const at::Tensor& g,
                                     const at::Tensor& h) const {
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    row_kernels<T>().softmax_gradient(
        x.size(0), x.size(1), first, values<int64_t>(target), values<T>(sums.log_sum_exp),
        values<T>(sums.entropy), values<T>(g), values<T>(h), x.mutable_data_ptr<T>(), x.size(1));
  });
}

namespace {

// Calls body(i, place) for the entries of id [rows, k] that are among a tile's `columns` from
// `first` on: the i-th of id stands at `place` of the tile [rows, columns].
template <class Body>
void each_entry(const at::Tensor& id, int64_t first, int64_t columns, Body body) {
  const int64_t* ids = values<int64_t>(id);
  const int64_t k = id.size(1);
  for (int64_t i = 0; i < id.numel(); ++i) {
    const int64_t column = ids[i] - first;
    if (column >= 0 && column < columns) body(i, i / k * columns + column);
  }
}

}  // namespace

void NativeBackend::take_entries(const at::Tensor& x, int64_t first, const at::Tensor& id,
                                 at::Tensor to) const {
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    const T* from = values<T>(x);
    T* out = to.mutable_data_ptr<T>();
    each_entry(id, first, x.size(1), [&](int64_t i, int64_t place) { out[i] = from[place]; });
  });
}

void NativeBackend::add_to_entries(at::Tensor& x, int64_t first, const at::Tensor& id,
                                   const at::Tensor& value) const {
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    const T* added = values<T>(value);
    T* data = x.mutable_data_ptr<T>();
    each_entry(id, first, x.size(1), [&](int64_t i, int64_t place) { data[place] += added[i]; });
  });
}

void NativeBackend::join_top(TopTokens& top, const at::Tensor& x, int64_t first, int64_t k) const {
  const int64_t m = x.size(0), had = top.id.size(1), has = std::min(k, had + x.size(1));
  TopTokens joined{at::empty({m, has}, at::kLong), at::empty({m, has}, x.options())};
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    const int64_t* old_id = values<int64_t>(top.id);
    const T *old_logit = values<T>(top.logit), *data = values<T>(x);
    int64_t* id = joined.id.mutable_data_ptr<int64_t>();
    T* logit = joined.logit.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < m; ++r) {
      std::vector<Candidate<T>> found;
      found.reserve(static_cast<size_t>(k));
      for (int64_t j = 0; j < had; ++j)
        found.push_back({old_logit[r * had + j], old_id[r * had + j]});
      join_row(found, data + r * x.size(1), x.size(1), first, static_cast<size_t>(k));
      for (int64_t j = 0; j < has; ++j) {
        id[r * has + j] = found[static_cast<size_t>(j)].id;
        logit[r * has + j] = found[static_cast<size_t>(j)].logit;
      }
    }
  });
  top = joined;
}

void NativeBackend::divergence_parts(const at::Tensor& student, const at::Tensor& teacher,
                                     at::Tensor parts) const {
  dispatch(student, [&](auto zero) {
    using T = decltype(zero);
    divergence_kernels<T>().parts(logit_rows<T>(student, teacher, {}),
                                  parts_data<DivergencePart<T>, T>(parts), parts_stride(parts));
  });
}

DivergenceSums NativeBackend::join_divergence_parts(const at::Tensor& parts,
                                                    DivergenceKind kind) const {
  const int64_t m = parts.size(0), blocks = parts.size(1);
  const auto per_row = [&] { return at::empty({m}, parts.options()); };
  DivergenceSums sums{per_row(), per_row(), per_row(), per_row()};
  dispatch(parts, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t r = 0; r < m; ++r)
      join_row(parts_data<DivergencePart<T>, T>(parts) + r * blocks, blocks, kind, r, sums);
  });
  return sums;
}

void NativeBackend::mixture_parts(const at::Tensor& student, const at::Tensor& teacher,
                                  const DivergenceSums& sums, double jsd_beta,
                                  at::Tensor parts) const {
  dispatch(student, [&](auto zero) {
    using T = decltype(zero);
    divergence_kernels<T>().mixture_parts(
        logit_rows<T>(student, teacher, sums), static_cast<T>(jsd_beta),
        parts_data<MixturePart<T>, T>(parts), parts_stride(parts));
  });
}

void NativeBackend::join_mixture_parts(const at::Tensor& parts, double jsd_beta,
                                       DivergenceSums& sums) const {
  const int64_t m = parts.size(0), blocks = parts.size(1);
  dispatch(parts, [&](auto zero) {
    using T = decltype(zero);
    const MixturePart<T>* p = parts_data<MixturePart<T>, T>(parts);
    for (int64_t r = 0; r < m; ++r) {
      double student = 0, teacher = 0;
      for (int64_t i = r * blocks; i < (r + 1) * blocks; ++i) {
        student += p[i].student;
        teacher += p[i].teacher;
      }
      sums.mixture.mutable_data_ptr<T>()[r] = static_cast<T>(student);
      sums.value.mutable_data_ptr<T>()[r] =
          static_cast<T>(jsd_beta * teacher + (1 - jsd_beta) * student);
    }
  });
}

at::Tensor NativeBackend::divergence_gradient(const DivergenceSpec& spec, const at::Tensor& student,
                                              const at::Tensor& teacher, const DivergenceSums& sums,
                                              const at::Tensor& g) const {
  at::Tensor out = at::empty_like(student);
  const bool jsd = spec.kind == DivergenceKind::kJsd;
  dispatch(student, [&](auto zero) {
    using T = decltype(zero);
    divergence_kernels<T>().gradient(
        logit_rows<T>(student, teacher, sums), spec.kind, static_cast<T>(spec.jsd_beta),
        values<T>(jsd ? sums.mixture : sums.value), values<T>(g), out.mutable_data_ptr<T>());
  });
  return out;
}

}  // namespace temper::ops
