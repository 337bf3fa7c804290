// Noise on embeddings (NEFTune) and the z-loss.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdlib>

#include "temper/models/files/load.h"
#include "temper/nn/linear.h"
#include "temper/train/forward_pass.h"
#include "temper/train/roles/parameters.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::train;

namespace {

struct Embedded : nn::Module {
  Embedded() : table(*this, "table", 50, 16, 0.02, 3.0) {
    table.weight.set_value(at::zeros({50, 16}, at::kFloat));
  }
  nn::Embedding table;
};

const std::vector<std::vector<int32_t>> kRows = {{3, 1, 4, 1, 5}, {9, 2, 6}, {5, 3, 5, 8, 9, 7, 9}};

// One pass of the rows [begin, end), which are numbered as in the step.
ForwardPass pass_of(size_t begin, size_t end, double alpha) {
  ForwardPass pass;
  for (size_t i = begin; i < end; ++i) {
    PackUnit unit;
    unit.segments.push_back({-1, kRows[i], kRows[i], 0});
    pass.add(unit, i);
  }
  pass.dropout.seed = 7;
  pass.dropout.step = 2;
  pass.dropout.noise_alpha = alpha;
  return pass;
}

at::Tensor embedded(Embedded& layer, const ForwardPass& pass) {
  return layer.table.forward({.forest = pass.forest, .dropout = &pass.dropout});
}

std::unique_ptr<models::CausalLM> model() {
  auto loaded = models::load_model(golden_path("models/qwen3"));
  loaded->each_parameter([](const std::string&, nn::Parameter& p) {
    p.own();
    p.set_trainable(true);
  });
  return loaded;
}

}  // namespace

TEST_CASE("noise on embeddings is uniform, within alpha / sqrt(tokens x width) of a row") {
  Embedded layer;
  const at::Tensor noise = embedded(layer, pass_of(0, 3, 5));
  int64_t first = 0;
  for (const std::vector<int32_t>& row : kRows) {
    const int64_t count = static_cast<int64_t>(row.size());
    const at::Tensor part = noise.narrow(0, first, count);
    const double bound = 5 / std::sqrt(static_cast<double>(count) * 16);
    CHECK(part.abs().max().item<double>() <= bound * (1 + 1e-6));
    CHECK(part.abs().mean().item<double>() == doctest::Approx(bound / 2).epsilon(0.2));
    CHECK(std::abs(part.mean().item<double>()) < bound * 0.25);
    first += count;
  }
}

TEST_CASE("the noise does not depend on how a step is split, and differs between steps") {
  Embedded layer;
  const at::Tensor together = embedded(layer, pass_of(0, 3, 5));
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < 3; ++i) parts.push_back(embedded(layer, pass_of(i, i + 1, 5)));
  CHECK(at::equal(together, at::cat(parts)));
  ForwardPass next = pass_of(0, 3, 5);
  next.dropout.step = 3;
  CHECK_FALSE(at::equal(together, embedded(layer, next)));
}

TEST_CASE("without alpha, and outside training, there is no noise") {
  const auto m = model();
  const ForwardPass noisy = pass_of(0, 3, 5), quiet = pass_of(0, 3, 0);
  const at::Tensor plain = token_logp(*m, quiet, {}).logp;
  CHECK(at::equal(plain, token_logp(*m, noisy, {}).logp));
  CHECK(at::equal(plain, token_logp(*m, quiet, {.dropout = true}).logp));
  CHECK_FALSE(at::equal(plain, token_logp(*m, noisy, {.dropout = true}).logp));
}

TEST_CASE("noise and z-loss have the same gradients where blocks are computed again") {
  std::vector<std::vector<at::Tensor>> gradients;
  for (const bool recompute : {false, true}) {
    const auto m = model();
    const ForwardPass pass = pass_of(0, 3, 5);
    const ops::TokenLogp out =
        token_logp(*m, pass, {.log_sum_exp = true, .recompute = recompute, .dropout = true});
    torch::autograd::backward({-out.logp.sum() + 1e-2 * out.log_sum_exp.square().sum()}, {});
    gradients.emplace_back();
    for (const NamedParameter& p : trainable_parameters(*m))
      gradients.back().push_back(p.parameter->value().grad());
  }
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    CHECK(at::equal(gradients[0][i], gradients[1][i]));
    CHECK(gradients[0][i].abs().max().item<double>() > 0);
  }
}
