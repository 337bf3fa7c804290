#include "temper/ops/native/kernels/rows.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/ops/kernels.h"

using namespace temper::kernels;

namespace {

constexpr int64_t kWidths[] = {1, 17, 72, 100, 331, 512, 513, 1100};
constexpr int64_t kRows = 100;  // enough for several threads at the larger widths

int64_t blocks_of(int64_t width) { return (width + kVocabularyBlock - 1) / kVocabularyBlock; }

// The outputs of every kernel over the same rows.
std::vector<float> every_kernel(int64_t rows, int64_t width, const std::vector<float>& x,
                                const std::vector<float>& g, const std::vector<float>& weight) {
  const RowKernels<float>& kernels = row_kernels<float>();
  const int64_t count = rows * width;
  std::vector<float> all, y(x.size()), dx(x.size()), other(x.size()), dweight(weight.size());
  const auto put = [&](const std::vector<float>& v) { all.insert(all.end(), v.begin(), v.end()); };
  for (const bool add_unit_offset : {false, true}) {
    kernels.rms_norm(rows, width, x.data(), weight.data(), 1e-6, add_unit_offset, y.data());
    put(y);
    std::fill(dx.begin(), dx.end(), 0.0f);
    kernels.rms_norm_backward(rows, width, x.data(), weight.data(), 1e-6, add_unit_offset, g.data(),
                              dx.data(), dweight.data());
    put(dx);
  }
  put(dweight);
  for (const Gate gate :
       {Gate::kSilu, Gate::kGeluTanh, Gate::kGelu, Gate::kSigmoid, Gate::kIdentity}) {
    kernels.gated(count, gate, x.data(), g.data(), y.data());
    put(y);
    kernels.gated_backward(count, gate, x.data(), g.data(), y.data(), dx.data(), other.data());
    put(dx);
    put(other);
  }
  kernels.add_scaled(count, x.data(), 0.3f, g.data(), y.data());
  put(y);
  y = x;
  kernels.soft_cap(count, 3.0f, y.data());
  put(y);
  const int64_t blocks = blocks_of(width);
  std::vector<SoftmaxPart<float>> parts(static_cast<size_t>(rows * blocks));
  kernels.softmax_parts(rows, width, x.data(), width, parts.data(), blocks);
  std::vector<float> lse(static_cast<size_t>(rows)), entropy(lse);
  kernels.join_parts(rows, blocks, parts.data(), lse.data(), entropy.data());
  put(lse);
  put(entropy);
  const std::vector<int64_t> target(static_cast<size_t>(rows), width / 2);
  y = x;
  kernels.softmax_gradient(rows, width, 0, target.data(), lse.data(), entropy.data(), lse.data(),
                           entropy.data(), y.data(), width);
  put(y);
  y = x;
  kernels.softmax_gradient(rows, width, 0, target.data(), lse.data(), nullptr, lse.data(), nullptr,
                           y.data(), width);
  put(y);
  kernels.center(rows, width, x.data(), y.data());
  put(y);
  const std::vector<uint64_t> key(static_cast<size_t>(rows), 5);
  kernels.dropout_rows(rows, width, 1, 2, 3, key.data(), 0.4, x.data(), y.data());
  put(y);
  if (width % 2 == 0) {
    std::vector<int64_t> position(static_cast<size_t>(rows));
    for (int64_t i = 0; i < rows; ++i) position[static_cast<size_t>(i)] = i;
    for (const bool inverse : {false, true})
      for (const bool interleaved : {false, true}) {
        y = x;
        kernels.rotate(rows, 1, width, {width, interleaved}, position.data(), g.data(), x.data(),
                       inverse, y.data());
        put(y);
      }
  }
  return all;
}

// One step of an optimizer after another.
std::vector<float> optimizers(const std::vector<float>& x, const std::vector<float>& g) {
  const int64_t count = static_cast<int64_t>(x.size());
  std::vector<float> p = x, q = x, first(x.size()), second(x.size()), buffer(x.size());
  for (int t = 1; t <= 3; ++t) {
    adamw(count, {1e-2, 0.9, 0.99, 1e-8, 0.1, 1 - std::pow(0.9, t), 1 - std::pow(0.99, t), 0.5},
          g.data(), p.data(), first.data(), second.data());
    sgd(count, 1e-2, 0.9, 0.1, 0.5, t == 1, g.data(), q.data(), buffer.data());
  }
  p.insert(p.end(), q.begin(), q.end());
  return p;
}

}  // namespace

TEST_CASE("every SIMD target and number of threads gives the same bits") {
  std::vector<std::vector<float>> expected;
  std::vector<double> sums;
  bool first = true;
  for_each_target([&] {
    Draws draws(7);
    size_t i = 0;
    for (const int64_t width : kWidths) {
      CAPTURE(width);
      const std::vector<float> x = draws.floats(kRows * width, 6),
                               g = draws.floats(kRows * width, 4), weight = draws.floats(width, 2);
      std::vector<float> found = every_kernel(kRows, width, x, g, weight);
      const std::vector<float> stepped = optimizers(x, g);
      found.insert(found.end(), stepped.begin(), stepped.end());
      if (first) {
        expected.push_back(found);
        sums.push_back(sum_of_squares(kRows * width, x.data()));
      } else {
        CHECK(same_bits(found, expected[i]));
        CHECK(sum_of_squares(kRows * width, x.data()) == sums[i]);
      }
      ++i;
    }
    first = false;
  });
}

TEST_CASE("a row gives the same bits alone and in a batch") {
  const RowKernels<float>& kernels = row_kernels<float>();
  for (const int64_t width : kWidths) {
    CAPTURE(width);
    Draws draws(8);
    const std::vector<float> x = draws.floats(37 * width, 6), g = draws.floats(37 * width, 4),
                             weight = draws.floats(width, 2);
    const auto forward = [&](int64_t begin, int64_t rows) {
      const int64_t count = rows * width, blocks = blocks_of(width);
      const float *in = x.data() + begin * width, *up = g.data() + begin * width;
      std::vector<float> norm(static_cast<size_t>(count)), gate(norm), capped(in, in + count),
          lse(static_cast<size_t>(rows)), entropy(lse);
      kernels.rms_norm(rows, width, in, weight.data(), 1e-6, true, norm.data());
      kernels.gated(count, Gate::kGeluTanh, in, up, gate.data());
      kernels.soft_cap(count, 3.0f, capped.data());
      std::vector<SoftmaxPart<float>> parts(static_cast<size_t>(rows * blocks));
      kernels.softmax_parts(rows, width, in, width, parts.data(), blocks);
      kernels.join_parts(rows, blocks, parts.data(), lse.data(), entropy.data());
      return std::vector{norm, gate, capped, lse, entropy};
    };
    const std::vector<std::vector<float>> all = forward(0, 37);
    for (int64_t row = 0; row < 37; ++row) {
      const std::vector<std::vector<float>> alone = forward(row, 1);
      for (size_t k = 0; k < all.size(); ++k) {
        const int64_t wide = k < 3 ? width : 1;
        CHECK(
            same_bits(alone[k], {all[k].begin() + row * wide, all[k].begin() + (row + 1) * wide}));
      }
    }
  }
}

// float32 against the C library in float64; a few units in the last place each.
TEST_CASE("norms, gates, caps and softmaxes are what they are called") {
  const RowKernels<float>& kernels = row_kernels<float>();
  Draws draws(9);
  constexpr int64_t width = 1100;
  const std::vector<float> x = draws.floats(width, 9), up = draws.floats(width, 2),
                           weight = draws.floats(width, 2);
  std::vector<float> y(x.size());
  double squares = 0, sum = 0, entropy = 0;
  for (const float v : x) squares += double{v} * v;
  for (const float v : x) sum += std::exp(double{v});
  for (const float v : x) entropy -= std::exp(double{v}) / sum * (v - std::log(sum));

  kernels.rms_norm(1, width, x.data(), weight.data(), 1e-2, true, y.data());
  for (size_t i = 0; i < x.size(); ++i)
    CHECK(y[i] == doctest::Approx(x[i] / std::sqrt(squares / width + 1e-2) * (1.0 + weight[i]))
                      .epsilon(1e-6));

  const auto phi = [](double v) { return 0.5 * (1 + std::erf(v / std::sqrt(2.0))); };
  const auto tanh_gelu = [](double v) {
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  };
  const auto close = [](float found, double expected) {
    return std::abs(found - expected) < 2e-6 * std::max(1.0, std::abs(expected));
  };
  kernels.gated(width, Gate::kSilu, x.data(), up.data(), y.data());
  for (size_t i = 0; i < x.size(); ++i)
    CHECK(close(y[i], up[i] * double{x[i]} / (1 + std::exp(-double{x[i]}))));
  kernels.gated(width, Gate::kGelu, x.data(), up.data(), y.data());
  for (size_t i = 0; i < x.size(); ++i) CHECK(close(y[i], up[i] * (x[i] * phi(x[i]))));
  kernels.gated(width, Gate::kGeluTanh, x.data(), up.data(), y.data());
  for (size_t i = 0; i < x.size(); ++i) CHECK(close(y[i], up[i] * tanh_gelu(x[i])));
  y = x;
  kernels.soft_cap(width, 3.0f, y.data());
  for (size_t i = 0; i < x.size(); ++i) CHECK(close(y[i], 3 * std::tanh(x[i] / 3.0)));

  std::vector<SoftmaxPart<float>> parts(static_cast<size_t>(blocks_of(width)));
  kernels.softmax_parts(1, width, x.data(), width, parts.data(), blocks_of(width));
  float found_sum = 0, found_entropy = 0;
  kernels.join_parts(1, blocks_of(width), parts.data(), &found_sum, &found_entropy);
  CHECK(close(found_sum, std::log(sum)));
  CHECK(close(found_entropy, entropy));
}

TEST_CASE("dropout's random numbers belong to a row's key, not to its place") {
  const RowKernels<float>& kernels = row_kernels<float>();
  constexpr int64_t width = 4001;
  const std::vector<float> x(2 * width, 1.0f);
  const auto dropped = [&](std::vector<uint64_t> keys, uint64_t step) {
    std::vector<float> y(keys.size() * width);
    kernels.dropout_rows(static_cast<int64_t>(keys.size()), width, 1, step, 3, keys.data(), 0.25,
                         x.data(), y.data());
    return y;
  };
  const std::vector<float> both = dropped({8, 9}, 2), alone = dropped({9}, 2);
  CHECK(same_bits(alone, {both.begin() + width, both.end()}));
  CHECK(!same_bits(alone, {both.begin(), both.begin() + width}));
  CHECK(!same_bits(alone, dropped({9}, 3)));
  int64_t kept = 0;
  for (const float v : alone) {
    CHECK((v == 0.0f || v == 1.0f / 0.75f));
    kept += v != 0.0f;
  }
  CHECK(std::abs(static_cast<double>(kept) / width - 0.75) < 0.03);  // over four deviations
}
