#include "temper/generate/sampling/logit_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

namespace temper::generate {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

using Logits = std::vector<float>;

float& at(Logits& x, int32_t id) { return x[static_cast<size_t>(id)]; }

void add_bias(const SamplingOptions& options, double temperature, Logits& x) {
  for (const auto& [id, bias] : options.logit_bias)
    if (id >= 0 && static_cast<size_t>(id) < x.size())
      at(x, id) = static_cast<float>(at(x, id) + bias / temperature);
}

void penalize(const SamplingOptions& options, double temperature, const SampleContext& context,
              Logits& x) {
  const double penalty = options.repetition_penalty;
  if (penalty != 1) {
    const Logits before = x;  // a token that occurred twice is penalized once
    for (const std::span<const int32_t> seen : {context.prompt, context.completion})
      for (const int32_t id : seen) {
        const float logit = before[static_cast<size_t>(id)];
        at(x, id) = static_cast<float>(logit < 0 ? logit * penalty : logit / penalty);
      }
  }
  if (options.presence_penalty == 0 && options.frequency_penalty == 0) return;
  std::unordered_map<int32_t, int64_t> counts;
  for (const int32_t id : context.completion) ++counts[id];
  for (const auto& [id, count] : counts) {
    const double penalties =
        options.frequency_penalty * static_cast<double>(count) + options.presence_penalty;
    at(x, id) = static_cast<float>(at(x, id) - penalties / temperature);
  }
}

void keep_allowed(std::span<const uint32_t> mask, Logits& x) {
  if (mask.empty()) return;
  for (size_t id = 0; id < x.size(); ++id)
    if (!(mask[id / 32] >> (id % 32) & 1)) x[id] = kNever;
}

bool is_empty(const Logits& x) {
  return std::all_of(x.begin(), x.end(), [](float logit) { return logit == kNever; });
}

}  // namespace

std::vector<int32_t> repeating(int64_t size, std::span<const int32_t> prompt,
                               std::span<const int32_t> completion) {
  std::vector<int32_t> all(prompt.begin(), prompt.end());
  all.insert(all.end(), completion.begin(), completion.end());
  std::vector<int32_t> found;
  const size_t n = static_cast<size_t>(size);
  if (all.size() < n) return found;
  const auto last = all.end() - static_cast<ptrdiff_t>(n - 1);  // the run that is being finished
  for (auto it = all.begin(); it + static_cast<ptrdiff_t>(n) <= all.end(); ++it)
    if (std::equal(last, all.end(), it)) found.push_back(it[static_cast<ptrdiff_t>(n) - 1]);
  return found;
}

std::vector<float> apply_rules(const SamplingOptions& options, const LogitsRow& row,
                               const SampleContext& context) {
  const double temperature = options.temperature == 0 ? 1 : options.temperature;
  Logits x(row.logits, row.logits + row.count);
  add_bias(options, temperature, x);
  penalize(options, temperature, context, x);
  keep_allowed(context.mask, x);
  if (context.banned.empty() && options.no_repeat_ngram == 0) return x;
  Logits rest = x;
  for (const int32_t id : context.banned) at(rest, id) = kNever;
  if (options.no_repeat_ngram > 0)
    for (const int32_t id : repeating(options.no_repeat_ngram, context.prompt, context.completion))
      at(rest, id) = kNever;
  return is_empty(rest) ? x : rest;
}

}  // namespace temper::generate
