// What divergences keep of each row, and how blocks of the vocabulary are joined.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "temper/ops/autograd.h"
#include "temper/ops/cpu/divergence.h"
#include "temper/ops/cpu/rows.h"

namespace temper::ops {

inline int64_t blocks_of(int64_t count) {
  return (count + kernels::kVocabularyBlock - 1) / kernels::kVocabularyBlock;
}

// What the backward pass needs of each row, [M].
struct RowSums {
  at::Tensor lse_student, lse_teacher, value, mixture;  // mixture: KL(student || m)
};

template <class T>
kernels::LogitRows<T> logit_rows(const at::Tensor& student, const at::Tensor& teacher,
                                 const RowSums& sums, int64_t row) {
  return {student.size(0),
          student.size(1),
          values<T>(student),
          values<T>(teacher),
          sums.lse_student.defined() ? values<T>(sums.lse_student) + row : nullptr,
          sums.lse_teacher.defined() ? values<T>(sums.lse_teacher) + row : nullptr};
}

// Blocks of a row in ascending order, in double.
template <class T>
void join(const std::vector<kernels::DivergencePart<T>>& parts, int64_t m, DivergenceKind kind,
          RowSums& sums) {
  const int64_t blocks = m > 0 ? static_cast<int64_t>(parts.size()) / m : 0;
  for (int64_t r = 0; r < m; ++r) {
    const kernels::DivergencePart<T>* p = parts.data() + r * blocks;
    double max_s = p[0].max_s, max_t = p[0].max_t;
    for (int64_t b = 1; b < blocks; ++b) {
      max_s = std::max<double>(max_s, p[b].max_s);
      max_t = std::max<double>(max_t, p[b].max_t);
    }
    double sum_s = 0, sum_t = 0, cross_s = 0, cross_t = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      const double fs = std::exp(p[b].max_s - max_s), ft = std::exp(p[b].max_t - max_t);
      sum_s += p[b].sum_s * fs;
      cross_s += p[b].cross_s * fs;
      sum_t += p[b].sum_t * ft;
      cross_t += p[b].cross_t * ft;
    }
    const double lse_s = max_s + std::log(sum_s), lse_t = max_t + std::log(sum_t);
    const double forward = cross_t / sum_t - lse_t + lse_s,
                 reverse = cross_s / sum_s - lse_s + lse_t;
    sums.lse_student.mutable_data_ptr<T>()[r] = static_cast<T>(lse_s);
    sums.lse_teacher.mutable_data_ptr<T>()[r] = static_cast<T>(lse_t);
    sums.value.mutable_data_ptr<T>()[r] =
        static_cast<T>(kind == DivergenceKind::kForwardKl ? forward : reverse);
  }
}

template <class T>
void join(const std::vector<kernels::MixturePart<T>>& parts, int64_t m, double b, RowSums& sums) {
  const int64_t blocks = m > 0 ? static_cast<int64_t>(parts.size()) / m : 0;
  for (int64_t r = 0; r < m; ++r) {
    double student = 0, teacher = 0;
    for (int64_t i = 0; i < blocks; ++i) {
      student += parts[static_cast<size_t>(r * blocks + i)].student;
      teacher += parts[static_cast<size_t>(r * blocks + i)].teacher;
    }
    sums.mixture.mutable_data_ptr<T>()[r] = static_cast<T>(student);
    sums.value.mutable_data_ptr<T>()[r] = static_cast<T>(b * teacher + (1 - b) * student);
  }
}

}  // namespace temper::ops
