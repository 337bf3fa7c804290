#include "temper/generate/engine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>

#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/generate/batch_sampler.h"
#include "temper/nn/module.h"
#include "temper/ops/embedding.h"

namespace temper::generate {

int64_t cache_bytes(const EngineOptions& options) {
  if (options.cache_bytes > 0) return options.cache_bytes;
  int ranks = options.local_ranks;
  if (const char* text = std::getenv("LOCAL_WORLD_SIZE"); text && ranks <= 0)
    ranks = std::atoi(text);
  return usable_memory_bytes() / 4 / std::max(1, ranks);
}

Engine::Engine(models::CausalLM& model, EngineOptions options,
               std::shared_ptr<const Tokenizer> tokenizer)
    : model_(model),
      tokenizer_(std::move(tokenizer)),
      cache_bytes_(generate::cache_bytes(options)),
      cache_(model, cache_bytes_),
      scheduler_(cache_, options.max_batch, options.prefill_tokens) {}

RequestId Engine::submit(Request request, Callbacks callbacks) {
  GenerationOptions& options = request.options;
  check<ConfigError>(options.max_new_tokens >= 1 && options.max_new_tokens <= kMostNewTokens,
                     "max_new_tokens: found ", options.max_new_tokens, ", expected 1 to ",
                     kMostNewTokens);
  check<ConfigError>(options.stop.empty() || tokenizer_,
                     "stop texts need a tokenizer, and the model has none");
  std::erase(options.stop, "");
  check<DataError>(!request.prompt.empty(), "row ", request.index, ": an empty prompt");
  for (const int32_t id : request.prompt)
    check<DataError>(id >= 0 && id < model_.vocab_size, "row ", request.index, ": token ", id,
                     ", and the model has ", model_.vocab_size);
  const int64_t needed = Scheduler::pages_needed(request);
  check<ConfigError>(needed <= cache_.max_pages(), "a prompt of ", request.prompt.size(),
                     " tokens and ", options.max_new_tokens, " new ones need ",
                     needed * cache_.page_bytes(), " bytes for keys and values, and may take ",
                     cache_bytes_, " (rollout.cache_bytes, --cache-bytes)");
  const RequestId id = next_id_++;
  inbox_.put(std::make_shared<Prompt>(id, std::move(request), std::move(callbacks), cache_));
  return id;
}

void Engine::cancel(RequestId id) { inbox_.put(Inbox::Cancellation{id}); }

void Engine::take_messages(const Callbacks& callbacks) {
  std::vector<std::unique_ptr<Sequence>> cancelled;
  for (Inbox::Message& message : inbox_.take()) {
    if (auto* prompt = std::get_if<std::shared_ptr<Prompt>>(&message)) {
      scheduler_.add(std::move(*prompt));
      continue;
    }
    for (auto& sequence : scheduler_.cancel(std::get<Inbox::Cancellation>(message).id))
      cancelled.push_back(std::move(sequence));
  }
  report(std::move(cancelled), callbacks);
}

void Engine::forget_stale_prefixes() {
  const uint64_t now = nn::parameter_changes();
  if (now != weights_) cache_.forget_prefixes();
  weights_ = now;
}

bool Engine::step(const Callbacks& callbacks) {
  const at::NoGradGuard no_grad;
  take_messages(callbacks);
  if (scheduler_.idle()) return !inbox_.empty();
  forget_stale_prefixes();
  at::Tensor hidden;
  const std::vector<Sequence*> sampled = forward(hidden);
  std::vector<SampledRow> rows;
  for (const Sequence* s : sampled) {
    const Completion& c = s->completion;
    rows.push_back(
        {&s->prompt->request.options.sampling,
         {static_cast<uint64_t>(c.index), static_cast<uint64_t>(c.sample), c.tokens.size()},
         s->prompt->request.prompt,
         c.tokens,
         s->prompt->request.adapter});
  }
  if (!rows.empty()) {
    const std::vector<Choice> choices = sample(model_, hidden, rows);
    for (size_t i = 0; i < choices.size(); ++i)
      append(*sampled[i], choices[i].token, choices[i].logp);
  }
  // What has ended is out of the scheduler before a callback can throw.
  std::vector<std::unique_ptr<Sequence>> ended = scheduler_.take_finished();
  for (const Sequence* s : sampled) {
    const Callbacks& own = s->prompt->callbacks;
    const auto& on_token = own.done ? own.on_token : callbacks.on_token;
    if (on_token) on_token(s->completion);
  }
  report(std::move(ended), callbacks);
  return !scheduler_.idle() || !inbox_.empty();
}

// Gives the sequences for which a token is sampled now, and their rows of hidden states.
std::vector<Sequence*> Engine::forward(at::Tensor& hidden) {
  const ScheduledBatch passes = scheduler_.next_passes();
  std::vector<at::Tensor> parts;
  std::vector<Sequence*> sampled;
  for (const auto& [adapter, pass] : passes) {
    if (pass.forest->num_tokens() == 0) continue;
    const at::Tensor out =
        model_.forward({.forest = pass.forest, .adapter = adapter, .cache = &pass.rows});
    ++passes_;
    if (!pass.decoding.empty()) {
      std::vector<int64_t> first(pass.decoding.size());
      std::iota(first.begin(), first.end(), 0);
      parts.push_back(ops::select_rows(out, first));
      sampled.insert(sampled.end(), pass.decoding.begin(), pass.decoding.end());
    }
    for (const auto& [prompt, row] : pass.prefilled)
      prompt->last_hidden = ops::select_rows(out, {row});
  }
  for (Sequence* sequence : scheduler_.begin_samples(passes)) {
    parts.push_back(sequence->prompt->last_hidden);
    sampled.push_back(sequence);
  }
  if (!parts.empty()) hidden = parts.size() == 1 ? parts[0] : at::cat(parts);
  return sampled;
}

void Engine::append(Sequence& sequence, int32_t token, float logp) {
  const GenerationOptions& options = sequence.prompt->request.options;
  Completion& c = sequence.completion;
  c.tokens.push_back(token);
  c.logprobs.push_back(logp);
  ++new_tokens_;
  const std::vector<int32_t>& ends = model_.eos_token_ids;
  c.stopped = !options.ignore_eos && std::find(ends.begin(), ends.end(), token) != ends.end();
  if (!tokenizer_ || (options.stop.empty() && !options.stream)) return;
  if (!sequence.text) sequence.text.emplace(*tokenizer_, options.stop);
  if (sequence.text->push(token)) c.stopped = true;
  if (options.stream) c.text += sequence.text->shown().substr(c.text.size());
}

void Engine::report(std::vector<std::unique_ptr<Sequence>> ended, const Callbacks& callbacks) {
  for (const auto& sequence : ended) {
    Completion& c = sequence->completion;
    if (tokenizer_) c.text = text_of(*tokenizer_, c.tokens, sequence->prompt->request.options.stop);
  }
  for (const auto& sequence : ended) {
    const Callbacks& own = sequence->prompt->callbacks;
    const auto& done = own.done ? own.done : callbacks.done;
    if (done) done(std::move(sequence->completion));
  }
}

void Engine::run(const std::function<void(Completion)>& done,
                 const std::function<void(const Completion&)>& on_token) {
  while (step({done, on_token})) {
  }
}

Engine::Statistics Engine::statistics() const {
  return {scheduler_.statistics(), new_tokens_, passes_};
}

void generate(models::CausalLM& model, const std::vector<std::vector<int32_t>>& prompts,
              int64_t num_samples, const GenerationOptions& options,
              const std::function<void(Completion)>& done,
              std::shared_ptr<const Tokenizer> tokenizer,
              const std::function<void(const Completion&)>& on_token,
              const EngineOptions& engine_options, const std::vector<int>& adapters) {
  Engine engine(model, engine_options, std::move(tokenizer));
  for (size_t i = 0; i < prompts.size(); ++i)
    engine.submit({static_cast<int64_t>(i), prompts[i], num_samples, options,
                   adapters.empty() ? 0 : adapters.at(i)});
  std::map<std::pair<int64_t, int64_t>, Completion> early;  // done, but an earlier one is not
  std::pair<int64_t, int64_t> next{0, 0};
  engine.run(
      [&](Completion c) {
        early.emplace(std::pair(c.index, c.sample), std::move(c));
        for (auto it = early.begin(); it != early.end() && it->first == next;
             it = early.erase(it)) {
          done(std::move(it->second));
          next = next.second + 1 == num_samples ? std::pair(next.first + 1, int64_t{0})
                                                : std::pair(next.first, next.second + 1);
        }
      },
      on_token);
}

}  // namespace temper::generate
