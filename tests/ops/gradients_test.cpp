// Every differentiable function against central differences in float64.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>

#include "temper/base/error.h"
#include "temper/ops/backend.h"
#include "temper/ops/layers/attention.h"
#include "temper/ops/layers/dora.h"
#include "temper/ops/layers/dropout.h"
#include "temper/ops/layers/embedding.h"
#include "temper/ops/layers/grouped_linear.h"
#include "temper/ops/layers/linear.h"
#include "temper/ops/layers/recurrent.h"
#include "temper/ops/layers/routing.h"
#include "temper/ops/logits/token_logp.h"
#include "tests/ops/kernels.h"

using namespace temper;
using namespace temper::ops;
using Tensors = std::vector<at::Tensor>;

namespace {

at::Tensor draw(at::IntArrayRef shape, uint32_t seed, double range = 1) {
  kernels::Draws draws(seed);
  at::Tensor x = at::empty(shape, at::kDouble);
  const std::vector<float> values = draws.floats(x.numel());
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mutable_data_ptr<double>()[i] = range * values[static_cast<size_t>(i)];
  return x;
}

// A fixed random combination of all outputs: one number whose gradient has every part in it.
double combined(const Tensors& outputs) {
  double sum = 0;
  for (size_t i = 0; i < outputs.size(); ++i)
    sum += (outputs[i].detach() * draw(outputs[i].sizes(), 1000 + static_cast<uint32_t>(i)))
               .sum()
               .item<double>();
  return sum;
}

using Function = std::function<Tensors(const Tensors&)>;

// Gradients of `combined` in all inputs.
Tensors analytic(const Function& function, Tensors inputs) {
  for (at::Tensor& x : inputs) x = x.detach().clone().requires_grad_(true);
  const Tensors outputs = function(inputs);
  Tensors directions;
  for (size_t i = 0; i < outputs.size(); ++i)
    directions.push_back(draw(outputs[i].sizes(), 1000 + static_cast<uint32_t>(i)));
  torch::autograd::backward(outputs, directions);
  for (at::Tensor& x : inputs) x = x.grad();
  return inputs;
}

// Central differences: the error is of order 1e-10 (truncation) plus 1e-16 / 1e-5 (rounding), times
// the size of the result.
void check_gradients(const Function& function, const Tensors& inputs) {
  constexpr double kStep = 1e-5, kTolerance = 2e-8;
  const Tensors gradients = analytic(function, inputs);
  for (size_t which = 0; which < inputs.size(); ++which) {
    CAPTURE(which);
    REQUIRE(gradients[which].defined());
    REQUIRE(gradients[which].sizes() == inputs[which].sizes());
    Tensors moved = inputs;
    for (int64_t i = 0; i < inputs[which].numel(); ++i) {
      CAPTURE(i);
      const auto at_offset = [&](double offset) {
        moved[which] = inputs[which].clone();
        moved[which].mutable_data_ptr<double>()[i] += offset;
        return combined(function(moved));
      };
      const double numeric = (at_offset(kStep) - at_offset(-kStep)) / (2 * kStep);
      const double found = gradients[which].contiguous().const_data_ptr<double>()[i];
      CHECK(std::abs(found - numeric) < kTolerance * std::max(1.0, std::abs(numeric)));
    }
  }
}

// Trees of three generations and a root on its own.
std::shared_ptr<Forest> small_forest() {
  auto forest = std::make_shared<Forest>();
  const auto blank = [](size_t n) { return std::vector<int32_t>(n); };
  const int64_t root = forest->add_root(blank(4));
  const int64_t child = forest->add_child(root, blank(3));
  forest->add_child(child, blank(2));
  forest->add_child(root, blank(1));
  forest->add_root(blank(5));
  return forest;
}

RotaryTable rotary(int64_t head_dim, at::ScalarType dtype = at::kDouble) {
  const at::Tensor angle = draw({32, head_dim / 2}, 77, 3);
  return {angle.cos().to(dtype), angle.sin().to(dtype)};
}

}  // namespace

TEST_CASE("linear layers over every kind of input, with and without bias") {
  const Tensors weights{draw({4, 5}, 1), draw({4}, 2), draw({3, 5}, 3)};
  const auto two_layers = [](const LinearInput& in, const Tensors& t) {
    return linear(in, {{t[0], t[1]}, {t[2], {}}});
  };
  const at::Tensor x = draw({6, 5}, 4), other = draw({6, 5}, 5, 2), norm = draw({5}, 6);
  const auto inputs = [&](Tensors more) {
    Tensors all = weights;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  SUBCASE("plain") {
    check_gradients([&](const Tensors& t) { return two_layers(LinearInput::plain(t[3]), t); },
                    inputs({x}));
  }
  SUBCASE("norm") {
    for (const bool add_unit_offset : {false, true})
      check_gradients(
          [&](const Tensors& t) {
            return two_layers(LinearInput::rms_norm(t[3], t[4], 1e-2, add_unit_offset), t);
          },
          inputs({x, norm}));
  }
  SUBCASE("layer norm") {
    check_gradients(
        [&](const Tensors& t) { return two_layers(LinearInput::layer_norm(t[3], t[4], 1e-2), t); },
        inputs({x, norm}));
  }
  SUBCASE("gated") {
    for (const Activation a : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu,
                               Activation::kSigmoid, Activation::kIdentity})
      check_gradients(
          [&](const Tensors& t) { return two_layers(LinearInput::gated(t[3], t[4], a), t); },
          inputs({other, x}));
  }
}

TEST_CASE("a short convolution over a forest, with and without activation and bias") {
  const auto forest = small_forest();
  for (const bool silu : {false, true}) {
    check_gradients(
        [&](const Tensors& t) {
          return Tensors{short_convolution({t[1], t[2]}, silu, forest, t[0])};
        },
        {draw({15, 3}, 1), draw({3, 1, 4}, 2), draw({3}, 3)});
    check_gradients(
        [&](const Tensors& t) {
          return Tensors{short_convolution({t[1], {}}, silu, forest, t[0])};
        },
        {draw({15, 3}, 1), draw({3, 1, 2}, 2)});
  }
}

TEST_CASE("the gated delta rule over a forest, and over a path longer than what is kept at once") {
  const DeltaRuleSpec spec{.key_heads = 1, .value_heads = 2, .key_dim = 3, .value_dim = 2};
  auto longer = std::make_shared<Forest>();
  const int64_t root = longer->add_root(std::vector<int32_t>(34));
  longer->add_child(root, std::vector<int32_t>(2));
  longer->add_child(root, std::vector<int32_t>(33));
  for (const auto& forest : {small_forest(), longer}) {
    const int64_t n = forest->num_tokens();
    check_gradients(
        [&](const Tensors& t) {
          return Tensors{gated_delta_rule(spec, forest, {t[0], t[1], t[2], t[3], t[4]})};
        },
        {draw({n, 10}, 1), draw({n, 2}, 2), draw({n, 2}, 3), draw({2}, 4), draw({2}, 5)});
  }
}

TEST_CASE("layers by group over every kind of input, two that read the same") {
  const auto two = [](const GroupedInput& in, const Tensors& t) {
    return grouped_linear(in, {0, 2, 5}, {{{t[0], t[1]}, {t[2], {}}}, {{t[3], {}}, {t[3], {}}}});
  };
  const Tensors weights{draw({4, 3}, 1), draw({4}, 2), draw({4, 3}, 3), draw({2, 3}, 4)};
  const auto inputs = [&](at::IntArrayRef shape) {
    Tensors all = weights;
    all.push_back(draw(shape, 5, 2));
    return all;
  };
  check_gradients([&](const Tensors& t) { return two(GroupedInput::plain(t[4]), t); },
                  inputs({5, 3}));
  check_gradients(
      [&](const Tensors& t) { return two(GroupedInput::select(t[4], {1, 0, 2, 1, 1}), t); },
      inputs({3, 3}));
  for (const Activation a : {Activation::kSilu, Activation::kGeluTanh})
    for (const bool interleaved : {false, true})
      for (const double limit : {0.0, 0.8})
        check_gradients(
            [&](const Tensors& t) {
              return two(GroupedInput::gated(t[4], {a, interleaved, limit, 1.7}), t);
            },
            inputs({5, 6}));
}

// Logits far apart: a step of the differences changes no choice.
TEST_CASE("a router's weights, its probabilities and the combination of experts") {
  const at::Tensor logits =
      at::tensor({0.1, 1.3, -0.7, 0.6, 2.0, -1.5, 0.9, 0.2, -0.3, 1.1, -1.2, 0.4}, at::kDouble)
          .view({2, 6});
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid})
    for (const bool normalize : {false, true}) {
      const RouterSpec spec{.experts = 6,
                            .chosen = 3,
                            .score = score,
                            .normalize = normalize,
                            .scale = 1.7,
                            .groups = 3,
                            .chosen_groups = 2};
      check_gradients(
          [&](const Tensors& t) {
            const Routing r = route(spec, t[0]);
            const ExpertRows rows = rows_by_expert(r.expert, 6);
            return Tensors{r.weight, combine(t[1], r.weight, rows), router_probabilities(t[0])};
          },
          {logits, draw({6, 4}, 2)});
    }
}

TEST_CASE("a load-balancing loss is in the gradient of what it was added to") {
  const at::Tensor weight = draw({6}, 1), x = draw({3, 4}, 2), w = draw({6, 4}, 3);
  const auto loss = std::make_shared<BalanceLoss>();
  Tensors found, expected;
  for (const bool apart : {false, true}) {
    Tensors t{x.clone().requires_grad_(true), w.clone().requires_grad_(true)};
    const at::Tensor logits = linear(LinearInput::plain(t[0]), {{t[1], {}}})[0];
    if (apart) {
      ((t[0] * t[0]).sum() + (router_probabilities(logits) * weight).sum()).backward();
      expected = {t[0].grad(), t[1].grad()};
      continue;
    }
    loss->weight = at::Tensor();
    const at::Tensor y = with_balance_loss(t[0] * t[0], logits, loss);
    loss->weight = weight;  // known only after the forward pass
    y.sum().backward();
    found = {t[0].grad(), t[1].grad()};
  }
  for (size_t i = 0; i < 2; ++i) CHECK((found[i] - expected[i]).abs().max().item<double>() < 1e-14);
}

TEST_CASE("a frozen weight gets no gradient and the others' do not change") {
  const at::Tensor x = draw({6, 5}, 1).requires_grad_(true), frozen = draw({4, 5}, 2),
                   weight = draw({3, 5}, 3).requires_grad_(true), norm = draw({5}, 4);
  const Tensors y = linear(LinearInput::rms_norm(x, norm, 1e-2), {{frozen, {}}, {weight, {}}});
  torch::autograd::backward(y, {draw({6, 4}, 1000), draw({6, 3}, 1001)});
  const Tensors all = analytic(
      [](const Tensors& t) {
        return linear(LinearInput::rms_norm(t[0], t[3], 1e-2), {{t[1], {}}, {t[2], {}}});
      },
      {x.detach(), frozen, weight.detach(), norm});
  CHECK(!frozen.grad().defined());
  CHECK(!norm.grad().defined());
  CHECK(at::equal(x.grad(), all[0]));
  CHECK(at::equal(weight.grad(), all[2]));
}

TEST_CASE("an output that the loss does not use adds nothing") {
  const at::Tensor x = draw({6, 5}, 1).requires_grad_(true),
                   unused = draw({4, 5}, 2).requires_grad_(true),
                   weight = draw({3, 5}, 3).requires_grad_(true);
  const Tensors y = linear(LinearInput::plain(x), {{unused, {}}, {weight, {}}});
  const at::Tensor direction = draw({6, 3}, 9);
  torch::autograd::backward({y[1]}, {direction});
  CHECK(!unused.grad().defined());
  CHECK(at::allclose(x.grad(), direction.matmul(weight.detach()), 0, 1e-14));
  CHECK(at::allclose(weight.grad(), direction.t().matmul(x.detach()), 0, 1e-14));
}

TEST_CASE("materialised inputs and sums") {
  const at::Tensor x = draw({6, 5}, 1, 2), other = draw({6, 5}, 2), norm = draw({5}, 3);
  check_gradients(
      [](const Tensors& t) {
        return Tensors{materialize(LinearInput::rms_norm(t[0], t[1], 1e-2, true))};
      },
      {x, norm});
  const auto layer_norm = [](const Tensors& t) {
    return Tensors{materialize(LinearInput::layer_norm(t[0], t[1], 1e-2))};
  };
  CHECK(at::allclose(layer_norm({x, norm})[0], at::layer_norm(x, {5}, norm, {}, 1e-2), 0, 1e-14));
  check_gradients(layer_norm, {x, norm});
  for (const Activation a : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu})
    check_gradients(
        [a](const Tensors& t) { return Tensors{materialize(LinearInput::gated(t[0], t[1], a))}; },
        {x, other});
  for (const double scale : {1.0, -0.7})
    check_gradients([scale](const Tensors& t) { return Tensors{add_scaled(t[0], t[1], scale)}; },
                    {x, other});
}

TEST_CASE("attention: grouped heads, windows, soft caps, norms of queries and keys") {
  const auto forest = small_forest();
  constexpr int64_t heads = 4, kv_heads = 2, dim = 6;
  const int64_t n = forest->num_tokens();
  const at::Tensor q = draw({n, heads * dim}, 1), k = draw({n, kv_heads * dim}, 2),
                   v = draw({n, kv_heads * dim}, 3);
  const at::Tensor q_norm = draw({dim}, 4), k_norm = draw({dim}, 5);
  const RotaryTable table = rotary(dim);
  for (const double cap : {0.0, 1.5})
    for (const int64_t window : {0, 3}) {
      CAPTURE(cap);
      CAPTURE(window);
      AttentionSpec spec{.num_heads = heads,
                         .num_kv_heads = kv_heads,
                         .head_dim = dim,
                         .scale = 0.6,
                         .soft_cap = cap,
                         .window = window,
                         .q_norm = {},
                         .k_norm = {},
                         .norm_eps = 1e-2};
      check_gradients(
          [&](const Tensors& t) {
            return Tensors{attention(spec, table, forest, t[0], t[1], t[2])};
          },
          {q, k, v});
      AttentionSpec once = spec;
      once.values_in_keys = true;
      check_gradients(
          [&](const Tensors& t) { return Tensors{attention(once, table, forest, t[0], t[1], {})}; },
          {q, k});
      for (const bool add_unit_offset : {false, true}) {
        spec.norm_one_plus = add_unit_offset;
        check_gradients(
            [&](const Tensors& t) {
              AttentionSpec normed = spec;
              normed.q_norm = t[3];
              normed.k_norm = t[4];
              return Tensors{attention(normed, table, forest, t[0], t[1], t[2])};
            },
            {q, k, v, q_norm, k_norm});
      }
    }
}

// A sink is a key that every token sees, with score `sink` and value 0.
TEST_CASE("attention: sinks take their share of each head's softmax") {
  const auto forest = small_forest();
  constexpr int64_t heads = 4, kv_heads = 2, dim = 6;
  const int64_t n = forest->num_tokens();
  const Tensors inputs{draw({n, heads * dim}, 1), draw({n, kv_heads * dim}, 2),
                       draw({n, kv_heads * dim}, 3), draw({heads}, 4, 3)};
  for (const int64_t window : {0, 3}) {
    CAPTURE(window);
    AttentionSpec spec{.num_heads = heads,
                       .num_kv_heads = kv_heads,
                       .head_dim = dim,
                       .scale = 0.6,
                       .window = window};
    const auto attended = [&](const Tensors& t) {
      AttentionSpec with = spec;
      with.sinks = t[3];
      return Tensors{attention(with, rotary(dim), forest, t[0], t[1], t[2])};
    };
    check_gradients(attended, inputs);
    // The last root's first token sees its own key alone: its share is 1 / (1 + exp(sink - score)).
    const at::Tensor out = attended(inputs)[0][n - 5].view({heads, dim}),
                     v = inputs[2][n - 5].view({kv_heads, dim}).repeat_interleave(2, 0);
    const at::Tensor score = 0.6 * (inputs[0][n - 5].view({heads, dim}) *
                                    inputs[1][n - 5].view({kv_heads, dim}).repeat_interleave(2, 0))
                                       .sum(1);
    CHECK(at::allclose(out, v * (score - inputs[3]).sigmoid().unsqueeze(1), 0, 1e-14));
    spec.sinks = at::full({heads}, -1e4, at::kDouble);  // no share at all
    AttentionSpec without = spec;
    without.sinks = at::Tensor();
    CHECK(at::equal(attention(spec, rotary(dim), forest, inputs[0], inputs[1], inputs[2]),
                    attention(without, rotary(dim), forest, inputs[0], inputs[1], inputs[2])));
  }
}

TEST_CASE("attention: heads rotated in part, in neighbouring pairs or not at all, scaled queries") {
  const auto forest = small_forest();
  constexpr int64_t heads = 4, kv_heads = 2, dim = 8;
  const int64_t n = forest->num_tokens();
  const Tensors inputs{draw({n, heads * dim}, 1), draw({n, kv_heads * dim}, 2),
                       draw({n, kv_heads * dim}, 3), draw({dim}, 4), draw({dim}, 5)};
  RotaryTable part = rotary(4), pairs = rotary(4), none;
  pairs.interleaved = true;
  pairs.query_scale = none.query_scale = draw({32}, 6) + 2;
  for (const RotaryTable& table : {part, pairs, none})
    for (const bool norm_rotated : {false, true})
      check_gradients(
          [&](const Tensors& t) {
            const AttentionSpec spec{.num_heads = heads,
                                     .num_kv_heads = kv_heads,
                                     .head_dim = dim,
                                     .scale = 0.6,
                                     .q_norm = t[3],
                                     .k_norm = t[4],
                                     .norm_eps = 1e-2,
                                     .norm_rotated = norm_rotated};
            return Tensors{attention(spec, table, forest, t[0], t[1], t[2])};
          },
          inputs);
}

// By their definitions, of a head of six features of which four are rotated, at position 1.
TEST_CASE("attention maps' heads are normalized, rotated and scaled as the spec and table say") {
  auto forest = std::make_shared<Forest>();
  forest->add_root(std::vector<int32_t>(2));
  const at::Tensor q = draw({2, 6}, 1), k = draw({2, 6}, 2), norm = draw({6}, 3);
  const at::Tensor cos = draw({2, 2}, 4), sin = draw({2, 2}, 5), scale = draw({2}, 6) + 2;
  const auto normed = [&](const at::Tensor& x) {
    return x * (x.square().mean(-1, true) + 1e-2).rsqrt() * norm;
  };
  for (const bool interleaved : {false, true})
    for (const bool norm_rotated : {false, true}) {
      const AttentionSpec spec{.num_heads = 1,
                               .num_kv_heads = 1,
                               .head_dim = 6,
                               .q_norm = norm,
                               .k_norm = norm,
                               .norm_eps = 1e-2,
                               .norm_rotated = norm_rotated};
      const auto rotated = [&](at::Tensor x) {
        const at::Tensor from = x.clone();
        for (int64_t i = 0; i < 2; ++i) {
          const int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + 2;
          const at::Tensor a = from.select(1, first), b = from.select(1, second);
          const at::Tensor c = cos.select(1, i), s = sin.select(1, i);
          x.select(1, first).copy_(a * c - b * s);
          x.select(1, second).copy_(b * c + a * s);
        }
        return x;
      };
      const auto expected = [&](const at::Tensor& x) {
        return norm_rotated ? normed(rotated(x.clone())) : rotated(normed(x));
      };
      for (const Backend* backend : {&native_backend(), &aten_backend()}) {
        const HeadVectors found =
            backend->head_vectors(spec, {cos, sin, interleaved, scale}, *forest, q, k);
        CHECK(at::allclose(found.q.view({2, 6}), expected(q) * scale.unsqueeze(1), 0, 1e-14));
        CHECK(at::allclose(found.k.view({2, 6}), expected(k), 0, 1e-14));
      }
    }
}

// Rounding's gradient is 1: those of queries, keys and values are the gradients of a function of
// the rounded keys and values.
TEST_CASE("gradients pass through the rounding of keys and values to the cache's number type") {
  constexpr int64_t heads = 4, kv_heads = 2, dim = 8, tokens = 40;
  auto forest = std::make_shared<Forest>();
  forest->add_child(forest->add_root(std::vector<int32_t>(25)), std::vector<int32_t>(15));
  const AttentionSpec plain{.num_heads = heads,
                            .num_kv_heads = kv_heads,
                            .head_dim = dim,
                            .scale = 0.4,
                            .q_norm = {},
                            .k_norm = {}};
  const RotaryTable none{at::ones({tokens, dim / 2}), at::zeros({tokens, dim / 2})};
  const auto draw32 = [](int64_t width, uint32_t seed) {
    return draw({tokens, width}, seed).to(at::kFloat);
  };
  const at::Tensor q = draw32(heads * dim, 21), k = draw32(kv_heads * dim, 22),
                   v = draw32(kv_heads * dim, 23), direction = draw32(heads * dim, 24);
  const auto run = [&](const AttentionSpec& spec, const Tensors& given) {
    Tensors x;
    for (const at::Tensor& t : given) x.push_back(t.detach().clone().requires_grad_(true));
    const at::Tensor out = attention(spec, none, forest, x[0], x[1], x[2]);
    torch::autograd::backward({out}, {direction});
    return Tensors{out.detach(), x[0].grad(), x[1].grad(), x[2].grad()};
  };
  for (const auto& [dtype, scalar] : {std::pair(CacheDtype::kFloat16, at::kHalf),
                                      std::pair(CacheDtype::kBFloat16, at::kBFloat16)}) {
    AttentionSpec spec = plain;
    spec.cache_dtype = dtype;
    const auto rounded = [&](const at::Tensor& x) { return x.to(scalar).to(at::kFloat); };
    const Tensors found = run(spec, {q, k, v}), expected = run(plain, {q, rounded(k), rounded(v)});
    for (size_t i = 0; i < found.size(); ++i) CHECK(at::equal(found[i], expected[i]));
    CHECK(!at::equal(found[0], run(plain, {q, k, v})[0]));
  }
}

// The gradient of a shared prompt is the sum of those of its copies. float64: only the order of
// sums differs.
TEST_CASE("children of a prompt have the gradients of prompts repeated" *
          doctest::test_suite("exact")) {
  constexpr int64_t heads = 3, kv_heads = 1, dim = 6, prompt = 5,
                    width = (heads + 2 * kv_heads) * dim;
  const std::vector<int64_t> lengths{4, 1, 3};
  auto shared = std::make_shared<Forest>(), repeated = std::make_shared<Forest>();
  const int64_t root = shared->add_root(std::vector<int32_t>(prompt));
  std::vector<int64_t> source;  // where each token of `repeated` lies in `shared`
  for (const int64_t length : lengths) {
    const int64_t start = shared->num_tokens();
    shared->add_child(root, std::vector<int32_t>(static_cast<size_t>(length)));
    repeated->add_root(std::vector<int32_t>(static_cast<size_t>(prompt + length)));
    for (int64_t i = 0; i < prompt; ++i) source.push_back(i);
    for (int64_t i = 0; i < length; ++i) source.push_back(start + i);
  }
  for (const int64_t window : {0, 4})
    for (const double cap : {0.0, 2.0}) {
      const AttentionSpec spec{.num_heads = heads,
                               .num_kv_heads = kv_heads,
                               .head_dim = dim,
                               .scale = 0.4,
                               .soft_cap = cap,
                               .window = window,
                               .q_norm = draw({dim}, 8),
                               .k_norm = draw({dim}, 9),
                               .norm_eps = 1e-6};
      const auto run = [&](const std::shared_ptr<Forest>& forest, const at::Tensor& qkv) {
        const Tensors parts =
            qkv.split_with_sizes({heads * dim, kv_heads * dim, kv_heads * dim}, 1);
        return attention(spec, rotary(dim), forest, parts[0].contiguous(), parts[1].contiguous(),
                         parts[2].contiguous());
      };
      const at::Tensor x = draw({shared->num_tokens(), width}, 3),
                       direction = draw({repeated->num_tokens(), heads * dim}, 4);
      const at::Tensor index = at::tensor(source, at::kLong);

      const at::Tensor once = x.clone().requires_grad_(true);
      const at::Tensor out = run(shared, once);
      torch::autograd::backward({out}, {at::zeros_like(out).index_add(0, index, direction)});

      const at::Tensor many = x.index_select(0, index).requires_grad_(true);
      const at::Tensor copies = run(repeated, many);
      torch::autograd::backward({copies}, {direction});

      CHECK(at::equal(copies.detach(), out.detach().index_select(0, index)));
      CHECK(at::allclose(once.grad(), at::zeros_like(x).index_add(0, index, many.grad()), 1e-12,
                         1e-12));
    }
}

TEST_CASE("log-probabilities and entropies from hidden states and the head") {
  const at::Tensor hidden = draw({5, 4}, 1, 2), weight = draw({9, 4}, 2, 2);
  const std::vector<int64_t> target{0, 8, 3, 3, 5};
  for (const double cap : {0.0, 1.7})
    for (const double temperature : {1.0, 0.6})
      for (const bool entropy : {false, true}) {
        CAPTURE(cap);
        CAPTURE(temperature);
        CAPTURE(entropy);
        const double scale = entropy ? 1 : 0.8;
        const HeadSpec spec{.scale = scale,
                            .soft_cap = cap,
                            .temperature = temperature,
                            .entropy = entropy,
                            .log_sum_exp = !entropy};
        const TokenLogp found = token_logp(spec, hidden, weight, target);
        at::Tensor x = scale * hidden.matmul(weight.t());
        if (cap > 0) x = cap * (x / cap).tanh();
        const at::Tensor logp = (x / temperature).log_softmax(1);
        CHECK(at::allclose(found.logp, logp.gather(1, at::tensor(target).unsqueeze(1)).squeeze(1),
                           0, 1e-13));
        CHECK(found.entropy.defined() == entropy);
        CHECK(found.log_sum_exp.defined() == !entropy);
        if (!entropy)
          CHECK(at::allclose(found.log_sum_exp, (x / temperature).logsumexp({1}), 0, 1e-13));
        if (entropy) CHECK(at::allclose(found.entropy, -(logp.exp() * logp).sum(1), 0, 1e-13));
        check_gradients(
            [&](const Tensors& t) {
              const TokenLogp y = token_logp(spec, t[0], t[1], target);
              return Tensors{y.logp, entropy ? y.entropy : y.log_sum_exp};
            },
            {hidden, weight});
        if (!entropy)
          check_gradients(
              [&](const Tensors& t) {
                return Tensors{token_logp(spec, t[0], t[1], target).log_sum_exp};
              },
              {hidden, weight});
      }
}

// Rows of several adapters of different ranks, and rows of none.
TEST_CASE("layers that some rows go through, and what they add to these rows") {
  const at::Tensor x = draw({7, 5}, 1), norm = draw({5}, 2), base = draw({4, 5}, 3),
                   bias = draw({4}, 4);
  const Tensors low{draw({2, 5}, 5), draw({3, 5}, 6)}, up{draw({4, 2}, 7), draw({4, 3}, 8)};
  const RowRange rows[] = {{0, 3}, {4, 7}};
  const auto adapted = [&](const Tensors& t) {
    const Tensors y = linear(LinearInput::rms_norm(t[0], t[1], 1e-2),
                             {{t[2], t[3]}, {t[4], {}, rows[0]}, {t[5], {}, rows[1]}});
    const auto raised = [&](size_t i) {
      return linear(LinearInput::plain(y[1 + i]), {{t[6 + i], {}}})[0];
    };
    return Tensors{add_scaled_rows(y[0], {{raised(0), rows[0], 0.7}, {raised(1), rows[1], 1}})};
  };
  const Tensors inputs{x, norm, base, bias, low[0], low[1], up[0], up[1]};
  check_gradients(adapted, inputs);
  const at::Tensor h = materialize(LinearInput::rms_norm(x, norm, 1e-2));
  at::Tensor expected = h.matmul(base.t()) + bias;
  expected.narrow(0, 0, 3) += 0.7 * h.narrow(0, 0, 3).matmul(low[0].t()).matmul(up[0].t());
  expected.narrow(0, 4, 3) += h.narrow(0, 4, 3).matmul(low[1].t()).matmul(up[1].t());
  CHECK(at::allclose(adapted(inputs)[0], expected, 0, 1e-13));
  CHECK_THROWS_AS(linear(LinearInput::plain(x), {{base, {}, {4, 8}}}), RunError);
  CHECK_THROWS_AS(add_scaled_rows(x, {{x, {0, 3}}}), RunError);
}

// A layer of some rows alone comes first: the others' gradient begins at zero.
TEST_CASE("layers of which none has all rows") {
  const at::Tensor x = draw({5, 3}, 1), a = draw({2, 3}, 2), b = draw({2, 3}, 3);
  check_gradients(
      [](const Tensors& t) {
        return linear(LinearInput::plain(t[0]), {{t[1], {}, {3, 5}}, {t[2], {}, {1, 4}}});
      },
      {x, a, b});
}

// By the definition: logits are scale (hidden weightᵀ + s low upᵀ).
TEST_CASE("log-probabilities of a head with an adapter") {
  const at::Tensor hidden = draw({5, 6}, 1), weight = draw({11, 6}, 2), low = draw({5, 3}, 3),
                   up = draw({11, 3}, 4);
  const std::vector<int64_t> target{3, 0, 10, 3, 7};
  for (const double cap : {0.0, 1.7}) {
    CAPTURE(cap);
    const HeadSpec spec{
        .scale = 0.8, .soft_cap = cap, .temperature = 0.6, .entropy = true, .log_sum_exp = true};
    const auto ours = [&](const Tensors& t) {
      const TokenLogp y = token_logp(spec, t[0], t[1], target, nullptr, {{t[2], t[3], 1.3}});
      return Tensors{y.logp, y.entropy, y.log_sum_exp};
    };
    at::Tensor x = 0.8 * (hidden.matmul(weight.t()) + 1.3 * low.matmul(up.t()));
    if (cap > 0) x = cap * (x / cap).tanh();
    const at::Tensor logp = (x / 0.6).log_softmax(1);
    CHECK(at::allclose(ours({hidden, weight, low, up})[0],
                       logp.gather(1, at::tensor(target).unsqueeze(1)).squeeze(1), 0, 1e-13));
    check_gradients(ours, {hidden, weight, low, up});
  }
}

// Of the second row there are fewer: the others are -1.
TEST_CASE("log-probabilities of several targets of a row") {
  const at::Tensor hidden = draw({3, 6}, 1), weight = draw({11, 6}, 2), low = draw({2, 3}, 3),
                   up = draw({11, 3}, 4);
  const std::vector<int64_t> target{3, 0, 10, 3, 7, -1, -1, -1, 5, 5, 2, 10};
  for (const double cap : {0.0, 1.7}) {
    CAPTURE(cap);
    const HeadSpec spec{.scale = 0.8, .soft_cap = cap, .temperature = 0.6, .entropy = true};
    const auto ours = [&](const Tensors& t) {
      const TokenLogp y = token_logp(spec, t[0], t[1], target, nullptr, {{t[2], t[3], 1.3, 1}});
      std::vector<int64_t> asked;
      for (size_t i = 0; i < target.size(); ++i)
        if (target[i] >= 0) asked.push_back(static_cast<int64_t>(i));
      return Tensors{y.logp.index_select(0, at::tensor(asked)), y.entropy};
    };
    const auto one = [&](int64_t column) {
      std::vector<int64_t> single;
      for (int64_t row = 0; row < 3; ++row)
        single.push_back(std::max<int64_t>(target[static_cast<size_t>(4 * row + column)], 0));
      return token_logp(spec, hidden, weight, single, nullptr, {{low, up, 1.3, 1}}).logp;
    };
    const TokenLogp all = token_logp(spec, hidden, weight, target, nullptr, {{low, up, 1.3, 1}});
    REQUIRE(all.logp.numel() == 12);
    for (int64_t column = 0; column < 4; ++column)
      for (int64_t row = 0; row < 3; ++row) {
        if (target[static_cast<size_t>(4 * row + column)] < 0) continue;
        CHECK(at::equal(all.logp[4 * row + column], one(column)[row]));
      }
    check_gradients(ours, {hidden, weight, low, up});
  }
  CHECK_THROWS_AS(token_logp({}, hidden, weight, {1, 2, 3, 4}), RunError);
  CHECK_THROWS_AS(token_logp({.log_sum_exp = true}, hidden, weight, {1, 2, 3, 4, 5, 6}), RunError);
  CHECK_THROWS_AS(token_logp({}, hidden, weight, {1, 2, 3, 4, 5, -2}), DataError);
  CHECK_THROWS_AS(token_logp({}, hidden, weight, {1, 2, -1}), DataError);
}

TEST_CASE("log-probabilities of a head with adapters of some rows each") {
  const at::Tensor hidden = draw({6, 6}, 1), weight = draw({11, 6}, 2), low = draw({2, 3}, 3),
                   up = draw({11, 3}, 4), other_low = draw({3, 2}, 5), other_up = draw({11, 2}, 6);
  const std::vector<int64_t> target{3, 0, 10, 3, 7, 7};
  const HeadSpec spec{.soft_cap = 1.7, .entropy = true};
  const auto ours = [&](const Tensors& t) {
    const TokenLogp y =
        token_logp(spec, t[0], t[1], target, nullptr, {{t[2], t[3], 1.3}, {t[4], t[5], 0.4, 3}});
    return Tensors{y.logp, y.entropy};
  };
  at::Tensor x = hidden.matmul(weight.t());
  x.narrow(0, 0, 2) += 1.3 * low.matmul(up.t());
  x.narrow(0, 3, 3) += 0.4 * other_low.matmul(other_up.t());
  const at::Tensor logp = (1.7 * (x / 1.7).tanh()).log_softmax(1);
  const Tensors inputs{hidden, weight, low, up, other_low, other_up};
  CHECK(at::allclose(ours(inputs)[0], logp.gather(1, at::tensor(target).unsqueeze(1)).squeeze(1), 0,
                     1e-13));
  check_gradients(ours, inputs);
  CHECK_THROWS_AS(token_logp(spec, hidden, weight, target, nullptr, {{low, up, 1, 5}}), RunError);
}

TEST_CASE("a head's adapter over many chunks") {
  constexpr int64_t rows = 600, vocabulary = 5003;
  const at::Tensor hidden = draw({rows, 7}, 1), weight = draw({vocabulary, 7}, 2, 3),
                   low = draw({rows, 4}, 3), up = draw({vocabulary, 4}, 4, 3);
  std::vector<int64_t> target;
  for (int64_t i = 0; i < rows; ++i) target.push_back(i * 4999 % vocabulary);
  const at::Tensor index = at::tensor(target).unsqueeze(1);
  const Tensors found = analytic(
      [&](const Tensors& t) {
        return Tensors{token_logp({}, t[0], t[1], target, nullptr, {{t[2], t[3], 0.7}}).logp};
      },
      {hidden, weight, low, up});
  const Tensors expected = analytic(
      [&](const Tensors& t) {
        const at::Tensor x = t[0].matmul(t[1].t()) + 0.7 * t[2].matmul(t[3].t());
        return Tensors{x.log_softmax(1).gather(1, index).squeeze(1)};
      },
      {hidden, weight, low, up});
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) CHECK(at::allclose(found[i], expected[i], 1e-9, 1e-11));
}

// Wider than one chunk of the vocabulary and longer than one chunk of rows, against ATen's own
// gradients.
TEST_CASE("log-probabilities over many chunks") {
  constexpr int64_t rows = 600, vocabulary = 5003, width = 7;
  const at::Tensor hidden = draw({rows, width}, 1), weight = draw({vocabulary, width}, 2, 3);
  std::vector<int64_t> target;
  for (int64_t i = 0; i < rows; ++i) target.push_back(i * 4999 % vocabulary);
  const HeadSpec spec{.soft_cap = 4, .temperature = 0.8, .entropy = true, .log_sum_exp = true};
  const Tensors found = analytic(
      [&](const Tensors& t) {
        const TokenLogp y = token_logp(spec, t[0], t[1], target);
        return Tensors{y.logp, y.entropy, y.log_sum_exp};
      },
      {hidden, weight});
  const Tensors expected = analytic(
      [&](const Tensors& t) {
        const at::Tensor x = 4 * (t[0].matmul(t[1].t()) / 4).tanh() / 0.8;
        const at::Tensor logp = x.log_softmax(1);
        return Tensors{logp.gather(1, at::tensor(target).unsqueeze(1)).squeeze(1),
                       -(logp.exp() * logp).sum(1), x.logsumexp({1})};
      },
      {hidden, weight});
  for (size_t i = 0; i < 2; ++i) CHECK(at::allclose(found[i], expected[i], 1e-9, 1e-11));
}

// Rows that keep few tokens, many, and all of a vocabulary of several blocks, against ATen's own
// gradients with the other logits left out.
TEST_CASE("log-probabilities over kept tokens") {
  constexpr int64_t rows = 5, vocabulary = 1300, width = 6;
  const at::Tensor hidden = draw({rows, width}, 1), weight = draw({vocabulary, width}, 2, 3);
  const std::vector<int64_t> target{3, 700, 1299, 512, 40};
  auto kept = std::make_shared<KeptTokens>();
  kept->offset = {0};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t id = 0; id < vocabulary && r != 4; ++id)  // the last row keeps all
      if (id == target[static_cast<size_t>(r)] || (r > 0 && id % (1 + 200 / r) == 1))
        kept->id.push_back(static_cast<int32_t>(id));
    kept->offset.push_back(std::ssize(kept->id));
  }
  at::Tensor left = at::zeros({rows, vocabulary}, at::kBool);
  for (int64_t r = 0; r < rows; ++r) {
    if (r == 4) left[r].fill_(true);
    for (int64_t i = kept->offset[static_cast<size_t>(r)];
         i < kept->offset[static_cast<size_t>(r + 1)]; ++i)
      left[r][kept->id[static_cast<size_t>(i)]] = true;
  }
  for (const double cap : {0.0, 4.0}) {
    CAPTURE(cap);
    const HeadSpec spec{.soft_cap = cap, .temperature = 0.8, .entropy = true, .log_sum_exp = true};
    const Function ours = [&](const Tensors& t) {
      const TokenLogp y = token_logp(spec, t[0], t[1], target, kept);
      return Tensors{y.logp, y.entropy, y.log_sum_exp};
    };
    const Function expected = [&](const Tensors& t) {
      at::Tensor x = t[0].matmul(t[1].t());
      if (cap > 0) x = cap * (x / cap).tanh();
      x = (x / 0.8).masked_fill(left.logical_not(), -1e30);
      const at::Tensor logp = x.log_softmax(1);
      return Tensors{logp.gather(1, at::tensor(target).unsqueeze(1)).squeeze(1),
                     -(logp.exp() * logp).sum(1), x.logsumexp({1})};
    };
    const Tensors values = ours({hidden, weight}), values_expected = expected({hidden, weight});
    for (size_t i = 0; i < 3; ++i) CHECK(at::allclose(values[i], values_expected[i], 1e-11, 1e-11));
    CHECK(values[0][0].item<double>() == doctest::Approx(0).scale(1));  // it keeps one token
    const Tensors found = analytic(ours, {hidden, weight}),
                  found_expected = analytic(expected, {hidden, weight});
    for (size_t i = 0; i < 2; ++i) CHECK(at::allclose(found[i], found_expected[i], 1e-9, 1e-11));
  }
  std::vector<int64_t> other = target;
  other[0] = 4;  // which its row does not keep
  CHECK_THROWS_AS(token_logp({}, hidden, weight, other, kept), DataError);
}

TEST_CASE("embeddings, chosen rows and dropout") {
  const std::vector<int64_t> ids{3, 0, 3, 6, 3};
  const at::Tensor table = draw({7, 4}, 1), index = at::tensor(ids, at::kLong);
  CHECK(at::equal(embedding(table, ids, 1.7), table.index_select(0, index) * 1.7));
  check_gradients([&](const Tensors& t) { return Tensors{embedding(t[0], ids, 1.7)}; },
                  {draw({7, 4}, 1)});
  check_gradients([&](const Tensors& t) { return Tensors{select_rows(t[0], ids)}; },
                  {draw({7, 4}, 2)});
  const std::vector<uint64_t> keys{5, 6, 7};
  check_gradients([&](const Tensors& t) { return Tensors{dropout(t[0], 0.4, 1, 2, 3, keys)}; },
                  {draw({3, 40}, 3)});
}

TEST_CASE("features scaled by magnitude over norm, with and without bias") {
  const at::Tensor x = draw({5, 7}, 1), magnitude = draw({7}, 2, 2), bias = draw({7}, 3);
  const at::Tensor norm = draw({7}, 4).abs() + 0.5;
  check_gradients([&](const Tensors& t) { return Tensors{scale_features(t[0], t[1], norm, t[2])}; },
                  {x, magnitude, bias});
  check_gradients([&](const Tensors& t) { return Tensors{scale_features(t[0], t[1], norm, {})}; },
                  {x, magnitude});
}

// DoRA's whole layer: y = m / ||W + s B A|| (W x + s B A x), the norm a constant.
TEST_CASE("a weight-decomposed layer") {
  const at::Tensor w = draw({6, 5}, 1), x = draw({4, 5}, 2), a = draw({2, 5}, 3),
                   b = draw({6, 2}, 4), magnitude = draw({6}, 5);
  const RowsOf rows = [&](int64_t first, int64_t count) { return w.narrow(0, first, count); };
  const at::Tensor norm = adapted_row_norms(rows, a, b, 0.7);
  const at::Tensor expected = (w + 0.7 * b.mm(a)).norm(2, 1);
  CHECK((norm - expected).abs().max().item<double>() < 1e-14);
  check_gradients(
      [&](const Tensors& t) {
        const Tensors both = linear(LinearInput::plain(t[0]), {{w, {}}, {t[1], {}}});
        const at::Tensor up = linear(LinearInput::plain(both[1]), {{t[2], {}}})[0];
        return Tensors{scale_features(add_scaled(both[0], up, 0.7), t[3], norm, {})};
      },
      {x, a, b, magnitude});
}
