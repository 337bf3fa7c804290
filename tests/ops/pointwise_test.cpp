// Functions of losses and sums over rows: against LibTorch's in float64, and the bits of their
// definition in float32.
#include "temper/ops/pointwise.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "temper/base/exact_math.h"
#include "temper/base/random.h"

using namespace temper;

namespace {

at::Tensor normal_draws(at::IntArrayRef sizes, double scale, at::ScalarType type = at::kFloat) {
  const RandomStream stream(3, RandomPurpose::kInit, 1);
  at::Tensor x = at::empty(sizes, at::kDouble);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mutable_data_ptr<double>()[i] = scale * stream.normal(static_cast<uint64_t>(i));
  return x.to(type);
}

struct Elementwise {
  const char* name;
  at::Tensor (*own)(const at::Tensor&);
  at::Tensor (*libtorch)(const at::Tensor&);
  double (*exact)(double);
  bool positive;
};
const Elementwise kElementwise[] = {
    {"exp", &ops::exp, &at::exp, &exact::exp, false},
    {"expm1", &ops::expm1, &at::expm1, &exact::expm1, false},
    {"log", &ops::log, &at::log, &exact::log, true},
    {"sigmoid", &ops::sigmoid, &at::sigmoid, &exact::sigmoid, false},
    {"log_sigmoid", &ops::log_sigmoid, &at::log_sigmoid, &exact::log_sigmoid, false},
};

}  // namespace

TEST_CASE("functions of losses are rounded once, whatever stands beside an element") {
  for (const Elementwise& f : kElementwise) {
    CAPTURE(f.name);
    at::Tensor x = normal_draws({4099}, 3);
    if (f.positive) x = x.abs();
    const at::Tensor y = f.own(x);
    for (int64_t i = 0; i < x.numel(); ++i)
      CHECK(y.const_data_ptr<float>()[i] ==
            static_cast<float>(f.exact(static_cast<double>(x.const_data_ptr<float>()[i]))));
    CHECK(at::equal(f.own(x.slice(0, 3, 4000, 7)), y.slice(0, 3, 4000, 7)));
    CHECK(f.own(at::full({2}, std::nan(""))).isnan().all().item<bool>());
  }
}

TEST_CASE("functions of losses have the gradients of LibTorch's") {
  for (const Elementwise& f : kElementwise) {
    CAPTURE(f.name);
    at::Tensor x = normal_draws({5, 17}, 2, at::kDouble);
    if (f.positive) x = x.abs();
    const at::Tensor dy = normal_draws({17, 5}, 1, at::kDouble).t();  // not contiguous
    const auto gradient = [&](at::Tensor (*function)(const at::Tensor&)) {
      const at::Tensor in = x.clone().requires_grad_();
      return torch::autograd::grad({function(in)}, {in}, {dy})[0];
    };
    CHECK((gradient(f.own) - gradient(f.libtorch)).abs().max().item<double>() < 1e-12);
    CHECK((f.own(x) - f.libtorch(x)).abs().max().item<double>() < 1e-12);
  }
}

TEST_CASE("sums over rows are of ascending numbers in double") {
  for (const int64_t columns : {1, 7, 130, 300}) {
    const at::Tensor x = normal_draws({241, columns}, 1);
    at::Tensor down = at::empty({columns}), across = at::empty({241});
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (int64_t r = 0; r < 241; ++r) sum += x.const_data_ptr<float>()[r * columns + c];
      down.mutable_data_ptr<float>()[c] = static_cast<float>(sum);
    }
    for (int64_t r = 0; r < 241; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < columns; ++c) sum += x.const_data_ptr<float>()[r * columns + c];
      across.mutable_data_ptr<float>()[r] = static_cast<float>(sum);
    }
    CHECK(at::equal(ops::sum_of_rows(x), down));
    CHECK(at::equal(ops::sum_of_rows(x.t().contiguous().t()), down));
    CHECK(at::equal(ops::sum_in_rows(x), across));
    CHECK(at::equal(ops::sum_in_rows(x.view({241, 1, columns})), across.view({241, 1})));
  }
  CHECK(at::equal(ops::sum_of_rows(at::empty({0, 3})), at::zeros({3})));
}
