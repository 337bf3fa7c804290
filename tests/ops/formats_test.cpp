// Weights in every quantized format: what products, lookups, parts and orders of inputs give is
// what the float32 matrix of the same values gives, to the bit; the aten backend agrees.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "temper/base/error.h"
#include "temper/ops/layers/embedding.h"
#include "temper/ops/layers/grouped_linear.h"
#include "temper/ops/logits/token_logp.h"
#include "tests/ops/backends.h"
#include "tests/ops/codes.h"

namespace temper::ops::backends {
namespace {

// Calls body(weight, its float32 matrix by the definition) for each format, with offsets and
// without, on the native backend.
template <class Body>
void each_format(int64_t rows, int64_t any_width, Body body) {
  for (const WeightFormat format : quantized_formats())
    for (const bool offsets : {true, false}) {
      if (!offsets && row_of(format).offset == OffsetKind::kNone) continue;
      const int64_t width = allowed_width(format, any_width);
      const Codes codes = random_codes(format, rows, width, 5, 32, offsets);
      CAPTURE(row_of(format).name);
      CAPTURE(offsets);
      body(Weight(native_backend().from_codes(codes, at::kCPU)),
           at::tensor(defined_values(codes), at::kFloat).view({rows, width}));
    }
}

std::vector<int32_t> random_order(int64_t width, uint32_t seed) {
  kernels::Draws draws(seed);
  std::vector<int32_t> order(static_cast<size_t>(width));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<size_t>(draws.below(static_cast<int64_t>(i)))]);
  return order;
}

// 72 rows of a format that GPTQ writes with an order, and their values in that of the codes.
struct Ordered {
  Weight weight;
  at::Tensor values, order;  // order: int64 [in]
};
Ordered ordered(const Backend& backend, uint32_t seed) {
  Codes codes = random_codes(WeightFormat::kInt4Group, 72, 96, seed);
  codes.order = random_order(96, seed);
  return {Weight(backend.from_codes(codes, at::kCPU)),
          at::tensor(defined_values(codes), at::kFloat).view({72, 96}),
          at::tensor(codes.order, at::kInt).to(at::kLong)};
}

at::Tensor product(const at::Tensor& x, const Weight& w) {
  at::Tensor y = at::empty({x.size(0), w.out()});
  multiply(x, w, y);
  return y;
}
at::Tensor product_transposed(const at::Tensor& dy, const Weight& w, at::Tensor dx,
                              bool accumulate) {
  multiply_transposed(dy, w, dx, accumulate);
  return dx;
}

}  // namespace

TEST_CASE("formats: values are the definition's, and products theirs, of any number of rows") {
  each_format(72, 300, [](const Weight& w, const at::Tensor& values) {
    CHECK(at::equal(read(w), values));
    const at::Tensor x = random({40, w.in()}, 1, at::kFloat), y = product(x, Weight(values)),
                     dy = random({40, w.out()}, 2, at::kFloat),
                     dx = random({40, w.in()}, 3, at::kFloat),
                     sum = product_transposed(dy, Weight(values), dx.clone(), true);
    for (int64_t m = 1; m <= 40; ++m) {
      CAPTURE(m);
      const auto rows = [m](const at::Tensor& all) { return all.narrow(0, 0, m).contiguous(); };
      REQUIRE(at::equal(product(rows(x), w), rows(y)));
      REQUIRE(at::equal(product_transposed(rows(dy), w, rows(dx).clone(), true), rows(sum)));
    }
  });
}

TEST_CASE("formats: codes take their bits, and scales float16 where that is exact") {
  for (const WeightFormat format : quantized_formats()) {
    const FormatRow& row = row_of(format);
    CAPTURE(row.name);
    Codes codes = random_codes(format, 64, 512, 6);
    for (const Backend* backend : {&native_backend(), &aten_backend()}) {
      const auto w = backend->from_codes(codes, at::kCPU);
      CHECK(w->codes.numel() == 64 * 512 * row.bits / 8);
      CHECK((w->scales.scalar_type() == (row.scale_bits == 16 ? at::kHalf : at::kFloat)));
    }
    if (row.scale_bits != 16) continue;
    codes.scales.back() = 1.00048828125f + 0x1p-20f;
    const auto w = native_backend().from_codes(codes, at::kCPU);
    CHECK((w->scales.scalar_type() == at::kFloat));
    CHECK(
        at::equal(read(Weight(w)), at::tensor(defined_values(codes), at::kFloat).view({64, 512})));
  }
}

TEST_CASE("formats: rows of an embedding are those of the matrix") {
  const std::vector<int64_t> ids{3, 71, 0, kNoRow, 3, 40};
  each_format(72, 300, [&](const Weight& w, const at::Tensor& values) {
    CHECK(at::equal(embedding(w, ids), embedding(Weight(values), ids)));
    CHECK(at::equal(embedding(w, ids, 1.7), embedding(Weight(values), ids, 1.7)));
  });
  for (const WeightFormat format : quantized_formats()) {
    const Codes codes = random_codes(format, 72, allowed_width(format, 33), 7);
    compare("rows", [&](const Backend& backend) {
      return Tensors{backend.gather_rows(Weight(backend.from_codes(codes, at::kCPU)),
                                         random_ids({50}, 8, 72), 1.7)};
    });
  }
}

TEST_CASE("formats: parts of a weight are its rows") {
  each_format(200, 96, [](const Weight& w, const at::Tensor& values) {
    const at::Tensor x = random({7, w.in()}, 1, at::kFloat);
    for (const auto& [first, count] :
         {std::pair<int64_t, int64_t>{0, 64}, {32, 96}, {160, 40}, {192, 8}}) {
      CAPTURE(first);
      const Weight part = w.part(first, count);
      CHECK(part.out() == count);
      CHECK(at::equal(read(part), values.narrow(0, first, count)));
      CHECK(at::equal(product(x, part), product(x, Weight(values.narrow(0, first, count)))));
      CHECK(at::equal(read(part.part(0, 8)), values.narrow(0, first, 8)));
    }
    CHECK_THROWS_AS(w.part(8, 8), Error);
  });
  for (const WeightFormat format : quantized_formats()) {
    const Codes codes = random_codes(format, 200, allowed_width(format, 33), 7);
    compare("parts", [&](const Backend& backend) {
      const Weight part = Weight(backend.from_codes(codes, at::kCPU)).part(96, 70);
      at::Tensor y = at::empty({3, 70});
      backend.multiply(random({3, part.in()}, 9, at::kFloat), part, y, {});
      return Tensors{y, backend.read(part), backend.gather_rows(part, random_ids({9}, 8, 70), 1)};
    });
  }
}

TEST_CASE("formats: logits and their gradient over a quantized head") {
  const std::vector<int64_t> target{5, 0, 1299, 700, 64};
  each_format(1300, 64, [&](const Weight& w, const at::Tensor& values) {
    const auto run = [&](const Weight& head) {
      const at::Tensor hidden = random({5, w.in()}, 4, at::kFloat).mul_(1e-4).requires_grad_(true);
      const TokenLogp found = token_logp({.entropy = true}, hidden, head, target);
      (found.logp.sum() + found.entropy.sum()).backward();
      return Tensors{found.logp.detach(), found.entropy.detach(), hidden.grad()};
    };
    const Tensors found = run(w), expected = run(Weight(values));
    for (size_t i = 0; i < found.size(); ++i) CHECK(at::equal(found[i], expected[i]));
  });
}

TEST_CASE("formats: inputs are multiplied in the order of the codes") {
  for (const Backend* backend : {&native_backend(), &aten_backend()}) {
    choose_cpu_backend(*backend);
    const Ordered of = ordered(*backend, 3);
    const at::Tensor whole = read(of.weight);
    CHECK(at::equal(whole.index_select(1, of.order), of.values));
    CHECK(at::equal(embedding(of.weight, {7}), whole.narrow(0, 7, 1)));
    const at::Tensor x = random({9, 96}, 1, at::kFloat), dy = random({9, 72}, 2, at::kFloat),
                     dx = random({9, 96}, 3, at::kFloat);
    CHECK(
        at::equal(product(x, of.weight), product(x.index_select(1, of.order), Weight(of.values))));
    for (const bool accumulate : {true, false})
      CHECK(error(product_transposed(dy, of.weight, dx.clone(), accumulate),
                  product_transposed(dy, Weight(whole), dx.clone(), accumulate)) <
            (backend == &native_backend() ? 1e-30 : 1e-6));
  }
  choose_cpu_backend(default_cpu_backend());
}

TEST_CASE("formats: experts, each with an order of its own") {
  const std::vector<int64_t> offsets{0, 4, 4, 9};
  std::vector<LinearOperand> layer, plain;
  for (uint32_t g = 0; g < 3; ++g) {
    layer.push_back({ordered(native_backend(), g).weight, {}});
    plain.push_back({Weight(read(layer.back().weight)), {}});
  }
  layer[1] = plain[1];
  const auto run = [&](const std::vector<LinearOperand>& experts) {
    const at::Tensor x = random({9, 96}, 1, at::kFloat).requires_grad_(true);
    const Tensors y = grouped_linear(GroupedInput::plain(x), offsets, {experts, experts});
    (y[0].sum() + 2 * y[1].sum()).backward();
    return Tensors{y[0].detach(), y[1].detach(), x.grad()};
  };
  const Tensors found = run(layer), expected = run(plain);
  for (size_t i = 0; i < found.size(); ++i) check_close(found[i], expected[i], "experts");
}

TEST_CASE("formats: codes that do not fit together are refused") {
  const auto refused = [](auto change, WeightFormat format = WeightFormat::kQ4K) {
    Codes codes = random_codes(format, 4, 512, 1);
    CHECK_NOTHROW(from_codes(codes));
    change(codes);
    CHECK_THROWS_AS(from_codes(codes), Error);
  };
  refused([](Codes& c) { c.codes.pop_back(); });
  refused([](Codes& c) { c.scales.push_back(1); });
  refused([](Codes& c) { c.offsets.pop_back(); });
  refused([](Codes& c) { c.sub_scales.pop_back(); });
  refused([](Codes& c) { c.sub_offsets.clear(); });
  refused([](Codes& c) { c.sub_offsets[3] = 128; });
  refused([](Codes& c) { c.group = 64; });
  refused([](Codes& c) { c.group = 0; });
  refused([](Codes& c) { c.order = {0, 1}; });
  refused([](Codes& c) { c.order.assign(512, 7); });
  refused([](Codes& c) { c.group = 48; }, WeightFormat::kInt4Group);
  refused([](Codes& c) { c.group = 0; }, WeightFormat::kFp8);
  refused([](Codes& c) { c.offsets = c.scales; }, WeightFormat::kFp8);
}

}  // namespace temper::ops::backends
