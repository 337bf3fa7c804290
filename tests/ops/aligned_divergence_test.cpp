#include "temper/ops/logits/aligned_divergence.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/json.h"
#include "tests/golden.h"

using namespace temper;
using ops::DivergenceKind;

namespace {

at::Tensor matrix(const Json& rows) {
  std::vector<double> values;
  for (const Json& row : rows)
    for (const Json& value : row) values.push_back(value.get<double>());
  const auto count = static_cast<int64_t>(rows.size());
  return at::tensor(values, at::kDouble).view({count, static_cast<int64_t>(values.size()) / count});
}

ops::SpanTokens tokens_of(const std::vector<std::vector<int64_t>>& groups) {
  ops::SpanTokens out;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t i = 0; i + 1 < groups[g].size(); ++i) {
      out.before.push_back(groups[g][i]);
      out.span_of_before.push_back(static_cast<int64_t>(g));
    }
    out.last.push_back(groups[g].back());
  }
  return out;
}

// Some spans of two models with random weights.
struct Spans {
  ops::AlignedSpec spec;
  at::Tensor hidden, weight;
  ops::TeacherHead teacher;
  std::vector<int64_t> target, teacher_target;
  ops::SpanTokens tokens, teacher_tokens;

  Spans(at::ScalarType dtype, DivergenceKind kind) {
    at::manual_seed(3);
    const auto random = [&](std::vector<int64_t> shape) {
      return at::randn(shape, at::kDouble).to(dtype);
    };
    hidden = random({5, 6});
    weight = random({90, 6});
    teacher.hidden = random({6, 4});
    teacher.weight = random({70, 4});
    target = {3, 80, 41, 7, 9};
    teacher_target = {1, 2, 69, 4, 5, 6};
    tokens = tokens_of({{0}, {1, 2}, {3, 4}});
    teacher_tokens = tokens_of({{0, 1, 2}, {3}, {4, 5}});
    auto match = std::make_shared<ops::VocabularyMatch>();
    for (int32_t i = 0; i < 40; ++i) {
      match->student.push_back(2 * i);
      match->teacher.push_back((i * 3 + 5) % 70);
    }
    match->complete(90, 70);
    spec.kind = kind;
    spec.jsd_beta = 0.3;
    spec.temperature = 1.3;
    spec.student.scale = 0.7;
    spec.student.soft_cap = 3;
    spec.match = match;
  }
  at::Tensor value() const {
    return ops::aligned_divergence(spec, hidden, weight, {tokens, target}, teacher,
                                   {teacher_tokens, teacher_target});
  }
};

}  // namespace

TEST_CASE("divergences of aligned spans and their gradients are TRL's") {
  const Json golden = read_json_file(golden_path("aligned.json"), size_t{1} << 24);
  for (const Json& one : golden["spans"]) {
    const std::string kind = one["kind"];
    CAPTURE(kind);
    const at::Tensor student = matrix(one["student"]).requires_grad_(),
                     teacher = matrix(one["teacher"]);
    const auto match = std::make_shared<ops::VocabularyMatch>();
    for (const Json& pair : one["pairs"]) {
      match->student.push_back(pair[0]);
      match->teacher.push_back(pair[1]);
    }
    match->complete(student.size(1), teacher.size(1));
    ops::AlignedSpec spec;
    spec.kind = kind == "forward_kl"   ? DivergenceKind::kForwardKl
                : kind == "reverse_kl" ? DivergenceKind::kReverseKl
                                       : DivergenceKind::kJsd;
    spec.jsd_beta = one["beta"];
    spec.temperature = one["temperature"];
    spec.match = match;
    // Hidden states that are the logits themselves.
    const auto eye = [](const at::Tensor& x) { return at::eye(x.size(1), at::kDouble); };
    ops::TeacherHead head;
    head.hidden = teacher;
    head.weight = eye(teacher);
    const std::vector<int64_t> ids = one["student_ids"], teacher_ids = one["teacher_ids"];
    const at::Tensor value = ops::aligned_divergence(
        spec, student, eye(student), {tokens_of(one["student_groups"]), ids}, head,
        {tokens_of(one["teacher_groups"]), teacher_ids});
    CHECK(value.sum().item<double>() == doctest::Approx(one["value"].get<double>()).epsilon(1e-9));
    value.sum().backward();
    const double far = (student.grad() - matrix(one["gradient"])).abs().max().item<double>();
    CHECK(far < 1e-9);
  }
}

TEST_CASE("the gradients of aligned_divergence in float64, through caps and earlier tokens") {
  for (const DivergenceKind kind :
       {DivergenceKind::kForwardKl, DivergenceKind::kReverseKl, DivergenceKind::kJsd}) {
    Spans spans(at::kDouble, kind);
    spans.hidden.requires_grad_();
    spans.weight.requires_grad_();
    const at::Tensor by = at::tensor({1.0, -0.5, 2.0}, at::kDouble);
    (spans.value() * by).sum().backward();
    for (at::Tensor x : {spans.hidden, spans.weight}) {
      const at::Tensor gradient = x.grad();
      const at::NoGradGuard no_grad;
      at::Tensor flat = x.view({-1});
      double worst = 0;
      for (int64_t i = 0; i < flat.numel(); i += 1 + flat.numel() / 60) {
        constexpr double kStep = 1e-6;
        const auto at = [&](double moved) {
          flat[i] += moved;
          const double found = (spans.value() * by).sum().item<double>();
          flat[i] -= moved;
          return found;
        };
        const double slope = (at(kStep) - at(-kStep)) / (2 * kStep);
        worst = std::max(worst, std::abs(slope - gradient.view({-1})[i].item<double>()));
      }
      CHECK(worst < 1e-7);
    }
  }
}

TEST_CASE("with one vocabulary and one token a span it is the divergence") {
  Spans spans(at::kFloat, DivergenceKind::kForwardKl);
  spans.spec.student = {};
  const auto match = std::make_shared<ops::VocabularyMatch>();
  for (int32_t i = 0; i < 90; ++i) {
    match->student.push_back(i);
    match->teacher.push_back(i);
  }
  match->complete(90, 90);
  spans.spec.match = match;
  spans.teacher.hidden = at::randn({5, 4});
  spans.teacher.weight = at::randn({90, 4});
  spans.tokens = spans.teacher_tokens = tokens_of({{0}, {1}, {2}, {3}, {4}});
  spans.teacher_target = spans.target;
  for (const DivergenceKind kind :
       {DivergenceKind::kForwardKl, DivergenceKind::kReverseKl, DivergenceKind::kJsd}) {
    spans.spec.kind = kind;
    ops::DivergenceSpec same;
    same.kind = kind;
    same.jsd_beta = 0.3;
    same.temperature = 1.3;
    const at::Tensor expected =
        ops::divergence(same, spans.hidden, spans.weight, spans.teacher, spans.target).value;
    CHECK((spans.value() - expected).abs().max().item<double>() < 1e-5);
  }
}

TEST_CASE("a span's divergence is the same alone" * doctest::test_suite("exact")) {
  Spans spans(at::kFloat, DivergenceKind::kJsd);
  const at::Tensor all = spans.value();
  Spans alone(at::kFloat, DivergenceKind::kJsd);
  alone.tokens = tokens_of({{3, 4}});
  alone.teacher_tokens = tokens_of({{4, 5}});
  CHECK(alone.value()[0].item<float>() == all[2].item<float>());
}
