#include "temper/ops/layers/attention_maps.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "temper/base/error.h"
#include "temper/ops/logits/row_distance.h"
#include "tests/ops/distance.h"

using namespace temper;
using ops::AttentionInputs;

namespace {

at::Tensor randn(std::vector<int64_t> shape, at::ScalarType dtype) {
  return at::randn(shape, at::kDouble).to(dtype);
}

ops::RotaryTable rotary(int64_t positions, int64_t dim, at::ScalarType dtype) {
  const at::Tensor p = at::arange(positions, at::kDouble).unsqueeze(1);
  const at::Tensor f =
      at::pow(300.0, -at::arange(0, dim, 2, at::kDouble) / static_cast<double>(dim));
  return {(p * f).cos().to(dtype), (p * f).sin().to(dtype)};
}

struct Layer {
  int64_t heads, kv, dim, window = 0;
  double cap = 0;
  bool norm = false, sinks = false;
  AttentionInputs inputs(int64_t n, at::ScalarType dtype) const {
    AttentionInputs in{{.num_heads = heads,
                        .num_kv_heads = kv,
                        .head_dim = dim,
                        .scale = 0.6,
                        .soft_cap = cap,
                        .window = window,
                        .norm_eps = 1e-6},
                       rotary(n, dim, dtype),
                       randn({n, heads * dim}, dtype).requires_grad_(true),
                       randn({n, kv * dim}, dtype).requires_grad_(true)};
    if (norm) {
      in.spec.q_norm = (1 + 0.3 * randn({dim}, dtype)).requires_grad_(true);
      in.spec.k_norm = (1 + 0.3 * randn({dim}, dtype)).requires_grad_(true);
    }
    if (sinks) in.spec.sinks = randn({heads}, dtype).requires_grad_(true);
    return in;
  }
};

at::Tensor prepare(const AttentionInputs& in, at::Tensor x, int64_t heads, const at::Tensor& norm,
                   const std::vector<int64_t>& position) {
  const int64_t dim = in.spec.head_dim, half = dim / 2;
  x = x.view({x.size(0), heads, dim});
  if (norm.defined()) x = x / (x.square().mean(2, true) + in.spec.norm_eps).sqrt() * norm;
  const at::Tensor at = at::tensor(position, at::kLong);
  const at::Tensor c = in.rotary.cos.index_select(0, at).unsqueeze(1),
                   s = in.rotary.sin.index_select(0, at).unsqueeze(1);
  const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
  return at::cat({a * c - b * s, b * c + a * s}, 2);
}

// Probabilities [heads, keys up to the token] of one token, as the formulas say.
std::vector<at::Tensor> naive(const AttentionInputs& in, const Forest& f) {
  const ops::AttentionSpec& s = in.spec;
  const at::Tensor q = prepare(in, in.q, s.num_heads, s.q_norm, f.position),
                   k = prepare(in, in.k, s.num_kv_heads, s.k_norm, f.position);
  std::vector<at::Tensor> maps;
  for (int64_t segment = 0; segment < f.num_segments(); ++segment)
    for (int64_t t = f.segment_start[static_cast<size_t>(segment)];
         t < f.segment_start[static_cast<size_t>(segment) + 1]; ++t) {
      std::vector<int64_t> path;
      for (int64_t a = segment; a >= 0; a = f.parent[static_cast<size_t>(a)])
        for (int64_t j = f.segment_start[static_cast<size_t>(a) + 1] - 1;
             j >= f.segment_start[static_cast<size_t>(a)]; --j)
          if (j <= t) path.insert(path.begin(), j);
      const at::Tensor keys = k.index_select(0, at::tensor(path, at::kLong))
                                  .repeat_interleave(s.num_heads / s.num_kv_heads, 1);
      at::Tensor score = (q[t].unsqueeze(0) * keys).sum(2).t() * s.scale;
      if (s.soft_cap > 0) score = s.soft_cap * (score / s.soft_cap).tanh();
      const int64_t n = static_cast<int64_t>(path.size());
      if (s.window > 0 && n > s.window)
        score = at::cat({at::full({s.num_heads, n - s.window}, -INFINITY, score.options()),
                         score.narrow(1, n - s.window, s.window)},
                        1);
      if (s.sinks.defined()) score = at::cat({score, s.sinks.unsqueeze(1)}, 1);
      maps.push_back(score.softmax(1).narrow(1, 0, n));
    }
  return maps;
}

at::Tensor naive_cosine(const AttentionInputs& a, const AttentionInputs& b, const Forest& f) {
  const std::vector<at::Tensor> student = naive(a, f), teacher = naive(b, f);
  std::vector<at::Tensor> out;
  for (size_t t = 0; t < student.size(); ++t) {
    const int64_t heads = student[t].size(0), n = student[t].size(1);
    const at::Tensor mean = teacher[t].view({heads, -1, n}).mean(1).detach();
    out.push_back((1 - at::cosine_similarity(student[t], mean, 1)).mean());
  }
  return at::stack(out);
}

at::Tensor naive_squares(const AttentionInputs& a, const AttentionInputs& b, const at::Tensor& map,
                         const Forest& f) {
  const std::vector<at::Tensor> student = naive(a, f), teacher = naive(b, f);
  std::vector<at::Tensor> out;
  for (size_t t = 0; t < student.size(); ++t)
    out.push_back((map.matmul(student[t]) - teacher[t].detach()).square().sum());
  return at::stack(out);
}

std::shared_ptr<Forest> tree() {
  auto f = std::make_shared<Forest>();
  const std::vector<int32_t> ids(300, 1);
  const auto some = [&](size_t n) { return std::span(ids).first(n); };
  f->add_root(some(1));
  const int64_t prompt = f->add_root(some(7));
  f->add_child(f->add_child(prompt, some(3)), some(2));
  f->add_child(prompt, some(5));
  f->add_root(some(140));  // more than one tile
  return f;
}

const std::vector<std::pair<Layer, Layer>> kLayers{
    {{2, 1, 4}, {4, 2, 6}},
    {{2, 2, 6, 5, 1.5, true}, {2, 1, 4, 0, 2.0}},
    {{1, 1, 8, 0, 0, true}, {3, 3, 4, 4, 0, true}},
    {{2, 1, 4, 5, 0, false, true}, {2, 1, 4, 0, 0, false, true}},
};

}  // namespace

TEST_CASE("distances of attention maps and their gradients are those of the formulas") {
  const std::shared_ptr<Forest> f = tree();
  for (const auto& [student, teacher] : kLayers) {
    at::manual_seed(3);
    const AttentionInputs a = student.inputs(f->num_tokens(), at::kDouble),
                          b = teacher.inputs(f->num_tokens(), at::kDouble);
    const at::Tensor map = randn({teacher.heads, student.heads}, at::kDouble).requires_grad_(true);
    const at::Tensor g = randn({f->num_tokens()}, at::kDouble);
    std::vector<at::Tensor> wanted{a.q, a.k};
    if (student.norm) wanted.insert(wanted.end(), {a.spec.q_norm, a.spec.k_norm});
    if (student.sinks) wanted.push_back(a.spec.sinks);
    const auto agree = [&](const at::Tensor& ours, const at::Tensor& theirs) {
      CHECK(distance(ours, theirs) < 1e-12);
      const auto da = torch::autograd::grad({ours}, wanted, {g}),
                 db = torch::autograd::grad({theirs}, wanted, {g});
      for (size_t i = 0; i < da.size(); ++i) CHECK(distance(da[i], db[i]) < 1e-11);
    };
    agree(ops::attention_cosine_distance(a, b, f), naive_cosine(a, b, *f));
    wanted.push_back(map);
    agree(ops::attention_squared_error(a, b, map, f), naive_squares(a, b, map, *f));
  }
}

TEST_CASE("a row's distances do not depend on the rows beside it") {
  const std::shared_ptr<Forest> f = tree();
  const auto alone = std::make_shared<Forest>();
  const std::vector<int32_t> ids(140, 1);
  alone->add_root(ids);
  const int64_t n = f->num_tokens(), first = n - 140;
  for (const auto& [student, teacher] : kLayers) {
    const AttentionInputs a = student.inputs(n, at::kFloat), b = teacher.inputs(n, at::kFloat);
    const auto cut = [&](AttentionInputs x) {
      x.q = x.q.detach().narrow(0, first, 140).contiguous();
      x.k = x.k.detach().narrow(0, first, 140).contiguous();
      return x;
    };
    const at::Tensor map = randn({teacher.heads, student.heads}, at::kFloat);
    CHECK(ops::attention_cosine_distance(cut(a), cut(b), alone)
              .equal(ops::attention_cosine_distance(a, b, f).narrow(0, first, 140)));
    CHECK(ops::attention_squared_error(cut(a), cut(b), map, alone)
              .equal(ops::attention_squared_error(a, b, map, f).narrow(0, first, 140)));
  }
}

TEST_CASE("heads that do not divide are refused") {
  const std::shared_ptr<Forest> f = tree();
  const AttentionInputs a = Layer{2, 2, 4}.inputs(f->num_tokens(), at::kFloat),
                        b = Layer{3, 3, 4}.inputs(f->num_tokens(), at::kFloat);
  CHECK_THROWS_AS(ops::attention_cosine_distance(a, b, f), RunError);
}

TEST_CASE("distances of rows and their gradients") {
  at::manual_seed(5);
  for (const int64_t width : {1, 16, 37}) {
    const at::Tensor a = randn({6, width}, at::kDouble).requires_grad_(true),
                     b = randn({6, width}, at::kDouble), g = randn({6}, at::kDouble);
    const auto agree = [&](const at::Tensor& ours, const at::Tensor& theirs) {
      CHECK(distance(ours, theirs) < 1e-12);
      CHECK(distance(torch::autograd::grad({ours}, {a}, {g})[0],
                     torch::autograd::grad({theirs}, {a}, {g})[0]) < 1e-11);
    };
    agree(ops::cosine_distance(a, b), 1 - at::cosine_similarity(a, b, 1));
    agree(ops::squared_distance(a, b), (a - b).square().sum(1));
  }
  const at::Tensor zero = at::zeros({1, 5}, at::kFloat).requires_grad_(true);
  const at::Tensor d = ops::cosine_distance(zero, at::ones({1, 5}, at::kFloat));
  CHECK(d.item<float>() == 1);
  CHECK(torch::autograd::grad({d.sum()}, {zero})[0].abs().sum().item<float>() == 0);
}

TEST_CASE("features are pooled with the stride and window that fit") {
  const at::Tensor x = randn({3, 28}, at::kDouble);
  for (const int64_t width : {28, 20, 14, 9, 1}) {
    const int64_t stride = 28 / width, window = 28 - (width - 1) * stride;
    const at::Tensor theirs = x.unfold(1, window, stride).mean(2);
    CHECK(theirs.size(1) == width);
    CHECK(distance(ops::pool_features(x, width), theirs) < 1e-12);
  }
}
