// The kernels of rows.h against torch's float64 values and gradients
// (tests/golden/make_rows_goldens.py), and their gradients against central differences.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/base/random.h"
#include "temper/ops/native/kernels/rows.h"
#include "tests/golden.h"

using namespace temper;
using kernels::Gate;
using kernels::row_kernels;

namespace {

const Json& golden(const char* name) {
  static const Json all = [] { return read_json_file(golden_path("rows.json")); }();
  return all.at(name);
}

template <class T>
std::vector<T> numbers(const Json& values) {
  return values.get<std::vector<T>>();
}

// Of the largest value: some hundred additions lie behind it.
template <class T>
void check_near(const std::vector<T>& got, const Json& golden_values,
                double float_tolerance = 2e-6) {
  const std::vector<double> want = golden_values.get<std::vector<double>>();
  REQUIRE(got.size() == want.size());
  const double tolerance = sizeof(T) == 8 ? 1e-14 : float_tolerance;
  double size = 0;
  for (const double w : want) size = std::max(size, std::abs(w));
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(static_cast<double>(got[i]) - want[i]) <= tolerance * size);
  }
}

Gate gate_of(const std::string& name) {
  return name == "silu" ? Gate::kSilu : name == "gelu_tanh" ? Gate::kGeluTanh : Gate::kGelu;
}

std::vector<double> normal_doubles(size_t count, uint64_t stream) {
  const RandomStream random(2, RandomPurpose::kInit, stream);
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<double>(random.normal(i));
  return values;
}

// d loss / d x by central differences, against `gradient`.
template <class Loss>
void check_gradient(std::vector<double>& x, const std::vector<double>& gradient, Loss loss) {
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < x.size(); ++i) {
    const double before = x[i];
    x[i] = before + kStep;
    const double above = loss();
    x[i] = before - kStep;
    const double below = loss();
    x[i] = before;
    CAPTURE(i);
    CHECK(gradient[i] == doctest::Approx((above - below) / (2 * kStep)).epsilon(1e-7));
  }
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

TEST_CASE_TEMPLATE("RMS norm is torch's", T, float, double) {
  for (const Json& g : golden("rms_norm")) {
    const auto x = numbers<T>(g.at("x")), weight = numbers<T>(g.at("weight")),
               dy = numbers<T>(g.at("dy"));
    const int64_t rows = g.at("rows"), width = g.at("width");
    std::vector<T> y(x.size()), dx(x.size()), dweight(weight.size());
    row_kernels<T>().rms_norm(rows, width, x.data(), weight.data(), g.at("eps"), g.at("one_plus"),
                              y.data());
    row_kernels<T>().rms_norm_backward(rows, width, x.data(), weight.data(), g.at("eps"),
                                       g.at("one_plus"), dy.data(), dx.data(), dweight.data());
    check_near(y, g.at("y"));
    check_near(dx, g.at("dx"));
    check_near(dweight, g.at("dweight"));
  }
}

TEST_CASE_TEMPLATE("rotary embedding is transformers' rotate_half", T, float, double) {
  const Json& g = golden("rotate");
  const auto cos = numbers<T>(g.at("cos")), sin = numbers<T>(g.at("sin"));
  const auto position = numbers<int64_t>(g.at("position"));
  const auto rotate = [&](const char* name, bool inverse) {
    auto x = numbers<T>(g.at(name));
    row_kernels<T>().rotate(g.at("rows"), g.at("heads"), g.at("dim"), {g.at("dim"), false},
                            position.data(), cos.data(), sin.data(), inverse, x.data());
    return x;
  };
  check_near(rotate("x", false), g.at("y"));
  check_near(rotate("dy", true), g.at("dx"));
}

TEST_CASE_TEMPLATE("gated activations and the soft cap are torch's", T, float, double) {
  for (const Json& g : golden("gated")) {
    const Gate kind = gate_of(g.at("kind"));
    CAPTURE(static_cast<int>(kind));
    const auto gate = numbers<T>(g.at("gate")), up = numbers<T>(g.at("up")),
               dy = numbers<T>(g.at("dy"));
    const int64_t n = static_cast<int64_t>(gate.size());
    std::vector<T> y(gate.size()), dgate(gate.size()), dup(gate.size());
    row_kernels<T>().gated(n, kind, gate.data(), up.data(), y.data());
    row_kernels<T>().gated_backward(n, kind, gate.data(), up.data(), dy.data(), dgate.data(),
                                    dup.data());
    check_near(y, g.at("y"));
    check_near(dgate, g.at("dgate"));
    check_near(dup, g.at("dup"));
  }
  const Json& g = golden("soft_cap");
  auto x = numbers<T>(g.at("x"));
  row_kernels<T>().soft_cap(static_cast<int64_t>(x.size()), g.at("cap"), x.data());
  check_near(x, g.at("y"));
}

TEST_CASE_TEMPLATE("log-sum-exp, entropy and their gradient are torch's", T, float, double) {
  const Json& g = golden("softmax");
  const int64_t rows = g.at("rows"), width = g.at("width"), blocks = 2;
  const auto x = numbers<T>(g.at("x")), dlogp = numbers<T>(g.at("g")),
             dentropy = numbers<T>(g.at("h"));
  const auto target = numbers<int64_t>(g.at("target"));
  std::vector<kernels::SoftmaxPart<T>> parts(static_cast<size_t>(rows * blocks));
  std::vector<T> lse(static_cast<size_t>(rows)), entropy(lse), dx = x, dx_plain = x;
  row_kernels<T>().softmax_parts(rows, width, x.data(), width, parts.data(), blocks);
  row_kernels<T>().join_parts(rows, blocks, parts.data(), lse.data(), entropy.data());
  check_near(lse, g.at("log_sum_exp"));
  check_near(entropy, g.at("entropy"));
  row_kernels<T>().softmax_gradient(rows, width, 0, target.data(), lse.data(), entropy.data(),
                                    dlogp.data(), dentropy.data(), dx.data(), width);
  row_kernels<T>().softmax_gradient(rows, width, 0, target.data(), lse.data(), entropy.data(),
                                    dlogp.data(), nullptr, dx_plain.data(), width);
  check_near(dx, g.at("dx"));
  check_near(dx_plain, g.at("dx_without_entropy"));
}

TEST_CASE("four steps of AdamW and of SGD with momentum are torch's") {
  const Json &adam = golden("adamw"), &descent = golden("sgd");
  auto param = numbers<float>(adam.at("start"));
  std::vector<float> first(param.size()), second(param.size());
  double t = 0;
  for (const Json& grads : adam.at("grads")) {
    const auto grad = numbers<float>(grads);
    t += 1;
    const kernels::AdamWStep step{1e-2,
                                  0.9,
                                  0.95,
                                  1e-6,
                                  0.1,
                                  1 - std::pow(0.9, t),
                                  1 - std::pow(0.95, t),
                                  adam.at("grad_scale")};
    kernels::adamw(static_cast<int64_t>(param.size()), step, grad.data(), param.data(),
                   first.data(), second.data());
  }
  check_near(param, adam.at("end"), 3e-7);

  param = numbers<float>(descent.at("start"));
  std::vector<float> buffer(param.size(), NAN);  // the first step does not read it
  bool first_step = true;
  for (const Json& grads : descent.at("grads")) {
    const auto grad = numbers<float>(grads);
    kernels::sgd(static_cast<int64_t>(param.size()), 1e-2, 0.9, 0.1, descent.at("grad_scale"),
                 first_step, grad.data(), param.data(), buffer.data());
    first_step = false;
  }
  check_near(param, descent.at("end"), 3e-7);
}

TEST_CASE("gradients are those of central differences") {
  const auto kernel = row_kernels<double>();
  constexpr int64_t kRows = 3, kWidth = 21, kCount = kRows * kWidth;
  auto x = normal_doubles(kCount, 1), weight = normal_doubles(kWidth, 2),
       up = normal_doubles(kCount, 3);
  const auto dy = normal_doubles(kCount, 4);

  std::vector<double> y(kCount), dx(kCount), dweight(kWidth), dup(kCount);
  const auto norm_loss = [&] {
    kernel.rms_norm(kRows, kWidth, x.data(), weight.data(), 1e-3, true, y.data());
    return dot(y, dy);
  };
  kernel.rms_norm_backward(kRows, kWidth, x.data(), weight.data(), 1e-3, true, dy.data(), dx.data(),
                           dweight.data());
  check_gradient(x, dx, norm_loss);
  check_gradient(weight, dweight, norm_loss);

  for (const Gate kind :
       {Gate::kSilu, Gate::kGeluTanh, Gate::kGelu, Gate::kSigmoid, Gate::kIdentity}) {
    const auto gate_loss = [&] {
      kernel.gated(kCount, kind, x.data(), up.data(), y.data());
      return dot(y, dy);
    };
    kernel.gated_backward(kCount, kind, x.data(), up.data(), dy.data(), dx.data(), dup.data());
    check_gradient(x, dx, gate_loss);
    check_gradient(up, dup, gate_loss);
  }

  const auto g = normal_doubles(kRows, 5), h = normal_doubles(kRows, 6);
  const std::vector<int64_t> target{0, 20, 7};
  std::vector<double> lse(kRows), entropy(kRows);
  const auto logp_loss = [&] {
    std::vector<kernels::SoftmaxPart<double>> parts(kRows);
    kernel.softmax_parts(kRows, kWidth, x.data(), kWidth, parts.data(), 1);
    kernel.join_parts(kRows, 1, parts.data(), lse.data(), entropy.data());
    double loss = dot(h, entropy);
    for (int64_t r = 0; r < kRows; ++r)
      loss += g[r] * (x[static_cast<size_t>(r * kWidth + target[static_cast<size_t>(r)])] - lse[r]);
    return loss;
  };
  logp_loss();
  dx = x;
  kernel.softmax_gradient(kRows, kWidth, 0, target.data(), lse.data(), entropy.data(), g.data(),
                          h.data(), dx.data(), kWidth);
  check_gradient(x, dx, logp_loss);
}
