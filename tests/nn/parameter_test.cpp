// A parameter's value in each of its formats, and the packed form that goes with it.
#include "temper/nn/weights/parameter.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include "temper/base/error.h"
#include "temper/nn/module.h"

using namespace temper;
using Format = ops::WeightFormat;

namespace {

struct Matrix : nn::Module {
  explicit Matrix(std::vector<int64_t> shape = {32, 64})
      : weight(*this, "weight", std::move(shape), nn::Init()) {
    weight.set_value(at::linspace(-1, 1, weight.shape()[0] * weight.shape()[1])
                         .reshape(weight.shape())
                         .contiguous());
  }
  nn::Parameter weight;
};

at::Tensor product(const nn::Parameter& weight, const at::Tensor& x) {
  const at::NoGradGuard no_grad;
  at::Tensor y = at::empty({x.size(0), weight.shape()[0]}, at::kFloat);
  ops::multiply(x, weight.weight(), y);
  return y;
}

}  // namespace

TEST_CASE("a value in another format is the nearest that the format has, and stays it") {
  const at::Tensor exact = Matrix().weight.value().detach().clone();
  const at::Tensor rounded = exact.to(at::kBFloat16).to(at::kFloat);
  for (const Format format : {Format::kFloat32, Format::kRoundedBFloat16, Format::kBFloat16,
                              Format::kInt8, Format::kNf4}) {
    CAPTURE(ops::row_of(format).name);
    Matrix matrix;
    matrix.weight.set_format(format);
    CHECK(matrix.weight.format() == format);
    CHECK(matrix.weight.has_value());
    const at::Tensor found = matrix.weight.float_value().clone();
    CHECK((found.scalar_type() == at::kFloat));
    // Only bfloat16 and the quantized formats lose anything; nf4 has 16 values a block.
    const double lost = (found - exact).abs().max().item<double>();
    const double most = format == Format::kNf4        ? 0.16
                        : format == Format::kInt8     ? 0.005
                        : format == Format::kBFloat16 ? 0.002
                                                      : 0;
    CHECK(lost <= most);
    CHECK((lost > 0) == (most > 0));
    if (format == Format::kBFloat16) CHECK(at::equal(found, rounded));
    CHECK(matrix.weight.value().defined() == !ops::is_quantized(format));
    matrix.weight.set_format(Format::kFloat32);  // nothing further is lost
    CHECK(at::equal(matrix.weight.float_value(), found));
  }
}

TEST_CASE("only float32 values train, and a vector is never quantized") {
  for (const Format format : {Format::kBFloat16, Format::kInt8, Format::kNf4}) {
    Matrix matrix;
    matrix.weight.set_format(format);
    CHECK_THROWS_AS(matrix.weight.set_trainable(true), Error);
    CHECK(!matrix.weight.trainable());
  }
  struct Vector : nn::Module {
    nn::Parameter bias{*this, "bias", {64}, nn::Init()};
  } vector;
  CHECK_THROWS_AS(vector.bias.set_format(Format::kInt8), Error);
  CHECK(vector.bias.format() == Format::kFloat32);
}

TEST_CASE("a value of another shape is refused, and the parameter keeps its own") {
  Matrix matrix;
  const at::Tensor before = matrix.weight.value();
  CHECK_THROWS_AS(matrix.weight.set_value(at::zeros({64, 32})), Error);
  CHECK(at::equal(matrix.weight.value(), before));
}

TEST_CASE("products after an update never read the packed form of before") {
  const at::Tensor x = at::linspace(0, 1, 3 * 64).reshape({3, 64}).contiguous();
  for (const Format format : {Format::kFloat32, Format::kRoundedBFloat16}) {
    CAPTURE(ops::row_of(format).name);
    Matrix matrix;
    matrix.weight.set_format(format);
    const at::Tensor before = product(matrix.weight, x);  // packs
    const uint64_t updates = matrix.weight.updates();
    {
      const at::NoGradGuard no_grad;
      matrix.weight.value().mul_(2);
    }
    matrix.weight.mark_updated();
    CHECK(matrix.weight.updates() == updates + 1);
    CHECK(at::equal(product(matrix.weight, x), 2 * before));
    // An update by a further value, and by its codes.
    matrix.weight.set_value(matrix.weight.value().detach() / 2);
    CHECK(at::equal(product(matrix.weight, x), before));
  }
}

TEST_CASE(
    "panels are kept between products, but not while gradients are recorded or in passes that "
    "run again" *
    doctest::test_suite("exact")) {
  Matrix matrix;
  const auto panels = [&] { return matrix.weight.weight().panels; };
  CHECK(!panels().defined());  // gradients are recorded
  {
    const at::NoGradGuard no_grad;
    const at::Tensor kept = panels();
    REQUIRE(kept.defined());
    CHECK(kept.is_same(panels()));
    {
      const nn::TransientPanels transient;
      CHECK(!panels().defined());
    }
    CHECK(panels().defined());
    matrix.weight.release();
    CHECK(!kept.is_same(panels()));
  }
  CHECK(!panels().defined());
}
