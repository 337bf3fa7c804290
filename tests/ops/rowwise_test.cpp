// The kernels of rows.h against their definition (rows_definition.h) bit for bit: every SIMD target
// of this machine, one and two threads, odd widths, rows that are aligned to nothing.
#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "temper/ops/native/kernels/rows.h"
#include "tests/ops/kernels.h"
#include "tests/ops/rows_definition.h"

using namespace temper;
using kernels::for_each_target;
using kernels::Gate;
using kernels::Rotation;
using kernels::row_kernels;

namespace {

// Floats that begin one float behind an aligned address.
class Values {
 public:
  explicit Values(int64_t count, float fill = 0) : storage_(static_cast<size_t>(count) + 1, fill) {}
  float* data() { return storage_.data() + 1; }
  const float* data() const { return storage_.data() + 1; }
  int64_t size() const { return static_cast<int64_t>(storage_.size()) - 1; }
  float& operator[](int64_t i) { return data()[i]; }
  bool operator==(const Values& other) const {
    return size() == other.size() &&
           std::memcmp(data(), other.data(), static_cast<size_t>(size()) * sizeof(float)) == 0;
  }

 private:
  std::vector<float> storage_;
};

Values normal(int64_t count, uint64_t stream, float scale = 1) {
  const RandomStream random(1, RandomPurpose::kInit, stream);
  Values values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = scale * random.normal(static_cast<uint64_t>(i));
  return values;
}

struct Shape {
  int64_t rows, width;
};
// The last two are large enough to be shared among threads.
constexpr Shape kShapes[] = {{3, 1}, {5, 17}, {4, 72}, {7, 100}, {2, 513}, {131, 331}, {70, 1030}};

}  // namespace

TEST_CASE("RMS norm and its gradient") {
  for (const Shape& shape : kShapes)
    for (const bool add_unit_offset : {false, true}) {
      const int64_t rows = shape.rows, width = shape.width, n = rows * width;
      CAPTURE(width);
      const Values x = normal(n, 1, 3), weight = normal(width, 2), dy = normal(n, 3);
      Values y(n), dx(n, 0.5f), dweight(width, 0.25f);
      definition::rms_norm(rows, width, x.data(), weight.data(), 1e-6f, add_unit_offset, y.data());
      definition::rms_norm_backward(rows, width, x.data(), weight.data(), 1e-6f, add_unit_offset,
                                    dy.data(), dx.data(), dweight.data());
      for_each_target([&] {
        const auto& kernel = row_kernels<float>();
        Values got(n), got_dx(n, 0.5f), got_dweight(width, 0.25f), other_dx(n, 0.5f);
        kernel.rms_norm(rows, width, x.data(), weight.data(), 1e-6, add_unit_offset, got.data());
        CHECK(got == y);
        kernel.rms_norm_backward(rows, width, x.data(), weight.data(), 1e-6, add_unit_offset,
                                 dy.data(), got_dx.data(), got_dweight.data());
        CHECK(got_dx == dx);
        CHECK(got_dweight == dweight);
        kernel.rms_norm_backward(rows, width, x.data(), weight.data(), 1e-6, add_unit_offset,
                                 dy.data(), other_dx.data(), nullptr);
        CHECK(other_dx == dx);
      });
    }
}

TEST_CASE("rotary embedding and its inverse") {
  struct {
    int64_t rows, heads, dim;
  } constexpr shapes[] = {{3, 1, 2}, {5, 3, 10}, {4, 2, 66}, {300, 2, 64}};
  for (const auto& shape : shapes) {
    const int64_t rows = shape.rows, heads = shape.heads, dim = shape.dim;
    CAPTURE(dim);
    constexpr int64_t kPositions = 11;
    Values cos(kPositions * dim / 2), sin(kPositions * dim / 2);
    for (int64_t i = 0; i < cos.size(); ++i) {
      cos[i] = std::cos(0.37f * static_cast<float>(i));
      sin[i] = std::sin(0.37f * static_cast<float>(i));
    }
    std::vector<int64_t> position;
    for (int64_t r = 0; r < rows; ++r) position.push_back(r * 7 % kPositions);
    const Values x = normal(rows * heads * dim, 4);
    for (const bool inverse : {false, true})
      for (const Rotation rotation :
           {Rotation{dim, false}, {dim, true}, {dim / 4 * 2, false}, {dim / 4 * 2, true}}) {
        CAPTURE(rotation.rotated);
        CAPTURE(rotation.interleaved);
        Values want = x;
        definition::rotate(rows, heads, dim, rotation, position.data(), cos.data(), sin.data(),
                           inverse, want.data());
        for_each_target([&] {
          const auto& kernel = row_kernels<float>();
          Values got = x;
          kernel.rotate(rows, heads, dim, rotation, position.data(), cos.data(), sin.data(),
                        inverse, got.data());
          CHECK(got == want);
        });
      }
  }
}

TEST_CASE("rows less their means") {
  struct {
    int64_t rows, width;
  } constexpr shapes[] = {{3, 1}, {5, 17}, {2, 331}, {300, 64}};
  for (const auto& shape : shapes) {
    const Values x = normal(shape.rows * shape.width, 4, 3);
    Values want(x.size());
    definition::center(shape.rows, shape.width, x.data(), want.data());
    for_each_target([&] {
      Values got(x.size());
      row_kernels<float>().center(shape.rows, shape.width, x.data(), got.data());
      CHECK(got == want);
    });
  }
}

TEST_CASE("gated activations and their gradients") {
  for (const int64_t n : {1, 17, 331, 40001})
    for (const Gate kind :
         {Gate::kSilu, Gate::kGeluTanh, Gate::kGelu, Gate::kSigmoid, Gate::kIdentity}) {
      const Values gate = normal(n, 5, 6), up = normal(n, 6), dy = normal(n, 7);
      Values y(n), dgate(n), dup(n);
      for (int64_t i = 0; i < n; ++i) {
        const float g = gate.data()[i], value = definition::gate_value(kind, g);
        y[i] = value * up.data()[i];
        dup[i] = dy.data()[i] * value;
        dgate[i] = dy.data()[i] * up.data()[i] * definition::gate_slope(kind, g);
      }
      for_each_target([&] {
        const auto& kernel = row_kernels<float>();
        Values got(n), got_dgate(n), got_dup(n);
        kernel.gated(n, kind, gate.data(), up.data(), got.data());
        kernel.gated_backward(n, kind, gate.data(), up.data(), dy.data(), got_dgate.data(),
                              got_dup.data());
        CHECK(got == y);
        CHECK(got_dgate == dgate);
        CHECK(got_dup == dup);
      });
    }
}

TEST_CASE("sums and soft caps") {
  for (const int64_t n : {1, 17, 331, 40001}) {
    const Values a = normal(n, 8), b = normal(n, 9, 50);
    Values sum(n), capped(n);
    for (int64_t i = 0; i < n; ++i) {
      sum[i] = std::fma(0.3f, b.data()[i], a.data()[i]);
      capped[i] = 30.0f * definition::elementary::tanh_of(b.data()[i] / 30.0f);
    }
    for_each_target([&] {
      const auto& kernel = row_kernels<float>();
      Values got(n), got_capped = b;
      kernel.add_scaled(n, a.data(), 0.3f, b.data(), got.data());
      kernel.soft_cap(n, 30.0f, got_capped.data());
      CHECK(got == sum);
      CHECK(got_capped == capped);
    });
  }
}

TEST_CASE("gathering rows of a table, and adding rows to it in order") {
  constexpr int64_t kTable = 9;
  for (const Shape& shape : kShapes) {
    const int64_t rows = shape.rows, width = shape.width;
    CAPTURE(width);
    std::vector<int64_t> id;
    for (int64_t r = 0; r < rows; ++r) id.push_back(r * r % kTable);
    const Values table = normal(kTable * width, 10), dout = normal(rows * width, 11);
    Values out(rows * width), dtable(kTable * width, 0.5f);
    for (int64_t i = 0; i < rows * width; ++i) {
      const int64_t at = id[static_cast<size_t>(i / width)] * width + i % width;
      out[i] = table.data()[at] * 8.5f;
      dtable[at] = std::fma(8.5f, dout.data()[i], dtable[at]);
    }
    for_each_target([&] {
      const auto& kernel = row_kernels<float>();
      Values got(rows * width), got_dtable(kTable * width, 0.5f);
      kernel.gather_rows(rows, width, table.data(), id.data(), 8.5f, got.data());
      kernel.scatter_rows(rows, width, dout.data(), id.data(), 8.5f, got_dtable.data());
      CHECK(got == out);
      CHECK(got_dtable == dtable);
    });
  }
}

TEST_CASE("log-sum-exp, entropy and the gradient of both") {
  for (const Shape& shape : kShapes) {
    const int64_t rows = shape.rows, width = shape.width;
    CAPTURE(width);
    const int64_t blocks = (width + kernels::kVocabularyBlock - 1) / kernels::kVocabularyBlock;
    const Values x = normal(rows * width, 12, 5), g = normal(rows, 13), h = normal(rows, 14);
    Values lse(rows), entropy(rows), dx(rows * width), dx_plain(rows * width);
    std::vector<int64_t> target;
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = x.data() + r * width;
      target.push_back(r % 3 == 2 ? width + 5
                                  : r * 31 % width);  // some lie in another chunk of the vocabulary
      const definition::LogSumExp want = definition::log_sum_exp(row, width);
      lse[r] = want.value;
      entropy[r] = want.entropy;
      definition::softmax_gradient(row, width, target.back(), want, g.data()[r], h.data() + r,
                                   dx.data() + r * width);
      definition::softmax_gradient(row, width, target.back(), want, g.data()[r], nullptr,
                                   dx_plain.data() + r * width);
      target.back() += 1024;  // columns here are entries 1024, 1025, ...
    }
    for_each_target([&] {
      const auto& kernel = row_kernels<float>();
      std::vector<kernels::SoftmaxPart<float>> parts(static_cast<size_t>(rows * blocks));
      Values got_lse(rows), got_entropy(rows), got_dx = x, got_plain = x;
      kernel.softmax_parts(rows, width, x.data(), width, parts.data(), blocks);
      kernel.join_parts(rows, blocks, parts.data(), got_lse.data(), got_entropy.data());
      CHECK(got_lse == lse);
      CHECK(got_entropy == entropy);
      kernel.softmax_gradient(rows, width, 1024, target.data(), lse.data(), entropy.data(),
                              g.data(), h.data(), got_dx.data(), width);
      kernel.softmax_gradient(rows, width, 1024, target.data(), lse.data(), entropy.data(),
                              g.data(), nullptr, got_plain.data(), width);
      CHECK(got_dx == dx);
      CHECK(got_plain == dx_plain);
    });
  }
}

TEST_CASE("dropout keeps what the row's own stream says, whatever stands beside it") {
  for (const Shape& shape : kShapes) {
    const int64_t rows = shape.rows, width = shape.width;
    CAPTURE(width);
    const Values x = normal(rows * width, 15);
    Values want(rows * width);
    std::vector<uint64_t> key;
    for (int64_t r = 0; r < rows; ++r) {
      key.push_back(static_cast<uint64_t>(r * 1000003));
      const RandomStream stream(5, RandomPurpose::kDropout, 6, 7, key.back());
      for (int64_t i = 0; i < width; ++i)
        if (stream.uniform(static_cast<uint64_t>(i)) >= 0.3)
          want[r * width + i] = x.data()[r * width + i] * static_cast<float>(1 / 0.7);
    }
    for_each_target([&] {
      const auto& kernel = row_kernels<float>();
      Values got(rows * width);
      kernel.dropout_rows(rows, width, 5, 6, 7, key.data(), 0.3, x.data(), got.data());
      CHECK(got == want);
    });
  }
  constexpr int64_t kMany = 100000;  // six standard deviations of the kept share
  Values ones(kMany, 1), kept(kMany);
  const uint64_t key = 1;
  row_kernels<float>().dropout_rows(1, kMany, 5, 6, 7, &key, 0.25, ones.data(), kept.data());
  double sum = 0;
  for (int64_t i = 0; i < kMany; ++i) sum += kept[i];
  CHECK(std::abs(sum / kMany - 1) < 6 * std::sqrt(0.25 / 0.75 / kMany));
}

TEST_CASE("AdamW, SGD and the sum of squares") {
  for (const int64_t n : {1, 17, 331, 150001}) {
    CAPTURE(n);
    const Values grad = normal(n, 16), start = normal(n, 17);
    const kernels::AdamWStep step{1e-3, 0.9, 0.95, 1e-8, 0.1, 1 - 0.9 * 0.9, 1 - 0.95 * 0.95, 0.7};
    Values param = start, first = normal(n, 18, 0.1f), second(n, 0.01f), descended = start,
           buffer = first;
    const Values first_before = first, second_before = second;
    for (int64_t i = 0; i < n; ++i) {
      const float g = grad.data()[i] * 0.7f, raw = std::fma(0.1f, descended[i], g);
      first[i] = std::fma(static_cast<float>(1 - 0.9), g - first[i], first[i]);
      second[i] = std::fma(static_cast<float>(1 - 0.95) * g, g, 0.95f * second[i]);
      const float root = static_cast<float>(std::sqrt(step.correction2));
      param[i] = param[i] * static_cast<float>(1 - 1e-3 * 0.1) -
                 static_cast<float>(1e-3 / step.correction1) *
                     (first[i] / (std::sqrt(second[i]) / root + 1e-8f));
      buffer[i] = std::fma(0.9f, buffer[i], raw);
      descended[i] = std::fma(-1e-3f, buffer[i], descended[i]);
    }
    const double squares = definition::sum_of_squares(grad.data(), n);
    for_each_target([&] {
      Values got = start, got_first = first_before, got_second = second_before;
      kernels::adamw(n, step, grad.data(), got.data(), got_first.data(), got_second.data());
      CHECK(got == param);
      CHECK(got_first == first);
      CHECK(got_second == second);
      Values got_descended = start, got_buffer = first_before;
      kernels::sgd(n, 1e-3, 0.9, 0.1, 0.7, false, grad.data(), got_descended.data(),
                   got_buffer.data());
      CHECK(got_descended == descended);
      CHECK(got_buffer == buffer);
      CHECK(kernels::sum_of_squares(n, grad.data()) == squares);
    });
  }
}

TEST_CASE("a NaN or an infinity stays in its own row") {
  constexpr int64_t kRows = 4, kWidth = 37;
  const Values clean = normal(kRows * kWidth, 19), weight = normal(kWidth, 20);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Values x = clean;
    x[2 * kWidth + 20] = bad;
    for_each_target([&] {
      const auto& kernel = row_kernels<float>();
      Values want(kRows * kWidth), got(kRows * kWidth);
      kernel.rms_norm(kRows, kWidth, clean.data(), weight.data(), 1e-6, false, want.data());
      kernel.rms_norm(kRows, kWidth, x.data(), weight.data(), 1e-6, false, got.data());
      CHECK(std::isnan(got[2 * kWidth + 20]));
      std::vector<kernels::SoftmaxPart<float>> parts(kRows), clean_parts(kRows);
      Values lse(kRows), clean_lse(kRows);
      kernel.softmax_parts(kRows, kWidth, x.data(), kWidth, parts.data(), 1);
      kernel.softmax_parts(kRows, kWidth, clean.data(), kWidth, clean_parts.data(), 1);
      kernel.join_parts(kRows, 1, parts.data(), lse.data(), nullptr);
      kernel.join_parts(kRows, 1, clean_parts.data(), clean_lse.data(), nullptr);
      CHECK(std::isnan(lse[2]));
      for (const int64_t r : {0, 1, 3}) {
        CHECK(lse[r] == clean_lse[r]);
        for (int64_t i = 0; i < kWidth; ++i) CHECK(got[r * kWidth + i] == want[r * kWidth + i]);
      }
    });
  }
}
