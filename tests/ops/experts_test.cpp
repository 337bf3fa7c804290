// Mixtures of experts: products by group are those of single layers, to the bit; routing is as its
// definition says; the two backends agree.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "temper/ops/layers/grouped_linear.h"
#include "temper/ops/layers/routing.h"
#include "tests/ops/backends.h"
#include "tests/ops/codes.h"

namespace temper::ops::backends {
namespace {

struct Layer {
  std::vector<LinearOperand> operands;
  std::vector<int64_t> offsets;
};

// Five experts of which one gets no row and one many.
Layer layer_of(WeightFormat format, bool bias, int64_t out, int64_t in) {
  Layer layer{{}, {0, 1, 70, 70, 73, 80}};
  for (uint32_t g = 0; g < 5; ++g) {
    const at::Tensor values = random({out, in}, 100 + g, at::kFloat);
    Weight w(values);
    w.format = format;
    if (format == WeightFormat::kBFloat16) w.values = values.to(at::kBFloat16);
    if (row_of(format).of_files)
      w = Weight(from_codes(random_codes(format, out, in, g)));
    else if (is_quantized(format))
      w = Weight(quantize(values, format));
    layer.operands.push_back({w, bias ? random({out}, 200 + g, at::kFloat) : at::Tensor()});
  }
  return layer;
}

}  // namespace

TEST_CASE("a group's product is its layer's, to the bit, in every format") {
  for (const FormatRow& row : kWeightFormats)
    for (const Arithmetic arithmetic : kArithmetics)
      for (const bool packed : {false, true}) {
        const WeightFormat format = row.format;
        CAPTURE(row.name);
        CAPTURE(packed);
        Layer layer = layer_of(format, packed, 112, 256);
        const at::Tensor x = random({80, 256}, 1, at::kFloat),
                         dy = random({80, 112}, 2, at::kFloat);
        for (LinearOperand& operand : layer.operands) {
          operand.weight.arithmetic = arithmetic;
          if (packed) operand.weight.panels = pack(operand.weight);
        }
        const Backend& native = native_backend();
        at::Tensor y = at::empty({80, 112}), dx = random({80, 256}, 3, at::kFloat), y1 = y.clone(),
                   dx1 = dx.clone();
        std::vector<at::Tensor> dw, dw1;
        const bool trains =
            format == WeightFormat::kFloat32 || format == WeightFormat::kRoundedBFloat16;
        for (const bool one_by_one : {false, true}) {
          at::Tensor& to = one_by_one ? y1 : y;
          at::Tensor& dto = one_by_one ? dx1 : dx;
          std::vector<at::Tensor>& wto = one_by_one ? dw1 : dw;
          for (size_t g = 0; g < 5; ++g) wto.push_back(at::zeros({112, 256}));
          if (one_by_one) {
            native.Backend::grouped_multiply(x, layer.offsets, layer.operands, to);
            native.Backend::grouped_multiply_transposed(dy, layer.offsets, layer.operands, dto,
                                                        true);
            if (trains)
              native.Backend::grouped_weight_gradients(layer.operands, dy, x, layer.offsets, wto);
          } else {
            native.grouped_multiply(x, layer.offsets, layer.operands, to);
            native.grouped_multiply_transposed(dy, layer.offsets, layer.operands, dto, true);
            if (trains) native.grouped_weight_gradients(layer.operands, dy, x, layer.offsets, wto);
          }
        }
        CHECK(at::equal(y, y1));
        CHECK(at::equal(dx, dx1));
        for (size_t g = 0; g < 5; ++g) CHECK(at::equal(dw[g], dw1[g]));
      }
}

TEST_CASE("products of few rows with several weights are each one's, to the bit, in every format") {
  for (const FormatRow& row : kWeightFormats)
    for (const Arithmetic arithmetic : kArithmetics)
      for (const int64_t rows : {1, 12}) {
        CAPTURE(row.name);
        CAPTURE(rows);
        std::vector<LinearOperand> layers{layer_of(row.format, true, 368, 256).operands[0],
                                          layer_of(row.format, false, 112, 256).operands[1]};
        const at::Tensor x = random({rows, 256}, 1, at::kFloat);
        std::vector<at::Tensor> y, expected;
        for (LinearOperand& operand : layers) {
          operand.weight.arithmetic = arithmetic;
          operand.weight.panels = pack(operand.weight);
          y.push_back(at::full({rows, operand.weight.out()}, NAN));
          expected.push_back(y.back().clone());
        }
        const Backend& native = native_backend();
        native.multiply_each(x, layers, y);
        native.Backend::multiply_each(x, layers, expected);
        for (size_t i = 0; i < y.size(); ++i) CHECK(at::equal(y[i], expected[i]));
      }
}

TEST_CASE("aten: products by group, gathered and gated, with their gradients") {
  each_type([](at::ScalarType type) {
    for (const bool gated : {false, true})
      compare("grouped", [&](const Backend& backend) {
        choose_cpu_backend(backend);
        Tensors leaves{random({gated ? 6 : 4, gated ? 10 : 5}, 1, type), random({7, 5}, 2, type),
                       random({7, 5}, 3, type), random({7}, 4, type)};
        for (at::Tensor& x : leaves) x.requires_grad_(true);
        const GroupedInput in = gated ? GroupedInput::gated(leaves[0], {Activation::kSilu})
                                      : GroupedInput::select(leaves[0], {3, 0, 1, 3, 2, 0});
        const at::Tensor y = grouped_linear(
            in, {0, 4, 6}, {{{Weight(leaves[1]), leaves[3]}, {Weight(leaves[2]), {}}}})[0];
        (y * random({6, 7}, 5, type)).sum().backward();
        Tensors out{y.detach()};
        for (const at::Tensor& x : leaves) out.push_back(x.grad());
        choose_cpu_backend(default_cpu_backend());
        return out;
      });
  });
}

namespace {

std::vector<RouterSpec> router_specs() {
  return {{.experts = 12, .chosen = 3},
          {.experts = 12, .chosen = 3, .normalize = true, .scale = 2.5},
          {.experts = 12, .chosen = 4, .score = RouterScore::kSigmoid},
          {.experts = 12,
           .chosen = 4,
           .score = RouterScore::kSigmoid,
           .normalize = true,
           .scale = 2.5,
           .groups = 4,
           .chosen_groups = 2}};
}

}  // namespace

TEST_CASE("aten: routing, its gradient, the probabilities and the combination") {
  each_type([](at::ScalarType type) {
    for (const RouterSpec& spec : router_specs())
      for (const bool biased : {false, true}) {
        if (biased && spec.score == RouterScore::kSoftmax) continue;
        compare("routing", [&](const Backend& backend) {
          const at::Tensor logits = random({9, 12}, 1, type, 3),
                           bias = biased ? random({12}, 2, type, 0.3) : at::Tensor();
          const Routing r = backend.route(spec, logits, bias);
          const at::Tensor g = random({9, 12}, 4, type);
          Tensors out{
              r.expert.to(type), r.weight,
              backend.route_backward(spec, logits, r.expert, random({9, spec.chosen}, 5, type)),
              backend.router_probabilities(logits),
              backend.router_probabilities_backward(logits, g)};
          const ExpertRows rows = rows_by_expert(r.expert, 12);
          const at::Tensor x = random({9 * spec.chosen, 20}, 6, type);
          at::Tensor y = random({9, 20}, 8, type);
          backend.combine(x, r.weight, rows.place, y, true);
          out.push_back(y.clone());
          backend.combine(x, r.weight, rows.place, y, false);
          out.push_back(y);
          const auto [dx, dweight] =
              backend.combine_backward(x, r.weight, rows.place, random({9, 20}, 7, type));
          out.push_back(dx);
          out.push_back(dweight);
          // The rows of experts 4 to 7 alone.
          const ExpertRows some = rows_of_experts(rows, 4, 4);
          const at::Tensor of_some = random({std::ssize(some.token), 20}, 9, type);
          at::Tensor z = random({9, 20}, 10, type);
          const auto [dz, dweight_of_some] =
              backend.combine_backward(of_some, r.weight, some.place, z.clone());
          backend.combine(of_some, r.weight, some.place, z, true);
          for (const at::Tensor& one : {z, dz, dweight_of_some}) out.push_back(one);
          return out;
        });
      }
  });
}

TEST_CASE("equal logits choose the lower expert, and NaN none that does not exist") {
  const RouterSpec spec{.experts = 6, .chosen = 2, .normalize = true};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor logits = at::tensor({1.f, 3.f, 3.f, 3.f, 0.f, -1.f,  //
                                        2.f, 2.f, 2.f, 2.f, 2.f, 2.f,   //
                                        nan, nan, nan, nan, nan, nan,   //
                                        nan, 1.f, nan, 2.f, nan, nan})
                                .view({4, 6});
  const Routing r = native_backend().route(spec, logits, {});
  CHECK(at::equal(r.expert, at::tensor({1, 2, 0, 1, 0, 1, 1, 3}, at::kLong).view({4, 2})));
  CHECK(at::equal(r.weight[0], at::tensor({0.5f, 0.5f})));
}

TEST_CASE("each token's routing and combination are those of the token alone, to the bit") {
  for (const RouterSpec& spec : router_specs()) {
    const at::Tensor logits = random({33, 12}, 1, at::kFloat, 3);
    const Routing all = native_backend().route(spec, logits, {});
    const ExpertRows rows = rows_by_expert(all.expert, 12);
    CHECK(rows.offsets.back() == 33 * spec.chosen);
    const at::Tensor x = random({33 * spec.chosen, 40}, 2, at::kFloat);
    at::Tensor y = at::empty({33, 40});
    native_backend().combine(x, all.weight, rows.place, y, false);
    for (int64_t n = 0; n < 33; ++n) {
      const Routing one = native_backend().route(spec, logits.narrow(0, n, 1), {});
      CHECK(at::equal(one.expert[0], all.expert[n]));
      CHECK(at::equal(one.weight[0], all.weight[n]));
      at::Tensor expected = at::zeros({1, 40});
      for (int64_t j = 0; j < spec.chosen; ++j) {
        const int64_t row = rows.place[n][j].item<int64_t>();
        CHECK(rows.token[static_cast<size_t>(row)] == n);
        expected = native_backend().add_scaled(expected, x.narrow(0, row, 1),
                                               all.weight[n][j].item<double>());
      }
      CHECK(at::equal(y.narrow(0, n, 1), expected));
    }
  }
}

}  // namespace temper::ops::backends
