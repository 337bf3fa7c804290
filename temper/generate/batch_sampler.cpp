#include "temper/generate/batch_sampler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>

#include "temper/base/likeliest.h"
#include "temper/ops/embedding.h"

namespace temper::generate {
namespace {

double divisor(const SamplingOptions& options) {
  return options.temperature == 0 ? 1 : options.temperature;
}

// The choice of the sequence's i-th row.
Choice choose_of(const SampledRows& sequence, int64_t i, const LogitsRow& logits, float log_sum) {
  const size_t count = sequence.completion.size() - static_cast<size_t>(sequence.drafted - i);
  SampleContext context{.prompt = sequence.prompt, .completion = sequence.completion.first(count)};
  if (static_cast<int64_t>(count) < sequence.min_tokens) context.banned = sequence.ends;
  if (sequence.matcher) context.mask = sequence.matcher->mask();
  SampleKey key = sequence.key;
  key.position += static_cast<uint64_t>(i);
  const int32_t token = choose(*sequence.options, key, logits, context);
  if (sequence.matcher) sequence.matcher->accept(token);
  Choice choice{
      token, logits.logits[token] - log_sum, {}, sequence.matcher && sequence.matcher->ended()};
  if (sequence.top_logprobs > 0)
    choice.top = likeliest(logits.logits, logits.count, log_sum, sequence.top_logprobs);
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
               std::span<const SampledRows* const> sequences,
               std::span<std::vector<Choice>> chosen) {
  const ops::Logits next = model.logits(hidden, temperature, adapter);
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
            log_sum[r]));
      } while (goes_on(*sequences[i], chosen[i].size(), chosen[i].back()));
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

TopLogprobs likeliest(const float* logits, int64_t count, float log_sum, int64_t k) {
  TopLogprobs out;
  for (const int32_t id : likeliest_ids(logits, count, k))
    out.emplace_back(id, logits[id] - log_sum);
  return out;
}

std::vector<std::vector<Choice>> sample(models::CausalLM& model, const at::Tensor& hidden,
                                        std::span<const SampledRows> sequences) {
  struct Head {
    std::vector<size_t> sequences;
    std::vector<int64_t> rows;
  };
  std::map<std::pair<int, double>, Head> heads;
  int64_t first = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Head& head = heads[{sequences[i].adapter, divisor(*sequences[i].options)}];
    head.sequences.push_back(i);
    for (int64_t r = 0; r < sequences[i].rows(); ++r) head.rows.push_back(first++);
  }
  std::vector<std::vector<Choice>> all(sequences.size());
  for (const auto& [key, head] : heads) {
    std::vector<const SampledRows*> some;
    for (const size_t i : head.sequences) some.push_back(&sequences[i]);
    std::vector<std::vector<Choice>> chosen(some.size());
    sample_at(model, key.second, key.first,
              heads.size() == 1 ? hidden : ops::select_rows(hidden, head.rows), some, chosen);
    for (size_t i = 0; i < some.size(); ++i) all[head.sequences[i]] = std::move(chosen[i]);
  }
  return all;
}

}  // namespace temper::generate
