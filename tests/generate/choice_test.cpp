// ops::choose, which chooses where the logits lie, against generate::choose, which reads them on
// the host.
#include "temper/ops/logits/choice.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "temper/generate/sampling/sampler.h"
#include "temper/ops/backend.h"

namespace temper::generate {
namespace {

constexpr float kRuledOut = -1e4F;  // its exponential beside others is 0

// Logits as a head gives them, with blocks that a small vocabulary does not fill.
ops::Logits logits_of(const at::Tensor& x) {
  const int64_t rows = x.size(0), blocks = (x.size(1) + ops::kLogitsBlock - 1) / ops::kLogitsBlock;
  const ops::Backend& backend = ops::aten_backend();
  at::Tensor parts = at::empty({rows, blocks, 3});
  backend.softmax_parts(x, parts);
  return {x, backend.join_softmax_parts(parts).log_sum_exp, parts.select(2, 0).contiguous(),
          parts.select(2, 1).contiguous()};
}

LogitsRow row_of(const ops::Logits& x, int64_t row) {
  const auto from = [row](const at::Tensor& of) {
    return of.const_data_ptr<float>() + row * of.size(1);
  };
  return {from(x.logits), x.logits.size(1), from(x.block_max), from(x.block_sum)};
}

at::Tensor random_logits(int64_t rows, int64_t vocabulary, double spread, uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn({rows, vocabulary}, generator, at::TensorOptions(at::kFloat)).mul_(spread);
}

std::vector<SamplingOptions> all_options() {
  std::vector<SamplingOptions> out(8);
  out[0].temperature = 0;
  out[2].top_k = 7;
  out[3].top_p = 0.8;
  out[4].min_p = 0.05;
  out[5].top_k = 40;
  out[5].top_p = 0.9;
  out[5].min_p = 0.01;
  out[6].top_p = 1e-9;     // the likeliest alone
  out[7].top_k = 1 << 20;  // more than there are
  for (SamplingOptions& o : out) o.seed = 5;
  return out;
}

ops::ChoiceRule rule_of(const SamplingOptions& o, const SampleKey& key) {
  return {.greedy = o.temperature == 0,
          .quantile = uniform_of(o, key),
          .top_k = o.top_k,
          .top_p = o.top_p,
          .min_p = o.min_p};
}

// Every row's token, log-probability and log-sum-exp are those of the host.
void check_rows(const ops::Logits& x, const std::vector<SamplingOptions>& options) {
  std::vector<ops::ChoiceRule> rules;
  for (int64_t row = 0; row < x.logits.size(0); ++row)
    rules.push_back(rule_of(options[static_cast<size_t>(row)], {3, static_cast<uint64_t>(row), 9}));
  const at::Tensor chosen = ops::choose(x, rules);
  REQUIRE(chosen.sizes() == at::IntArrayRef({x.logits.size(0), 3}));
  for (int64_t row = 0; row < x.logits.size(0); ++row) {
    CAPTURE(row);
    const int32_t token = choose(options[static_cast<size_t>(row)],
                                 {3, static_cast<uint64_t>(row), 9}, row_of(x, row), {});
    const double* found = chosen.const_data_ptr<double>() + 3 * row;
    const float log_sum = x.log_sum_exp.const_data_ptr<float>()[row];
    CHECK(static_cast<int32_t>(found[0]) == token);
    CHECK(static_cast<float>(found[1]) == row_of(x, row).logits[token] - log_sum);
    CHECK(static_cast<float>(found[2]) == log_sum);
  }
}

}  // namespace

TEST_CASE("excluded tokens have no mass, and the log-sum-exp stays that of all") {
  for (const int64_t vocabulary : {3, 513, 1300}) {
    CAPTURE(vocabulary);
    ops::Logits x = logits_of(random_logits(4, vocabulary, 3, 8));
    const at::Tensor log_sum = x.log_sum_exp.clone();
    const std::vector<int32_t> tokens{0, static_cast<int32_t>(vocabulary) - 1};
    at::Tensor lowered = x.logits.clone();
    for (const int32_t token : tokens) lowered.select(1, token).fill_(-1e30);
    ops::exclude(tokens, x);
    const ops::Logits expected = logits_of(lowered);
    CHECK(at::equal(x.logits, expected.logits));
    CHECK(at::equal(x.block_max, expected.block_max));
    CHECK(at::allclose(x.block_sum, expected.block_sum));
    CHECK(at::equal(x.log_sum_exp, log_sum));
    for (int64_t row = 0; row < 4; ++row)
      for (uint64_t place = 0; place < 50; ++place) {
        const int32_t token =
            choose({}, {1, static_cast<uint64_t>(row), place}, row_of(x, row), {});
        CHECK(std::find(tokens.begin(), tokens.end(), token) == tokens.end());
      }
  }
}

TEST_CASE("a choice on the device is the host's, whatever the rows' rules are") {
  const std::vector<SamplingOptions> all = all_options();
  for (const int64_t vocabulary : {1, 3, 511, 512, 513, 1300, 5000})
    for (const double spread : {0.1, 1.0, 5.0, 60.0}) {
      CAPTURE(vocabulary);
      CAPTURE(spread);
      const int64_t rows = 64;
      const ops::Logits x = logits_of(random_logits(rows, vocabulary, spread, 11));
      for (const SamplingOptions& o : all)
        check_rows(x, std::vector<SamplingOptions>(static_cast<size_t>(rows), o));
      std::vector<SamplingOptions> mixed;
      for (int64_t row = 0; row < rows; ++row)
        mixed.push_back(all[static_cast<size_t>(row) % all.size()]);
      check_rows(x, mixed);
    }
}

TEST_CASE("a choice on the device: equal logits, and tokens that are ruled out") {
  at::Tensor x = at::zeros({8, 1300});
  x.narrow(1, 600, 3).fill_(2);  // of equals the lower id first
  x.narrow(0, 4, 4).narrow(1, 0, 599).fill_(kRuledOut);
  x.narrow(0, 4, 4).narrow(1, 603, 697).fill_(kRuledOut);
  const std::vector<SamplingOptions> all = all_options();
  for (const SamplingOptions& o : all) check_rows(logits_of(x), std::vector<SamplingOptions>(8, o));
}

TEST_CASE("a choice on the device at the quantiles' ends is a token that has a probability") {
  at::Tensor x = at::full({2, 1300}, kRuledOut);
  x[0][700] = 1;
  x[1][40] = 1;
  for (const double quantile : {0.0, 1 - 0x1p-53})
    for (const double top_p : {1.0, 0.5}) {
      const ops::ChoiceRule rule{.greedy = false, .quantile = quantile, .top_p = top_p};
      const at::Tensor chosen = ops::choose(logits_of(x), {rule, rule});
      CHECK(chosen[0][0].item<double>() == 700);
      CHECK(chosen[1][0].item<double>() == 40);
    }
}

TEST_CASE("a choice on the device among what is no number is told by its log-sum-exp") {
  at::Tensor x = at::zeros({3, 600});
  x[0][5] = std::numeric_limits<float>::quiet_NaN();
  x[1][5] = std::numeric_limits<float>::infinity();
  for (const SamplingOptions& o : all_options()) {
    const ops::ChoiceRule rule = rule_of(o, {1, 2, 3});
    const at::Tensor chosen = ops::choose(logits_of(x), {rule, rule, rule});
    for (int64_t row = 0; row < 3; ++row) {
      const double token = chosen[row][0].item<double>();
      CHECK((token >= 0 && token < 600));
      CHECK(std::isfinite(chosen[row][2].item<double>()) == (row == 2));
    }
  }
}

}  // namespace temper::generate
