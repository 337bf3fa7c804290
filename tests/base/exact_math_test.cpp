// Elementary functions against values of mpmath with 300 bits, rounded once: among them ones that a
// widely used C library rounds the other way.
#include "temper/base/exact_math.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

using namespace temper;

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
struct Value {
  double x, y;
};
}  // namespace

TEST_CASE("functions give the nearest double") {
  const struct {
    const char* name;
    double (*function)(double);
    std::vector<Value> values;
  } functions[] = {
      {"exp",
       &exact::exp,
       {
           {-0x1.523db82c83272p+3, 0x1.aebcbaf2ac0c0p-16},
           {-0x1.11e3c66b80222p+4, 0x1.3c0073deb3610p-25},
           {-0x1.8042ca78391acp+3, 0x1.98fba3b4298ebp-18},
           {-0x1.8b960813c0c38p+4, 0x1.41ef271eefe54p-36},
           {0x1.9d068d031d5a4p+3, 0x1.89b20e90a9517p+18},
           {0x1.590bbbaefc860p-1, 0x1.f63f9ff864090p+0},
       }},
      {"expm1",
       &exact::expm1,
       {
           {0x1.b709cddd45d10p-2, 0x1.1217606a3fb94p-1},
           {0x1.d17568ac2732cp-1, 0x1.7b69ea2128f6ep+0},
           {-0x1.7e30e91603870p-2, -0x1.3ef8ae7a75e7fp-2},
           {-0x1.ecdbddc142b9ep-1, -0x1.3c7886fd8372bp-1},
           {-0x1.6d43f49d38794p-2, -0x1.3338a198883ddp-2},
           {0x1.0add41b659362p-1, 0x1.5e3fb548c3549p-1},
       }},
      {"log",
       &exact::log,
       {
           {0x1.478839ae693e4p+0, 0x1.f8a521a1c4d81p-3},
           {0x1.17f25b834b7d5p+0, 0x1.6e4591b8990dep-4},
           {0x1.4a1ad3d796e54p+1, 0x1.e50efa73e921dp-1},
           {0x1.4b4785ce98652p-1, -0x1.bdcfad8a3e00ep-2},
           {0x1.45c3d05b57375p-1, -0x1.cf000ff9b5d94p-2},
           {0x1.51f9145cee77cp+0, 0x1.1c74948c20f99p-2},
       }},
      {"log1p",
       &exact::log1p,
       {
           {0x1.5195f99e01431p-1, 0x1.034a0db59c41dp-1},
           {0x1.71889c0af8798p+0, 0x1.c96f595969c18p-1},
           {-0x1.69f161f9a70fcp-2, -0x1.be963dddbf179p-2},
           {0x1.2c1a64c72d7cdp-1, 0x1.d85fbaab14283p-2},
           {-0x1.06be3fc493094p-2, -0x1.2f9df56c9ebf5p-2},
           {0x1.eddace6d1cbf4p-3, 0x1.ba6e1943b0395p-3},
       }},
      {"cos",
       &exact::cos,
       {
           {0x1.1874dbff375cfp+1, -0x1.299a3bdee898ep-1},
           {0x1.88de663216dcdp+1, -0x1.fea985530b66fp-1},
           {0x1.1eccafe9b9cfdp+1, -0x1.3ddfeb2cb66b7p-1},
           {-0x1.d50901820c807p+18, 0x1.2c1b382476f49p-1},
           {0x1.254989fd8542ap+19, 0x1.b94d81ec8bbc5p-3},
           {0x1.911a8386b2a9cp+18, -0x1.9221d110e3e2bp-3},
       }},
      {"sin",
       &exact::sin,
       {
           {0x1.41dee4f1bff64p+14, -0x1.2f264ae73948cp-2},
           {-0x1.cdf5d4680be0ep+15, 0x1.21fb0ce5dee3dp-3},
           {0x1.357b6d878d546p+16, 0x1.8c32ddd7af47fp-2},
           {-0x1.9aeb9dc8be378p+15, -0x1.e8165e1f935a3p-1},
           {-0x1.03f53ac6bbb74p+14, 0x1.131fdcbc4abb3p-1},
           {-0x1.9feee847b7a94p+14, 0x1.b232c08cc8ff3p-1},
       }},
  };
  for (const auto& [name, function, values] : functions) {
    CAPTURE(name);
    for (const auto& [x, y] : values) CHECK(function(x) == y);
  }
  const struct {
    double base, exponent, y;
  } powers[] = {
      {0x1.e1870fb8646c1p-1, 0x1.3340000000000p+13, 0x1.890e56a54f508p-871},
      {0x1.f8bafabc06d32p-1, 0x1.fa10000000000p+12, 0x1.ef3825d50da79p-168},
      {0x1.f5394e25664e2p-1, 0x1.8910000000000p+12, 0x1.ff73cb63f6f9bp-194},
      {0x1.ec537e0d63165p-1, 0x1.5b80000000000p+10, 0x1.5778bb08b8307p-79},
      {0x1.83682a0aff580p-1, 0x1.cae7e6833d60ap+1, 0x1.78cf666b4aa3fp-2},
      {0x1.db893323d531cp-1, 0x1.2bd8000000000p+13, 0x0.9ace9c4d500c4p-1022},
  };
  for (const auto& [base, exponent, y] : powers) CHECK(exact::pow(base, exponent) == y);
}

TEST_CASE("functions at the ends of their ranges") {
  CHECK(exact::exp(0) == 1);
  CHECK(exact::exp(710) == kInfinity);
  CHECK(exact::exp(kInfinity) == kInfinity);
  CHECK(exact::exp(-kInfinity) == 0);
  CHECK(exact::exp(-745) == std::numeric_limits<double>::denorm_min());
  CHECK(std::isnan(exact::exp(std::nan(""))));
  CHECK(exact::expm1(0) == 0);
  CHECK(exact::expm1(1e-20) == 1e-20);
  CHECK(exact::expm1(-50) == -1);
  CHECK(exact::expm1(kInfinity) == kInfinity);
  CHECK(std::isnan(exact::expm1(std::nan(""))));
  CHECK(exact::log(1) == 0);
  CHECK(exact::log(0) == -kInfinity);
  CHECK(exact::log(kInfinity) == kInfinity);
  CHECK(std::isnan(exact::log(-1)));
  CHECK(std::isnan(exact::log(std::nan(""))));
  CHECK(exact::log1p(1e-20) == 1e-20);
  CHECK(exact::log1p(-1) == -kInfinity);
  CHECK(std::isnan(exact::log1p(-2)));
  CHECK(exact::pow(0, 0) == 1);
  CHECK(exact::pow(0, 2) == 0);
  CHECK(exact::pow(0.9, 1e6) == 0);
  CHECK(exact::pow(10, 400) == kInfinity);
  CHECK(exact::pow(10, -6) == 1e-6);
  CHECK(exact::cos(0) == 1);
  CHECK(exact::sin(0) == 0);
  CHECK(exact::sin(1e-30) == 1e-30);
  CHECK(std::isnan(exact::cos(kInfinity)));
  CHECK(exact::sigmoid(0) == 0.5);
  CHECK(exact::sigmoid(-800) == 0);
  CHECK(exact::sigmoid(800) == 1);
  CHECK(exact::log_sigmoid(-800) == -800);
  CHECK(exact::log_sigmoid(800) == 0);
  CHECK(std::isnan(exact::sigmoid(std::nan(""))));
}

TEST_CASE("the quick exponential is within a unit in the last place") {
  for (double x = -745; x < 709.5; x += 0.37) {
    CAPTURE(x);
    const double nearest = exact::exp(x), found = exact::quick_exp(x);
    CHECK(found >= std::nextafter(nearest, 0));
    CHECK(found <= std::nextafter(nearest, kInfinity));
  }
  CHECK(exact::quick_exp(0) == 1);
  CHECK(exact::quick_exp(-kInfinity) == 0);
  CHECK(exact::quick_exp(kInfinity) == kInfinity);
  CHECK(std::isnan(exact::quick_exp(std::nan(""))));
}

TEST_CASE("the quick logarithms are within three units in the last place") {
  const auto near = [](double found, double nearest) {
    const double unit = std::nextafter(std::abs(nearest), kInfinity) - std::abs(nearest);
    return std::abs(found - nearest) <= 3 * unit;
  };
  for (double x = 1e-300; x < 1e300; x *= 3.7) CHECK(near(exact::quick_log(x), exact::log(x)));
  for (double x = 0.3; x < 3; x += 0.00137) CHECK(near(exact::quick_log(x), exact::log(x)));
  for (double x = 0; x <= 1; x += 0.00137) CHECK(near(exact::quick_log1p(x), exact::log1p(x)));
  CHECK(near(exact::quick_log1p(1e-9), exact::log1p(1e-9)));
  CHECK(exact::quick_log(1) == 0);
  CHECK(exact::quick_log(0) == -kInfinity);
  CHECK(exact::quick_log(kInfinity) == kInfinity);
  CHECK(std::isnan(exact::quick_log(-1)));
}

TEST_CASE("a library's double is rounded to float only where no other library's could differ") {
  int asked = 0;
  const auto exactly = [&] {
    ++asked;
    return 2.0;
  };
  CHECK(exact::rounded(1.0 + 0x1p-30, exactly) == 1);
  CHECK(asked == 0);
  const double middle = 1.0 + 0x1p-24;  // of two floats
  for (const double near : {middle, std::nextafter(middle, 0), std::nextafter(middle, 2)})
    CHECK(exact::rounded(near, exactly) == 2);
  CHECK(asked == 3);
  CHECK(exact::log_float(1) == 0);
  CHECK(exact::log_float(0) == -std::numeric_limits<float>::infinity());
  CHECK(std::isnan(exact::log_float(-1)));
}
