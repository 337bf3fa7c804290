#include "temper/cli/export_probe.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "temper/base/error.h"
#include "temper/generate/score.h"
#include "temper/nn/router.h"

namespace temper::cli {
namespace {

constexpr size_t kTokens = 32;

std::vector<int32_t> probe_tokens(int64_t vocabulary) {
  std::vector<int32_t> probe;
  for (size_t i = 0; i < kTokens; ++i)
    probe.push_back(static_cast<int32_t>((static_cast<uint32_t>(i) * 2654435761u) %
                                         static_cast<uint32_t>(vocabulary)));
  return probe;
}

bool has_routers(nn::Module& model) {
  bool found = false;
  model.visit({.router = [&](const std::string&, nn::Router&) { found = true; }});
  return found;
}

float difference(const std::vector<float>& a, const std::vector<float>& b) {
  check(a.size() == b.size(), "probes of ", a.size(), " and ", b.size(), " numbers");
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

Probe probe_of(models::CausalLM& model) {
  const nn::TransientPanels packs_into_scratch;
  const std::vector<int32_t> tokens = probe_tokens(model.vocab_size);
  std::vector<generate::ScoreRequest> rows{{tokens, 1}};
  if (has_routers(model))
    for (size_t i = 0; i + 1 < kTokens; ++i) rows.push_back({{tokens[i], tokens[i + 1]}, 1});
  const auto scores = generate::score(model, rows);
  Probe probe{scores[0].logprobs, {}};
  for (size_t i = 1; i < scores.size(); ++i) probe.apart.push_back(scores[i].logprobs[0]);
  return probe;
}

Probe probe_of(models::ScalarModel& model) {
  const nn::TransientPanels packs_into_scratch;
  const at::NoGradGuard no_grad;
  const auto scalars = [&](const std::vector<int32_t>& tokens) -> std::vector<float> {
    auto forest = std::make_shared<Forest>();
    forest->add_root(tokens);
    std::vector<int64_t> rows(static_cast<size_t>(forest->num_tokens()));
    std::iota(rows.begin(), rows.end(), 0);
    const at::Tensor values = model.values(model.forward({.forest = forest}), rows);
    return {values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel()};
  };
  const std::vector<int32_t> tokens = probe_tokens(model.config().vocab_size);
  Probe probe{scalars(tokens), {}};
  if (has_routers(model))
    for (const int32_t token : tokens) probe.apart.push_back(scalars({token})[0]);
  for (const float scalar : probe.numbers) probe.unit = std::max(probe.unit, std::abs(scalar));
  return probe;
}

float largest_difference(const Probe& a, const Probe& b) {
  return std::max(difference(a.numbers, b.numbers), difference(a.apart, b.apart));
}

bool are_of_one_model(const Probe& a, const Probe& b) {
  const float most = kSameModel * std::min(a.unit, b.unit);
  const auto far = [most](const std::vector<float>& x, const std::vector<float>& y) {
    check(x.size() == y.size(), "probes of ", x.size(), " and ", y.size(), " numbers");
    size_t count = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const bool same = x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]));
      count += !(same || std::abs(x[i] - y[i]) <= most);
    }
    return count;
  };
  if (far(a.numbers, b.numbers) == 0) return true;
  return !a.apart.empty() && 4 * far(a.apart, b.apart) <= a.apart.size();
}

}  // namespace temper::cli
