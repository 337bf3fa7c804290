#include "temper/ops/logits/aligned_divergence.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "temper/base/error.h"
#include "temper/base/exact_math.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/layers/embedding.h"
#include "temper/ops/logits/head_blocks.h"

namespace temper::ops {
namespace {

constexpr double kLeastProbability = 1e-8;
constexpr int64_t kChunkLogits = int64_t{1} << 24;  // of one model

double squared(double x) { return x * x; }

// The log-probabilities of a span's last token: those of its tokens before it added. Empty where
// the logits are no numbers.
template <class T>
std::vector<double> log_probabilities(const T* logits, int64_t size, double temperature,
                                      double before) {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t j = 0; j < size; ++j) largest = std::max(largest, static_cast<double>(logits[j]));
  for (int64_t j = 0; j < size; ++j)
    sum += exact::quick_exp((static_cast<double>(logits[j]) - largest) / temperature);
  const double shift = largest / temperature + exact::quick_log(sum) - before;
  if (!std::isfinite(shift)) return {};
  std::vector<double> out(static_cast<size_t>(size));
  for (size_t j = 0; j < out.size(); ++j)
    out[j] = static_cast<double>(logits[j]) / temperature - shift;
  return out;
}

// A matched token's summand, and its derivative by the student's log-probability.
std::pair<double, double> matched(const AlignedSpec& spec, double student, double teacher) {
  const double least = exact::quick_log(kLeastProbability), b = spec.jsd_beta;
  const double p_log = std::max(student, least), q_log = std::max(teacher, least);
  const double p = exact::quick_exp(p_log), q = exact::quick_exp(q_log),
               moves = student < least ? 0 : 1;
  switch (spec.kind) {
    case DivergenceKind::kForwardKl:
      return {q * (q_log - p_log), -q * moves};
    case DivergenceKind::kReverseKl:
      return {p * (p_log - q_log), p * (p_log - q_log + 1) * moves};
    case DivergenceKind::kJsd:
      break;
  }
  const double m_log = exact::quick_log(b * q + (1 - b) * p);
  return {b * q * (q_log - m_log) + (1 - b) * p * (p_log - m_log),
          (1 - b) * p * (p_log - m_log) * moves};
}

// Ids by falling log-probability, of equals the lower first.
std::vector<int32_t> sorted(const std::vector<int32_t>& ids, const std::vector<double>& logp) {
  std::vector<int32_t> out = ids;
  std::sort(out.begin(), out.end(), [&](int32_t a, int32_t b) {
    const double left = logp[static_cast<size_t>(a)], right = logp[static_cast<size_t>(b)];
    return left != right ? left > right : a < b;
  });
  return out;
}

// The divergence of one span; `slope`, where it is asked for, becomes its derivative by each of
// the student's log-probabilities.
double of_span(const AlignedSpec& spec, const std::vector<double>& student,
               const std::vector<double>& teacher, std::vector<double>* slope) {
  const VocabularyMatch& match = *spec.match;
  const double w = static_cast<double>(match.teacher.size()) /
                   static_cast<double>(std::max<size_t>(teacher.size(), 1));
  double value = 0;
  for (size_t i = 0; i < match.student.size(); ++i) {
    const size_t s = static_cast<size_t>(match.student[i]);
    const auto [summand, derivative] =
        matched(spec, student[s], teacher[static_cast<size_t>(match.teacher[i])]);
    value += w * summand;
    if (slope) (*slope)[s] = w * derivative;
  }
  if (match.student_rest.empty() || match.teacher_rest.empty()) return value;
  const std::vector<int32_t> own = sorted(match.student_rest, student),
                             other = sorted(match.teacher_rest, teacher);
  for (size_t r = 0; r < std::max(own.size(), other.size()); ++r) {
    const double q =
        r < other.size() ? exact::quick_exp(teacher[static_cast<size_t>(other[r])]) : 0;
    const double p = r < own.size() ? exact::quick_exp(student[static_cast<size_t>(own[r])]) : 0;
    value += (1 - w) * std::abs(p - q);
    if (slope && r < own.size())
      (*slope)[static_cast<size_t>(own[r])] = (1 - w) * p * (p > q ? 1 : p < q ? -1 : 0);
  }
  return value;
}

struct Aligned {
  AlignedSpec spec;
  at::Tensor hidden;  // of the spans' last tokens [G, H]
  Weight weight;
  at::Tensor before;          // [G]: log-probabilities of those before the last
  TeacherHead teacher;        // hidden of the spans' last tokens [G, H_t]
  at::Tensor teacher_before;  // [G], double, on the host
};

// Some spans' rows of both models' logits, in the host's memory.
struct Chunk {
  int64_t first, rows;
  at::Tensor student, teacher;  // [rows, vocabulary]
};

at::Tensor all_logits(const HeadSpec& spec, const at::Tensor& hidden, const Weight& weight) {
  HeadSpec plain;
  plain.scale = spec.scale;
  plain.soft_cap = spec.soft_cap;
  at::Tensor out = at::empty({hidden.size(0), weight.out()}, hidden.options());
  each_block(weight, hidden.size(0), [&](int64_t first, const Weight& part) {
    out.narrow(1, first, part.out()).copy_(tile_logits(plain, hidden, part));
  });
  return out.cpu();
}

template <class Body>
void each_chunk(const Aligned& a, Body body) {
  const int64_t widest = std::max(a.weight.out(), a.teacher.weight.out());
  const int64_t most = std::clamp<int64_t>(kChunkLogits / widest, 1, 256);
  for (int64_t first = 0; first < a.hidden.size(0); first += most) {
    const int64_t rows = std::min(most, a.hidden.size(0) - first);
    body(Chunk{
        first, rows, all_logits(a.spec.student, a.hidden.narrow(0, first, rows), a.weight),
        all_logits(a.teacher.spec, a.teacher.hidden.narrow(0, first, rows), a.teacher.weight)});
  }
}

// The divergences of a chunk's spans. Where `gradient` is given, the student's logits become its
// values' derivatives times `scale`, and `before` gets those by the tokens before the last.
template <class T>
void sweep_chunk(const Aligned& a, const Chunk& c, const double* before, double* value,
                 const double* scale, double* gradient_before) {
  const int64_t own = c.student.size(1), other = c.teacher.size(1);
  T* const logits = c.student.mutable_data_ptr<T>();
  const auto* const theirs = c.teacher.const_data_ptr<T>();
  const double *before_teacher = a.teacher_before.const_data_ptr<double>() + c.first,
               temperature = a.spec.temperature;
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < c.rows; ++r) {
    T* const x = logits + r * own;
    const std::vector<double> student = log_probabilities(x, own, temperature, before[r]),
                              teacher = log_probabilities(theirs + r * other, other, temperature,
                                                          before_teacher[r]);
    const bool finite = !student.empty() && !teacher.empty();
    std::vector<double> slope(scale && finite ? student.size() : 0);
    const double found = finite ? of_span(a.spec, student, teacher, scale ? &slope : nullptr)
                                : std::numeric_limits<double>::quiet_NaN();
    if (value) value[r] = found;
    if (!scale) continue;
    const double sum = finite ? std::accumulate(slope.begin(), slope.end(), 0.0) : found;
    gradient_before[r] = scale[r] * sum;
    for (int64_t j = 0; j < own; ++j) {
      const auto i = static_cast<size_t>(j);
      const double dx =
          finite ? (slope[i] - exact::quick_exp(student[i] - before[r]) * sum) / temperature
                 : found;
      const double cap = a.spec.student.soft_cap,
                   bend = cap > 0 ? 1 - squared(static_cast<double>(x[j]) / cap) : 1;
      x[j] = static_cast<T>(scale[r] * dx * bend * a.spec.student.scale);
    }
  }
}

void sweep(const Aligned& a, const Chunk& c, const double* before, double* value,
           const double* scale = nullptr, double* gradient_before = nullptr) {
  if (c.student.scalar_type() == at::kDouble)
    sweep_chunk<double>(a, c, before, value, scale, gradient_before);
  else
    sweep_chunk<float>(a, c, before, value, scale, gradient_before);
}

at::Tensor doubles(const at::Tensor& x) {
  return x.detach().to(at::kCPU, at::kDouble).contiguous();
}

at::Tensor aligned_values(const Aligned& a) {
  const at::Tensor own = doubles(a.before), out = at::empty_like(own);
  each_chunk(a, [&](const Chunk& c) {
    sweep(a, c, own.const_data_ptr<double>() + c.first, out.mutable_data_ptr<double>() + c.first);
  });
  return out.to(a.hidden.options());
}

// Of hidden, the weight's values, before and the weight's trained rows.
Tensors aligned_gradients(const Aligned& a, const Gradients& d) {
  const at::Tensor before = doubles(a.before), scale = doubles(d[0]),
                   dbefore = at::empty_like(before);
  at::Tensor dhidden, dvalues, drows;
  if (d.wanted(0)) dhidden = at::zeros_like(a.hidden);
  if (d.wanted(1)) dvalues = at::zeros_like(a.weight.values);
  if (d.wanted(3)) drows = at::zeros_like(a.weight.trained_values());
  each_chunk(a, [&](const Chunk& c) {
    sweep(a, c, before.const_data_ptr<double>() + c.first, nullptr,
          scale.const_data_ptr<double>() + c.first, dbefore.mutable_data_ptr<double>() + c.first);
    const at::Tensor dx = c.student.to(a.hidden.device()), x = a.hidden.narrow(0, c.first, c.rows);
    each_block(a.weight, c.rows, [&](int64_t first, const Weight& part) {
      const at::Tensor block = dx.narrow(1, first, part.out()).contiguous();
      if (dhidden.defined()) {
        at::Tensor to = dhidden.narrow(0, c.first, c.rows);
        multiply_transposed(block, part, to, true);
      }
      if (dvalues.defined()) {
        at::Tensor to = dvalues.narrow(0, first, part.out());
        weight_gradient(part, block, x, to, true);
      }
      trained_gradient(a.weight, first, block, x, drows);
    });
  });
  return {dhidden, dvalues, dbefore.to(a.before.options()), drows};
}

// The logarithm of the probability of each span's tokens before its last, [G].
at::Tensor before_last(HeadSpec spec, double temperature, const at::Tensor& hidden,
                       const Weight& weight, const SpanSide& side) {
  const SpanTokens& tokens = side.tokens;
  const at::Tensor none = at::zeros({static_cast<int64_t>(tokens.last.size())}, hidden.options());
  if (tokens.before.empty()) return none;
  spec.temperature = temperature;
  spec.entropy = spec.log_sum_exp = false;
  std::vector<int64_t> target;
  for (const int64_t i : tokens.before) target.push_back(side.target.at(static_cast<size_t>(i)));
  const at::Tensor logp = token_logp(spec, select_rows(hidden, tokens.before), weight, target).logp;
  return none.index_add(0, indices(tokens.span_of_before, hidden),
                        logp.clamp_min(exact::quick_log(kLeastProbability)));
}

}  // namespace

void VocabularyMatch::complete(int64_t student_size, int64_t teacher_size) {
  const auto rest = [](const std::vector<int32_t>& used, int64_t size) {
    std::vector<bool> seen(static_cast<size_t>(size));
    for (const int32_t id : used) seen.at(static_cast<size_t>(id)) = true;
    std::vector<int32_t> out;
    for (int32_t id = 0; id < size; ++id)
      if (!seen[static_cast<size_t>(id)]) out.push_back(id);
    return out;
  };
  student_rest = rest(student, student_size);
  teacher_rest = rest(teacher, teacher_size);
}

at::Tensor aligned_divergence(const AlignedSpec& spec, const at::Tensor& hidden,
                              const Weight& weight, const SpanSide& student,
                              const TeacherHead& teacher, const SpanSide& of_teacher) {
  check(student.tokens.last.size() == of_teacher.tokens.last.size() &&
            static_cast<int64_t>(spec.match->student.size() + spec.match->student_rest.size()) ==
                weight.out() &&
            static_cast<int64_t>(spec.match->teacher.size() + spec.match->teacher_rest.size()) ==
                teacher.weight.out(),
        "aligned_divergence: spans ", student.tokens.last.size(), " and ",
        of_teacher.tokens.last.size(), ", vocabularies ", weight.out(), " and ",
        teacher.weight.out());
  const at::Tensor before = before_last(spec.student, spec.temperature, hidden, weight, student);
  Aligned a{.spec = spec,
            .hidden = select_rows(hidden, student.tokens.last).contiguous(),
            .weight = weight,
            .before = before,
            .teacher = {teacher.spec, {}, teacher.weight},
            .teacher_before = {}};
  a.weight.panels.reset();
  {
    const at::NoGradGuard constant;
    a.teacher.hidden = select_rows(teacher.hidden, of_teacher.tokens.last).contiguous();
    a.teacher_before = doubles(
        before_last(teacher.spec, spec.temperature, teacher.hidden, teacher.weight, of_teacher));
  }
  const Tensors inputs{a.hidden, a.weight.values, a.before, a.weight.trained_values()};
  Recording call(inputs);
  call.reads(inputs);
  return call.output(aligned_values(a),
                     [a](const Gradients& d) { return aligned_gradients(a, d); });
}

}  // namespace temper::ops
