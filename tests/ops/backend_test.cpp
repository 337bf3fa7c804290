// The aten backend's products, row operations and updates against the native backend's.
#include "temper/ops/backend.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <cmath>

#include "tests/ops/backends.h"
#include "tests/ops/codes.h"

namespace temper::ops::backends {

TEST_CASE("aten: products of tensors, transposed or not, added to and with a bias") {
  each_type([](at::ScalarType type) {
    for (const int64_t m : {0, 1, 37})
      for (const bool ta : {false, true})
        for (const bool tb : {false, true})
          for (const bool accumulate : {false, true}) {
            const int64_t k = 45, n = 29;
            const at::Tensor a = ta ? random({k, m}, 1, type) : random({m, k}, 1, type),
                             b = tb ? random({n, k}, 2, type) : random({k, n}, 2, type),
                             bias = random({n}, 3, type);
            compare("product", [&](const Backend& backend) {
              at::Tensor c = random({m, n}, 4, type);
              backend.product({a, ta}, {b, tb}, c, accumulate, bias, {});
              return Tensors{c};
            });
          }
  });
}

namespace {

// Every product of a weight.
Tensors products_of(const Backend& backend, const Weight& w, int64_t rows, at::ScalarType type) {
  const at::Tensor x = random({rows, w.in()}, 11, type), dy = random({rows, w.out()}, 12, type),
                   bias = random({w.out()}, 13, type);
  at::Tensor y = at::empty({rows, w.out()}, type), dx = random({rows, w.in()}, 14, type);
  backend.multiply(x, w, y, bias);
  backend.multiply_transposed(dy, w, dx, true, {});
  Tensors out{y, dx.clone()};
  backend.multiply_transposed(dy, w, dx, false, {});
  out.push_back(dx);
  if (!w.quantized && w.format != WeightFormat::kBFloat16) {
    at::Tensor dw = random({w.out(), w.in()}, 15, type);
    backend.weight_gradient(w, dy, x, dw, true, {});
    out.push_back(dw);
  }
  return out;
}

}  // namespace

TEST_CASE("aten: a weight's products in every format") {
  for (const WeightFormat format :
       {WeightFormat::kFloat32, WeightFormat::kRoundedBFloat16, WeightFormat::kBFloat16})
    for (const Arithmetic arithmetic : kArithmetics)
      for (const int64_t rows : {0, 1, 19}) {
        Weight w(random({41, 50}, 10, at::kFloat));
        if (format == WeightFormat::kBFloat16) w.values = w.values.to(at::kBFloat16);
        w.format = format;
        w.arithmetic = arithmetic;
        compare(row_of(format).name, [&](const Backend& backend) {
          Tensors out = products_of(backend, w, rows, at::kFloat);
          out.push_back(backend.read(w));
          return out;
        });
      }
  const Weight exact(random({41, 50}, 10, at::kDouble));
  compare("float64",
          [&](const Backend& backend) { return products_of(backend, exact, 19, at::kDouble); });
}

TEST_CASE("aten: quantized weights have native's values, and their products") {
  for (const WeightFormat format : quantized_formats())
    for (const auto& [out, any] :
         {std::pair<int64_t, int64_t>{7, 33}, {64, 64}, {33, 96}, {5, 192}, {1, 1}}) {
      const int64_t in = allowed_width(format, any);
      CAPTURE(row_of(format).name);
      for (const bool offsets : {true, false}) {
        const Codes codes = random_codes(format, out, in, 21, 32, offsets);
        Weight native(native_backend().from_codes(codes, at::kCPU)),
            aten(aten_backend().from_codes(codes, at::kCPU));
        CHECK(at::equal(aten_backend().read(aten), native_backend().read(native)));
        for (const Arithmetic arithmetic :
             {Arithmetic::kExact, Arithmetic::kFast, Arithmetic::kAmx})
          for (const int64_t rows : {0, 1, 19}) {
            native.arithmetic = aten.arithmetic = arithmetic;
            const Tensors expected = products_of(native_backend(), native, rows, at::kFloat),
                          found = products_of(aten_backend(), aten, rows, at::kFloat);
            for (size_t i = 0; i < found.size(); ++i) check_close(found[i], expected[i], "product");
          }
      }
    }
}

TEST_CASE("aten: a quantized matrix that is dequantized in several parts") {
  for (const WeightFormat format : {WeightFormat::kNf4, WeightFormat::kMxFp4, WeightFormat::kQ6K}) {
    // Parts begin within a byte and within a block.
    const int64_t out = 4100, in = allowed_width(format, 4097);
    const Codes codes = random_codes(format, out, in, 21);
    compare("parts", [&](const Backend& backend) {
      return products_of(backend, Weight(backend.from_codes(codes, at::kCPU)), 2, at::kFloat);
    });
  }
}

TEST_CASE("aten: norms and gates with their gradients") {
  each_type([](at::ScalarType type) {
    for (const int64_t rows : {0, 3, 100})
      for (const bool unit : {false, true}) {
        const at::Tensor x = random({rows, 4, 24}, 1, type), weight = random({24}, 2, type),
                         dy = random({rows, 4, 24}, 3, type);
        compare("rms_norm", [&](const Backend& backend) {
          at::Tensor dweight = random({24}, 4, type), none;
          return Tensors{backend.rms_norm(x, weight, 1e-3, unit),
                         backend.rms_norm_backward(x, weight, 1e-3, unit, dy, dweight), dweight,
                         backend.rms_norm_backward(x, weight, 1e-3, unit, dy, none)};
        });
      }
    compare("center", [&](const Backend& backend) {
      return Tensors{backend.center(random({5, 4, 24}, 1, type))};
    });
    const at::Tensor gate = random({17, 31}, 5, type, 6), up = random({17, 31}, 6, type),
                     dy = random({17, 31}, 7, type);
    compare("clamp_scaled", [&](const Backend& backend) {
      return Tensors{backend.clamp_scaled(gate, -0.4, 0.7, 1, -1.3)};
    });
    for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu,
                                        Activation::kSigmoid, Activation::kIdentity})
      compare("gated", [&](const Backend& backend) {
        const auto [dgate, dup] = backend.gated_backward(activation, gate, up, dy);
        return Tensors{backend.gated(activation, gate, up), dgate, dup};
      });
  });
}

TEST_CASE("aten: rows gathered, scattered, scaled and summed") {
  each_type([](at::ScalarType type) {
    for (const int64_t rows : {0, 40}) {
      const at::Tensor x = random({rows, 13}, 1, type), y = random({rows, 13}, 2, type),
                       factor = random({13}, 3, type), table = random({9, 13}, 4, type),
                       ids = random_ids({rows}, 5, 9);
      compare("rows", [&](const Backend& backend) {
        at::Tensor to = table.clone();
        backend.scatter_rows(x, ids, 0.7, to);
        return Tensors{to,
                       backend.gather_rows(Weight(table), ids, 0.7),
                       backend.add_scaled(x, y, 0.3),
                       backend.row_norms(x),
                       backend.scale_columns(x, factor, {}),
                       backend.scale_columns(x, factor, table[0]),
                       backend.column_sums(x, y),
                       backend.squared_distance(x, y),
                       backend.pool_features(x, 5)};
      });
    }
  });
  for (const WeightFormat format : {WeightFormat::kRoundedBFloat16, WeightFormat::kBFloat16}) {
    Weight table(random({9, 13}, 4, at::kFloat));
    if (format == WeightFormat::kBFloat16) table.values = table.values.to(at::kBFloat16);
    table.format = format;
    compare("bfloat16", [&](const Backend& backend) {
      return Tensors{backend.gather_rows(table, random_ids({20}, 5, 9), 3)};
    });
  }
}

TEST_CASE("aten: the cosine of a row of zeros is 0, and has no gradient") {
  each_type([](at::ScalarType type) {
    at::Tensor a = random({12, 21}, 1, type), b = random({12, 21}, 2, type);
    a[3].zero_();
    b[5].zero_();
    a[7].zero_();
    b[7].zero_();
    const at::Tensor g = random({12}, 3, type);
    compare("cosine", [&](const Backend& backend) {
      return Tensors{backend.cosine_distance(a, b), backend.cosine_distance_backward(a, b, g)};
    });
    CHECK(aten_backend().cosine_distance(a, b)[3].item<double>() == 1);
    CHECK(aten_backend().cosine_distance_backward(a, b, g)[7].abs().max().item<double>() == 0);
  });
}

TEST_CASE("aten: dropout drops native's elements") {
  each_type([](at::ScalarType type) {
    for (const int64_t rows : {0, 33})
      for (const double p : {0.1, 0.5, 0.93}) {
        const at::Tensor x = random({rows, 57}, 1, type);
        at::Tensor row = random_ids({rows}, 2, int64_t{1} << 31);
        row.mul_(0x5DEECE66D7654321);  // keys use all bits
        const DropoutKey key{p, 0xFEDCBA9876543210u, 12, 0x8000000000000001u, row};
        CHECK(at::equal(aten_backend().dropout(key, x), native_backend().dropout(key, x)));
      }
  });
}

TEST_CASE("aten: updates of the optimizers") {
  const at::Tensor value = random({31, 7}, 1, at::kFloat);
  compare("adamw", [&](const Backend& backend) {
    const at::Tensor x = value.clone(), first = at::zeros_like(x), second = at::zeros_like(x);
    for (int t = 1; t <= 5; ++t) {
      const AdamWStep step{0.01, 0.9, 0.99, 1e-8, 0.1, 1 - std::pow(0.9, t), 1 - std::pow(0.99, t),
                           0.5};
      backend.adamw(step, random({31, 7}, 10 + static_cast<uint32_t>(t), at::kFloat), x, first,
                    second);
    }
    return Tensors{x, first, second};
  });
  for (const double momentum : {0.0, 0.9})
    compare("sgd", [&](const Backend& backend) {
      const at::Tensor x = value.clone(), buffer = momentum > 0 ? at::zeros_like(x) : at::Tensor();
      for (int t = 0; t < 5; ++t)
        backend.sgd({0.01, momentum, 0.1, 0.5, t == 0},
                    random({31, 7}, 10 + static_cast<uint32_t>(t), at::kFloat), x, buffer);
      return Tensors{x, buffer.defined() ? buffer : x};
    });
  const at::Tensor large = random({3, 1000, 1001}, 2, at::kFloat);
  CHECK(aten_backend().sum_of_squares(large) ==
        doctest::Approx(native_backend().sum_of_squares(large)).epsilon(1e-12));
  CHECK(aten_backend().sum_of_squares(at::empty({0}, at::kFloat)) == 0);
}

TEST_CASE("aten: parameters that require gradients are read and written") {
  at::Tensor value = random({6, 5}, 1, at::kFloat).requires_grad_(true), y = at::empty({2, 6});
  aten_backend().multiply(random({2, 5}, 2, at::kFloat), Weight(value), y, {});
  CHECK(!y.requires_grad());
  aten_backend().sgd({0.1, 0, 0, 1, true}, at::ones({6, 5}), value, {});
  CHECK(value.requires_grad());
}

}  // namespace temper::ops::backends
