#include "temper/generate/sampling/batch_sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <map>

#include "temper/generate/likeliest.h"
#include "temper/ops/layers/embedding.h"
#include "temper/ops/logits/choice.h"

namespace temper::generate {
namespace {

double divisor(const SamplingOptions& options) {
  return options.temperature == 0 ? 1 : options.temperature;
}

// The tokens of the completion that stand before the sequence's i-th row.
size_t tokens_before(const SampledRows& sequence, int64_t i) {
  return sequence.completion.size() - static_cast<size_t>(sequence.drafted - i);
}

// Tokens that are never chosen: their logits as the model gives them.
class Excluded {
 public:
  Excluded(std::span<const int32_t> tokens, ops::Logits& logits)
      : tokens_(tokens), logits_(logits.logits.data_ptr<float>()), columns_(logits.logits.size(1)) {
    for (int64_t row = 0; row < logits.logits.size(0); ++row)
      for (const int32_t token : tokens) before_.push_back(logits_[row * columns_ + token]);
    ops::exclude(tokens, logits);
  }
  // From any thread, for rows that differ.
  void put_back(int64_t row) const {
    for (size_t i = 0; i < tokens_.size(); ++i)
      logits_[row * columns_ + tokens_[i]] = before_[static_cast<size_t>(row) * tokens_.size() + i];
  }

 private:
  const std::span<const int32_t> tokens_;
  float* const logits_;
  const int64_t columns_;
  std::vector<float> before_;  // by row and token
};

// The choice of the sequence's i-th row. put_back: gives the row its excluded tokens' logits.
Choice choose_of(const SampledRows& sequence, int64_t i, const LogitsRow& logits, float log_sum,
                 int64_t rank_columns, const std::function<void()>& put_back) {
  const size_t count = tokens_before(sequence, i);
  SampleContext context{.prompt = sequence.prompt, .completion = sequence.completion.first(count)};
  if (static_cast<int64_t>(count) < sequence.min_tokens) context.banned = sequence.ends;
  if (sequence.matcher) context.mask = sequence.matcher->mask();
  SampleKey key = sequence.key;
  key.position += static_cast<uint64_t>(i);
  std::vector<int32_t> kept;
  const int32_t token =
      choose(*sequence.options, key, logits, context, sequence.record_kept ? &kept : nullptr);
  if (sequence.matcher) sequence.matcher->accept(token);
  Choice choice{
      token, logits.logits[token] - log_sum, {}, sequence.matcher && sequence.matcher->ended()};
  if (!kept.empty()) {
    choice.logp = logits.logits[token] - ops::kept_log_sum_exp(logits.logits, rank_columns, kept);
    choice.kept = std::move(kept);
  }
  if (sequence.top_logprobs > 0) {
    put_back();
    choice.top = likeliest(logits.logits, logits.count, log_sum, sequence.top_logprobs);
  }
  return choice;
}

// Whether the last of so many choices was drafted, so that the next row follows it.
bool goes_on(const SampledRows& sequence, size_t chosen, const Choice& last) {
  const size_t drafted = static_cast<size_t>(sequence.drafted);
  if (last.ended || chosen > drafted) return false;
  return sequence.completion[sequence.completion.size() - drafted + chosen - 1] == last.token;
}

// Whether a sequence is worth a thread of its own.
bool is_slow(const SampledRows* sequence) {
  return sequence->options->filters() || sequence->options->changes_logits() || sequence->matcher ||
         sequence->top_logprobs > 0;
}

// Sequences of one temperature and adapter: chosen[i] are the i-th one's.
void sample_at(models::CausalLM& model, double temperature, int adapter, const at::Tensor& hidden,
               std::span<const SampledRows* const> sequences, std::span<const int32_t> never,
               std::span<std::vector<Choice>> chosen) {
  ops::Logits next = model.logits(hidden, temperature, adapter);
  const Excluded excluded(never, next);
  const float *logits = next.logits.const_data_ptr<float>(),
              *log_sum = next.log_sum_exp.const_data_ptr<float>(),
              *block_max = next.block_max.const_data_ptr<float>(),
              *block_sum = next.block_sum.const_data_ptr<float>();
  const int64_t vocabulary = next.logits.size(1), blocks = next.block_max.size(1);
  std::vector<int64_t> first{0};
  for (const SampledRows* s : sequences) first.push_back(first.back() + s->rows());
  const bool slow = std::any_of(sequences.begin(), sequences.end(), is_slow);
  std::exception_ptr failure;  // none may leave the parallel region
#pragma omp parallel for schedule(static) if (sequences.size() > 4 || \
                                                  (slow && sequences.size() > 1))
  for (size_t i = 0; i < sequences.size(); ++i) {
    try {
      do {
        const int64_t row = static_cast<int64_t>(chosen[i].size()), r = first[i] + row;
        if (!std::isfinite(log_sum[r])) break;
        chosen[i].push_back(choose_of(
            *sequences[i], row,
            {logits + r * vocabulary, vocabulary, block_max + r * blocks, block_sum + r * blocks},
            log_sum[r], next.rank_columns, [&] { excluded.put_back(r); }));
      } while (goes_on(*sequences[i], chosen[i].size(), chosen[i].back()));
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

// Whether nothing but the logits and a random number decides the tokens, so that they can be chosen
// where the logits are.
bool chosen_on_device(const SampledRows& s) {
  const bool bans = !s.ends.empty() && static_cast<int64_t>(tokens_before(s, 0)) < s.min_tokens;
  return !s.options->changes_logits() && !s.matcher && s.top_logprobs == 0 && !bans &&
         !(s.record_kept && s.options->filters());
}

// As sample_at, of sequences of which all are chosen_on_device().
at::Tensor choose_at(models::CausalLM& model, double temperature, int adapter,
                     const at::Tensor& hidden, std::span<const SampledRows* const> sequences,
                     std::span<const int32_t> never) {
  std::vector<ops::ChoiceRule> rules;
  for (const SampledRows* s : sequences)
    for (int64_t i = 0; i < s->rows(); ++i) {
      const SamplingOptions& o = *s->options;
      ops::ChoiceRule rule{.greedy = o.temperature == 0};
      if (!rule.greedy) {
        SampleKey key = s->key;
        key.position += static_cast<uint64_t>(i);
        rule = {.greedy = false,
                .quantile = uniform_of(o, key),
                .top_k = o.top_k,
                .top_p = o.top_p,
                .min_p = o.min_p};
      }
      rules.push_back(rule);
    }
  ops::Logits next = model.logits_on_device(hidden, temperature, adapter);
  ops::exclude(never, next);
  return ops::choose(next, rules);
}

// The choices among [rows, 3] of ops::choose, in the host's memory.
std::vector<Choice> taken(const SampledRows& sequence, const double* rows) {
  std::vector<Choice> chosen;
  do {
    const double* row = rows + 3 * chosen.size();
    if (!std::isfinite(row[2])) break;
    chosen.push_back({static_cast<int32_t>(row[0]), static_cast<float>(row[1]), {}, false});
  } while (goes_on(sequence, chosen.size(), chosen.back()));
  return chosen;
}

// Sequences that share a head and a temperature.
struct Head {
  std::vector<size_t> sequences;
  std::vector<int64_t> rows;  // of hidden states
};
using Heads = std::map<std::pair<int, double>, Head>;  // by adapter and divisor

}  // namespace

TopLogprobs likeliest(const float* logits, int64_t count, float log_sum, int64_t k) {
  TopLogprobs out;
  for (const int32_t id : likeliest_ids(logits, count, k))
    out.emplace_back(id, logits[id] - log_sum);
  return out;
}

std::vector<std::vector<Choice>> sample(models::CausalLM& model, const at::Tensor& hidden,
                                        std::span<const SampledRows> sequences,
                                        std::span<const int32_t> never) {
  Heads on_host, on_device;
  int64_t first = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SampledRows& s = sequences[i];
    Heads& heads = !hidden.is_cpu() && chosen_on_device(s) ? on_device : on_host;
    Head& head = heads[{s.adapter, divisor(*s.options)}];
    head.sequences.push_back(i);
    for (int64_t r = 0; r < s.rows(); ++r) head.rows.push_back(first++);
  }
  const auto rows_of = [&](const Head& head) {
    return on_host.size() + on_device.size() == 1 ? hidden : ops::select_rows(hidden, head.rows);
  };
  const auto sequences_of = [&](const Head& head) {
    std::vector<const SampledRows*> some;
    for (const size_t i : head.sequences) some.push_back(&sequences[i]);
    return some;
  };
  std::vector<std::vector<Choice>> all(sequences.size());
  std::vector<at::Tensor> away;
  for (const auto& [key, head] : on_device)
    away.push_back(
        choose_at(model, key.second, key.first, rows_of(head), sequences_of(head), never));
  for (const auto& [key, head] : on_host) {
    const std::vector<const SampledRows*> some = sequences_of(head);
    std::vector<std::vector<Choice>> chosen(some.size());
    sample_at(model, key.second, key.first, rows_of(head), some, never, chosen);
    for (size_t i = 0; i < some.size(); ++i) all[head.sequences[i]] = std::move(chosen[i]);
  }
  if (away.empty()) return all;
  // The device is waited for once.
  const at::Tensor here = at::cat(away).to(at::kCPU);
  const double* next = here.const_data_ptr<double>();
  for (const auto& [key, head] : on_device)
    for (const size_t i : head.sequences) {
      all[i] = taken(sequences[i], next);
      next += 3 * sequences[i].rows();
    }
  return all;
}

}  // namespace temper::generate
