// Losses against their formulas in double precision, and their derivatives by differences.
#include "temper/tinker/losses.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <tuple>

#include "temper/base/error.h"

using namespace temper;
using namespace temper::tinker;

namespace {

WireTensor floats(std::vector<double> values, std::vector<int64_t> shape = {}) {
  WireTensor tensor;
  if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  tensor.shape = std::move(shape);
  tensor.values = std::move(values);
  return tensor;
}
WireTensor ids(std::vector<int64_t> values, std::vector<int64_t> shape = {}) {
  WireTensor tensor = floats(std::vector<double>(values.size()), std::move(shape));
  tensor.values.clear();
  tensor.integers = std::move(values);
  tensor.is_integer = true;
  return tensor;
}

const std::vector<float> kLogprobs{-0.5f, -1.25f, -0.125f, -3.0f};
const std::vector<double> kOld{-0.75, -1.0, -0.125, -1.0}, kAdvantages{2, -1.5, 1, 0.5};

WireDatum sampled() {
  WireDatum datum;
  datum.tokens = {1, 2, 3, 4};
  datum.inputs["target_tokens"] = ids({2, 3, 4, 5});
  datum.inputs["logprobs"] = floats(kOld);
  datum.inputs["advantages"] = floats(kAdvantages);
  return datum;
}

// The loss of `sampled` data at log-probabilities in double.
using Formula = std::function<double(const std::vector<double>& lp)>;

void check_loss(const std::string& name, const LossConfig& config, const Formula& formula,
                const Formula& differentiated, const WireDatum& datum = sampled()) {
  const LossSpec spec = read_loss(name, config);
  const Targets targets = read_targets(spec, datum, 10, "data[0]");
  const LossValue value = loss_of(spec, targets, kLogprobs);
  const std::vector<double> at(kLogprobs.begin(), kLogprobs.end());
  CHECK(value.loss == doctest::Approx(formula(at)).epsilon(1e-12));
  constexpr double kStep = 1e-6;
  for (size_t i = 0; i < at.size(); ++i) {
    std::vector<double> up = at, down = at;
    up[i] += kStep;
    down[i] -= kStep;
    const double slope = (differentiated(up) - differentiated(down)) / (2 * kStep);
    CHECK(double{value.gradient[i]} == doctest::Approx(slope).epsilon(1e-6));
  }
}

double clip(double r, double low, double high) { return std::min(std::max(r, low), high); }

Formula sum(const std::function<double(double lp, double old, double a)>& term) {
  return [term](const std::vector<double>& lp) {
    double total = 0;
    for (size_t i = 0; i < lp.size(); ++i) total += term(lp[i], kOld[i], kAdvantages[i]);
    return total;
  };
}

}  // namespace

TEST_CASE("importance_sampling, ppo, cispo and dro are their formulas") {
  const auto importance =
      sum([](double lp, double old, double a) { return -std::exp(lp - old) * a; });
  check_loss("importance_sampling", {}, importance, importance);
  const auto ppo = sum([](double lp, double old, double a) {
    const double r = std::exp(lp - old);
    return -std::min(r * a, clip(r, 0.8, 1.2) * a);
  });
  check_loss("ppo", {}, ppo, ppo);
  const auto wide = sum([](double lp, double old, double a) {
    const double r = std::exp(lp - old);
    return -std::min(r * a, clip(r, 0.5, 3) * a);
  });
  check_loss("ppo", {{"clip_low_threshold", 0.5}, {"clip_high_threshold", 3.0}}, wide, wide);
  // The clipped ratio has no gradient: it is that of the present log-probabilities.
  const auto cispo = sum(
      [](double lp, double old, double a) { return -clip(std::exp(lp - old), 0.5, 1.1) * lp * a; });
  std::vector<double> factor;
  for (size_t i = 0; i < kOld.size(); ++i)
    factor.push_back(clip(std::exp(double{kLogprobs[i]} - kOld[i]), 0.5, 1.1));
  const auto held = [factor](const std::vector<double>& lp) {
    double total = 0;
    for (size_t i = 0; i < lp.size(); ++i) total -= factor[i] * lp[i] * kAdvantages[i];
    return total;
  };
  check_loss("cispo", {{"clip_low_threshold", 0.5}, {"clip_high_threshold", 1.1}}, cispo, held);
  const auto dro = sum(
      [](double lp, double old, double a) { return -(lp * a - 0.1 * (lp - old) * (lp - old)); });
  check_loss("dro", {{"beta", 0.2}}, dro, dro);
  // Its pull towards the old log-probabilities trains without an advantage, too.
  WireDatum pulled = sampled();
  pulled.inputs["advantages"] = floats({0, 0, 0, 0});
  for (const auto& [name, config, trains] :
       {std::tuple<const char*, LossConfig, bool>{"dro", {{"beta", 0.2}}, true},
        {"dro", {{"beta", 0.0}}, false},
        {"ppo", {}, false}}) {
    const LossSpec spec = read_loss(name, config);
    const Targets targets = read_targets(spec, pulled, 10, "data[0]");
    const LossValue value = loss_of(spec, targets, kLogprobs);
    const bool moves = std::ranges::any_of(value.gradient, [](float g) { return g != 0; });
    CHECK(targets.trains(spec) == trains);
    CHECK(moves == trains);
  }
}

TEST_CASE("gspo: one ratio for a datum, over the marked targets, the gradient through each") {
  WireDatum datum = sampled();
  datum.inputs["sequence_ratio_mask"] = floats({0, 1, 1, 1});
  double mean = 0;
  for (size_t i = 1; i < 4; ++i) mean += (double{kLogprobs[i]} - kOld[i]) / 3;
  const double s = std::exp(mean);
  const auto value = [&](const std::vector<double>&) {
    double total = 0;
    for (const double a : kAdvantages) total -= std::min(s * a, clip(s, 0.1, 1.5) * a);
    return total;
  };
  // GSPO-token: s exp(lp - sg(lp)).
  const auto through = [&](const std::vector<double>& lp) {
    double total = 0;
    for (size_t i = 0; i < lp.size(); ++i)
      total -= s * std::exp(lp[i] - double{kLogprobs[i]}) * kAdvantages[i];
    return total;
  };
  const LossConfig config{{"clip_low_threshold", 0.1}, {"clip_high_threshold", 1.5}};
  check_loss("gspo", config, value, through, datum);
}

TEST_CASE("a ratio beyond float64 counts only where something is multiplied by it") {
  WireDatum datum = sampled();
  datum.inputs["logprobs"] = floats({-1000, -1000, -0.125, -1000});
  datum.inputs["advantages"] = floats({0, 2, 1, 0});
  for (const char* name : {"ppo", "gspo", "cispo"}) {
    const LossSpec spec = read_loss(name, {});
    const LossValue value = loss_of(spec, read_targets(spec, datum, 10, "d"), kLogprobs);
    CHECK(std::isfinite(value.loss));
    CHECK(value.gradient[0] == 0);
    CHECK(value.gradient[1] == (spec.bounds.high == 4 ? -8 : 0));  // cispo's bound, times A
  }
  datum.inputs["advantages"] = floats({0, -2, 1, 0});
  const LossSpec spec = read_loss("ppo", {});
  const LossValue value = loss_of(spec, read_targets(spec, datum, 10, "d"), kLogprobs);
  CHECK(value.gradient[0] == 0);
  CHECK(std::isinf(value.gradient[1]));  // nothing bounds it: the step is refused
}

TEST_CASE("many targets give what they give a few at a time") {
  const LossSpec spec = read_loss("gspo", {});
  Targets all;
  std::vector<float> logprobs;
  for (int i = 0; i < 140000; ++i) {
    all.token.push_back(1);
    all.old_logprob.push_back(-0.5f - static_cast<float>(i % 7));
    all.advantage.push_back(static_cast<float>(i % 5 - 2));
    logprobs.push_back(-0.5f - static_cast<float>(i % 7));  // the ratio is 1
  }
  const LossValue value = loss_of(spec, all, logprobs);
  CHECK(value.loss == 0);
  CHECK(value.gradient == [&] {
    std::vector<float> expected;
    for (const float a : all.advantage) expected.push_back(-a);
    return expected;
  }());
}

TEST_CASE("cross_entropy, also with several targets a position, and with sparse ones") {
  const LossSpec spec = read_loss("cross_entropy", {});
  WireDatum datum;
  datum.tokens = {1, 2};
  datum.inputs["target_tokens"] = ids({2, 3, 4, 5}, {2, 2});
  datum.inputs["weights"] = floats({0.5, 0, 1, 2}, {2, 2});
  const Targets dense = read_targets(spec, datum, 10, "d");
  CHECK(dense.columns == 2);
  CHECK(dense.position == std::vector<int64_t>{0, 0, 1, 1});
  CHECK(loss_of(spec, dense, kLogprobs).loss ==
        doctest::Approx(0.5 * 0.5 + 0.125 + 2 * 3.0).epsilon(1e-12));
  // The same without the target of weight 0.
  WireTensor targets = ids({2, 4, 5}, {2, 2}), weights = floats({0.5, 1, 2}, {2, 2});
  for (WireTensor* tensor : {&targets, &weights}) {
    tensor->is_sparse = true;
    tensor->crow = {0, 1, 3};
    tensor->columns = {0, 0, 1};
  }
  datum.inputs["target_tokens"] = targets;
  datum.inputs["weights"] = weights;
  const Targets sparse = read_targets(spec, datum, 10, "d");
  CHECK(sparse.token == std::vector<int64_t>{2, 4, 5});
  CHECK(sparse.cell == std::vector<size_t>{0, 2, 3});
  const std::vector<float> listed{kLogprobs[0], kLogprobs[2], kLogprobs[3]};
  CHECK(loss_of(spec, sparse, listed).loss == loss_of(spec, dense, kLogprobs).loss);
}

TEST_CASE("what a loss cannot take is refused with a reason") {
  CHECK_THROWS_WITH_AS(read_loss("stable_reinforce", {}), doctest::Contains("importance_sampling"),
                       DataError);
  CHECK_THROWS_WITH_AS(read_loss("mse", {}), doctest::Contains("cross_entropy"), DataError);
  CHECK_THROWS_AS(read_loss("ppo", {{"beta", 1.0}}), DataError);
  CHECK_THROWS_AS(read_loss("ppo", {{"clip_low_threshold", std::string("low")}}), DataError);
  CHECK_THROWS_AS(read_loss("ppo", {{"clip_low_threshold", 1.5}}), DataError);
  const LossSpec spec = read_loss("ppo", {});
  const auto refused = [&](const std::string& name, const WireTensor& tensor) {
    WireDatum datum = sampled();
    datum.inputs[name] = tensor;
    CHECK_THROWS_AS(read_targets(spec, datum, 10, "d"), DataError);
  };
  refused("target_tokens", ids({2, 3, 4}));
  refused("target_tokens", ids({2, 3, 4, 10}));
  refused("target_tokens", ids({2, 3, 4, -1}));
  refused("target_tokens", floats({2, 3, 4, 2.5}));
  refused("target_tokens", floats({2, 3, 4, 5}));  // ids, but no integers
  refused("advantages", floats({1, 2, 3, NAN}));
  refused("advantages", floats({1, 2, 3, 4}, {2, 2}));
  refused("logprobs", floats({1, 2, 3, 4}, {4, 1}));
  refused("weights", floats({1, 2, 3, 4}));
  WireTensor sparse = ids({2, 3}, {4, 5});
  sparse.is_sparse = true;
  sparse.crow = {0, 1, 2, 2, 2};
  for (const std::vector<int64_t>& columns :
       {std::vector<int64_t>{0, 5}, std::vector<int64_t>{-1, 0}, std::vector<int64_t>{0}}) {
    sparse.columns = columns;
    refused("target_tokens", sparse);
  }
  WireDatum missing = sampled();
  missing.inputs.erase("advantages");
  CHECK_THROWS_AS(read_targets(spec, missing, 10, "d"), DataError);
}
