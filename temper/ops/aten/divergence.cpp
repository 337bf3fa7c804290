// Divergences of rows of logits: the numbers of blocks of columns, their sums and the gradient.
#include <ATen/ATen.h>

#include <limits>

#include "temper/ops/aten/aten.h"
#include "temper/ops/aten/common.h"

namespace temper::ops {
namespace aten_impl {
namespace {

// The largest logit of each block, and exp(x - largest).
struct ShiftedBlocks {
  at::Tensor max, e;
};
ShiftedBlocks shifted_blocks(const at::Tensor& block) {
  const at::Tensor max = block.amax(2);
  return {max, (block - max.unsqueeze(2)).exp_()};
}

// One side of [M, blocks, 6] joined: log Σ exp x, and the mean of x - y under its softmax.
struct JoinedSide {
  at::Tensor log_sum_exp, cross;
};
JoinedSide joined_side(const at::Tensor& max, const at::Tensor& sum, const at::Tensor& cross) {
  const at::Tensor largest = max.amax(1), factor = (max - largest.unsqueeze(1)).exp_(),
                   total = (sum * factor).sum(1);
  return {largest + total.log(), (cross * factor).sum(1) / total};
}

// Logarithms of the student's and the teacher's probabilities, and of their mixture.
struct MixtureLogs {
  at::Tensor student, teacher, mixture;
};
MixtureLogs mixture_logs(const at::Tensor& student, const at::Tensor& teacher,
                         const DivergenceSums& sums, double b) {
  const at::Tensor s = student - sums.lse_student.unsqueeze(1),
                   t = teacher - sums.lse_teacher.unsqueeze(1);
  // Where both probabilities are 0 the logarithm stays finite, so that 0 times it is 0.
  const double smallest = student.scalar_type() == at::kDouble
                              ? std::numeric_limits<double>::min()
                              : static_cast<double>(std::numeric_limits<float>::min());
  return {s, t, t.exp().mul_(b).add_(s.exp(), 1 - b).clamp_min_(smallest).log_()};
}

}  // namespace
}  // namespace aten_impl

void AtenBackend::divergence_parts(const at::Tensor& student, const at::Tensor& teacher,
                                   at::Tensor parts) const {
  const aten_impl::BelowAutograd below;
  const std::vector<at::Tensor> own = aten_impl::blocks_of_columns(student),
                                theirs = aten_impl::blocks_of_columns(teacher);
  int64_t first = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    const aten_impl::ShiftedBlocks s = aten_impl::shifted_blocks(own[i]),
                                   t = aten_impl::shifted_blocks(theirs[i]);
    const at::Tensor difference = own[i] - theirs[i];
    parts.narrow(1, first, own[i].size(1))
        .copy_(at::stack({s.max, s.e.sum(2), t.max, t.e.sum(2), (s.e * difference).sum(2),
                          (t.e * difference).sum(2).neg_()},
                         2));
    first += own[i].size(1);
  }
}

DivergenceSums AtenBackend::join_divergence_parts(const at::Tensor& parts,
                                                  DivergenceKind kind) const {
  const aten_impl::BelowAutograd below;
  const at::Tensor p = parts.to(at::kDouble);
  const auto column = [&](int64_t i) { return p.select(2, i); };
  const aten_impl::JoinedSide s = aten_impl::joined_side(column(0), column(1), column(4)),
                              t = aten_impl::joined_side(column(2), column(3), column(5));
  const at::Tensor value = kind == DivergenceKind::kForwardKl
                               ? t.cross - t.log_sum_exp + s.log_sum_exp
                               : s.cross - s.log_sum_exp + t.log_sum_exp;
  const at::ScalarType type = parts.scalar_type();
  return {s.log_sum_exp.to(type), t.log_sum_exp.to(type), value.to(type), {}};
}

void AtenBackend::mixture_parts(const at::Tensor& student, const at::Tensor& teacher,
                                const DivergenceSums& sums, double jsd_beta,
                                at::Tensor parts) const {
  const aten_impl::BelowAutograd below;
  const aten_impl::MixtureLogs logs = aten_impl::mixture_logs(student, teacher, sums, jsd_beta);
  const auto fill = [&](int64_t which, const at::Tensor& log_p) {
    int64_t first = 0;
    for (const at::Tensor& block :
         aten_impl::blocks_of_columns(log_p.exp().mul_(log_p - logs.mixture))) {
      parts.narrow(1, first, block.size(1)).select(2, which).copy_(block.sum(2));
      first += block.size(1);
    }
  };
  fill(0, logs.student);
  fill(1, logs.teacher);
}

void AtenBackend::join_mixture_parts(const at::Tensor& parts, double jsd_beta,
                                     DivergenceSums& sums) const {
  const aten_impl::BelowAutograd below;
  const at::Tensor total = parts.to(at::kDouble).sum(1), student = total.select(1, 0);
  sums.mixture = student.to(parts.scalar_type());
  sums.value = (total.select(1, 1) * jsd_beta + student * (1 - jsd_beta)).to(parts.scalar_type());
}

// With p the student's and q the teacher's distribution, and m = b q + (1 - b) p:
//   KL(q || p): p - q;   KL(p || q): p (log p/q - KL);   jsd: (1 - b) p (log p/m - KL(p || m)).
at::Tensor AtenBackend::divergence_gradient(const DivergenceSpec& spec, const at::Tensor& student,
                                            const at::Tensor& teacher, const DivergenceSums& sums,
                                            const at::Tensor& g) const {
  const aten_impl::BelowAutograd below;
  const at::Tensor by = g.unsqueeze(1);
  if (spec.kind == DivergenceKind::kJsd) {
    const aten_impl::MixtureLogs logs =
        aten_impl::mixture_logs(student, teacher, sums, spec.jsd_beta);
    return (logs.student - logs.mixture)
        .sub_(sums.mixture.unsqueeze(1))
        .mul_(logs.student.exp())
        .mul_(by * (1 - spec.jsd_beta));
  }
  const at::Tensor s = student - sums.lse_student.unsqueeze(1),
                   t = teacher - sums.lse_teacher.unsqueeze(1);
  if (spec.kind == DivergenceKind::kForwardKl) return s.exp().sub_(t.exp()).mul_(by);
  return (s - t).sub_(sums.value.unsqueeze(1)).mul_(s.exp()).mul_(by);
}

}  // namespace temper::ops
