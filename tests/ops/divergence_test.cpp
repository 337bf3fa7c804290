#include "temper/ops/logits/divergence.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>

#include "temper/base/error.h"
#include "tests/ops/distance.h"

using namespace temper;
using ops::DivergenceKind;

namespace {

struct Case {
  DivergenceKind kind = DivergenceKind::kForwardKl;
  double temperature = 1, cap = 0, teacher_cap = 0, jsd_beta = 0.5;
  int64_t top_k = 0;
  double scale = 1;  // of the student's logits
};

struct Models {
  at::Tensor hidden, weight, teacher_hidden, teacher_weight, g, y;
  std::vector<int64_t> target;
  Models(int64_t m, int64_t vocabulary, at::ScalarType dtype) {
    const auto random = [&](std::vector<int64_t> shape, double scale) {
      return (at::randn(shape, at::kDouble) * scale).to(dtype);
    };
    at::manual_seed(7);
    hidden = random({m, 7}, 1).requires_grad_(true);
    weight = random({vocabulary, 7}, 0.9).requires_grad_(true);
    teacher_hidden = random({m, 11}, 1);
    teacher_weight = random({vocabulary, 11}, 0.8);
    g = random({m}, 1);
    y = random({m}, 1);
    for (int64_t i = 0; i < m; ++i) target.push_back((i * 37 + 5) % vocabulary);
  }
};

ops::DivergenceSpec spec_of(const Case& c) {
  return {c.kind, c.jsd_beta, c.temperature, c.top_k, {.scale = c.scale, .soft_cap = c.cap}};
}

ops::TeacherHead capped_teacher(double cap, const Models& m) {
  ops::TeacherHead teacher;
  teacher.spec.soft_cap = cap;
  teacher.hidden = m.teacher_hidden;
  teacher.weight = m.teacher_weight;
  return teacher;
}

ops::Divergence ours(const Case& c, const Models& m) {
  const ops::TeacherHead teacher = capped_teacher(c.teacher_cap, m);
  return ops::divergence(spec_of(c), m.hidden, m.weight, teacher, m.target);
}

// The formulas as they are written, on whole logits.
ops::Divergence naive(const Case& c, const Models& m) {
  const auto capped = [](const at::Tensor& x, double cap) {
    return cap > 0 ? cap * (x / cap).tanh() : x;
  };
  const at::Tensor x = capped(c.scale * m.hidden.matmul(m.weight.t()), c.cap);
  at::Tensor s = x / c.temperature;
  at::Tensor t = capped(m.teacher_hidden.matmul(m.teacher_weight.t()), c.teacher_cap);
  t = t / c.temperature;
  if (c.top_k > 0) {
    const at::Tensor id = std::get<1>(t.topk(c.top_k, 1));
    s = s.gather(1, id);
    t = t.gather(1, id);
  }
  const at::Tensor p = s.log_softmax(1), q = t.log_softmax(1);
  const auto kl = [](const at::Tensor& a, const at::Tensor& b) {
    return (a.exp() * (a - b)).sum(1);
  };
  at::Tensor value;
  if (c.kind == DivergenceKind::kForwardKl) value = kl(q, p);
  if (c.kind == DivergenceKind::kReverseKl) value = kl(p, q);
  if (c.kind == DivergenceKind::kJsd) {
    const at::Tensor mix = (c.jsd_beta * q.exp() + (1 - c.jsd_beta) * p.exp()).log();
    value = c.jsd_beta * kl(q, mix) + (1 - c.jsd_beta) * kl(p, mix);
  }
  const at::Tensor target = at::tensor(m.target, at::kLong).unsqueeze(1);
  return {value, x.log_softmax(1).gather(1, target).squeeze(1)};
}

std::vector<at::Tensor> gradients(const ops::Divergence& d, const Models& m) {
  return torch::autograd::grad({d.value, d.logp}, {m.hidden, m.weight}, {m.g, m.y});
}

const std::vector<Case> kDivergences{
    {.kind = DivergenceKind::kForwardKl},
    {.kind = DivergenceKind::kForwardKl, .temperature = 2.5, .cap = 3, .teacher_cap = 2},
    {.kind = DivergenceKind::kReverseKl, .temperature = 0.7, .cap = 4, .scale = 1.6},
    {.kind = DivergenceKind::kReverseKl, .top_k = 5},
    {.kind = DivergenceKind::kJsd, .jsd_beta = 0.3},
    {.kind = DivergenceKind::kJsd, .temperature = 3, .teacher_cap = 5, .jsd_beta = 0.9},
    {.kind = DivergenceKind::kJsd, .temperature = 2, .cap = 3, .top_k = 9},
    {.kind = DivergenceKind::kForwardKl, .temperature = 2, .top_k = 3, .scale = 0.4},
};

}  // namespace

TEST_CASE("divergences and gradients are those of the formulas on whole logits") {
  for (const int64_t vocabulary : {13, 5001}) {  // one block of columns, and two
    const Models m(9, vocabulary, at::kDouble);
    for (const Case& c : kDivergences) {
      CAPTURE(static_cast<int>(c.kind));
      CAPTURE(c.temperature);
      CAPTURE(c.top_k);
      const ops::Divergence a = ours(c, m), b = naive(c, m);
      CHECK(distance(a.value, b.value) < 1e-11);
      CHECK(distance(a.logp, b.logp) < 1e-11);
      const std::vector<at::Tensor> da = gradients(a, m), db = gradients(b, m);
      CHECK(distance(da[0], db[0]) < 1e-11);
      CHECK(distance(da[1], db[1]) < 1e-11);
    }
  }
}

TEST_CASE("float32 is near float64, also where the models nearly agree") {
  const Models exact(700, 5001, at::kDouble);
  Models m(700, 5001, at::kFloat);
  for (const Case& c : kDivergences) {
    const ops::Divergence a = ours(c, m), b = naive(c, exact);
    CHECK(distance(a.value, b.value) < 1e-5);
    const std::vector<at::Tensor> da = gradients(a, m), db = gradients(b, exact);
    CHECK(distance(da[0], db[0]) < 1e-4);
    CHECK(distance(da[1], db[1]) < 2e-4);
  }
  m.teacher_hidden = m.hidden.detach();
  m.teacher_weight = m.weight.detach();
  for (const Case& c : kDivergences)
    if (c.cap == c.teacher_cap && c.scale == 1)
      CHECK(ours(c, m).value.abs().max().item<float>() < 1e-6);
}

TEST_CASE("a row's divergence does not depend on the rows beside it" *
          doctest::test_suite("exact")) {
  const Models m(700, 1201, at::kFloat);
  for (const Case& c : kDivergences) {
    const ops::Divergence all = ours(c, m);
    Models part = m;
    part.hidden = m.hidden.detach().narrow(0, 640, 3).contiguous();
    part.teacher_hidden = m.teacher_hidden.narrow(0, 640, 3).contiguous();
    part.target = {m.target.begin() + 640, m.target.begin() + 643};
    const ops::Divergence few = ours(c, part);
    CHECK(few.value.equal(all.value.detach().narrow(0, 640, 3)));
    CHECK(few.logp.equal(all.logp.detach().narrow(0, 640, 3)));
  }
}

TEST_CASE("logp is token_logp's, bit for bit") {
  const Models m(20, 1201, at::kFloat);
  const ops::Divergence d = ours({.temperature = 2, .cap = 3}, m);
  const at::Tensor logp =
      ops::token_logp({.soft_cap = 3}, m.hidden.detach(), m.weight.detach(), m.target).logp;
  CHECK(d.logp.detach().equal(logp));
}

TEST_CASE("a teacher's recorded tokens give what the teacher gives") {
  const Models m(9, 1201, at::kDouble);
  const ops::TeacherHead teacher = capped_teacher(2, m);
  const ops::TopTokens top = ops::top_tokens(teacher, 6);
  const at::Tensor logits = 2 * (m.teacher_hidden.matmul(m.teacher_weight.t()) / 2).tanh();
  const auto [logp, id] = logits.log_softmax(1).topk(6, 1);
  CHECK(distance(top.logit, logp) < 1e-12);
  CHECK(top.id.equal(id));
  for (Case c : kDivergences) {
    c.top_k = 6;
    c.teacher_cap = 2;
    const ops::Divergence recorded = ops::divergence(spec_of(c), m.hidden, m.weight, top, m.target);
    CHECK(distance(recorded.value, ours(c, m).value) < 1e-12);
    const std::vector<at::Tensor> a = gradients(recorded, m), b = gradients(ours(c, m), m);
    CHECK(distance(a[0], b[0]) < 1e-12);
    CHECK(distance(a[1], b[1]) < 1e-12);
  }
}

TEST_CASE("no target, and what is refused") {
  Models m(0, 13, at::kFloat);
  for (const Case& c : kDivergences) CHECK(ours(c, m).value.numel() == 0);
  Models some(2, 13, at::kFloat);
  some.target[1] = 13;
  CHECK_THROWS_AS(ours({}, some), DataError);
  some = Models(2, 13, at::kFloat);
  some.teacher_weight = at::randn({14, 11});
  CHECK_THROWS_AS(ours({}, some), RunError);
}
