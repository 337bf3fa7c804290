#include "temper/generate/engine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "temper/base/error.h"
#include "temper/generate/request_check.h"
#include "temper/generate/sampling/batch_sampler.h"
#include "temper/nn/mixed_adapters.h"
#include "temper/nn/module.h"
#include "temper/nn/weights/read_rows.h"
#include "temper/ops/layers/embedding.h"

namespace temper::generate {

// Records the log-probabilities of the prompt's tokens that the chunk's rows predict.
void score_chunk(const models::CausalLM& model, const at::Tensor& hidden,
                 const ScheduledPass::Chunk& chunk) {
  const Request& request = chunk.prompt->request;
  const double temperature = request.options.sampling.temperature;
  constexpr int64_t kRows = 32;  // whose logits are held at once
  const int64_t end = std::min(chunk.size, chunk.prompt->length() - 1 - chunk.position);
  for (int64_t first = 0; first < end; first += kRows) {
    const int64_t count = std::min(kRows, end - first);
    std::vector<int64_t> rows(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), chunk.row + first);
    const ops::Logits next =
        model.logits(hidden, rows, temperature == 0 ? 1 : temperature, request.adapter);
    const int64_t vocabulary = next.logits.size(1);
    for (int64_t i = 0; i < count; ++i) {
      chunk.prompt->failed |= !std::isfinite(next.log_sum_exp.const_data_ptr<float>()[i]);
      const float* x = next.logits.const_data_ptr<float>() + i * vocabulary;
      const float log_sum = next.log_sum_exp.const_data_ptr<float>()[i];
      const int32_t token = request.prompt[static_cast<size_t>(chunk.position + first + i + 1)];
      chunk.prompt->logprobs->logprobs.push_back(x[token] - log_sum);
      if (request.options.top_logprobs > 0)
        chunk.prompt->logprobs->top.push_back(
            likeliest(x, vocabulary, log_sum, request.options.top_logprobs));
    }
  }
}

namespace {

// A state cannot go back behind rejected tokens.
int64_t drafted(int64_t speculative, const PageCache& cache) {
  if (cache.state_bytes() == 0) return speculative;
  check<ConfigError>(speculative <= 0,
                     "speculative decoding (rollout.speculative, --speculative): ",
                     "layers of this model carry a state, which rejected tokens would have "
                     "changed; expected auto or off");
  return 0;
}

}  // namespace

Engine::Engine(models::CausalLM& model, EngineOptions options,
               std::shared_ptr<const Tokenizer> tokenizer)
    : model_(model),
      tokenizer_(std::move(tokenizer)),
      cache_bytes_(generate::cache_bytes(options)),
      cache_(model, cache_bytes_),
      scheduler_(cache_, options.max_batch, options.prefill_tokens),
      speculation_(drafted(options.speculative, cache_), reading_rows(model)),
      never_(never_sampled(model, tokenizer_.get())) {}

std::shared_ptr<const grammar::Grammar> Engine::compile(const grammar::Spec& spec) {
  std::call_once(grammars_once_, [this] {
    grammars_ = std::make_unique<grammar::Compiler>(tokenizer_, model_.vocab_size);
  });
  return grammars_->compile(spec);
}

RequestId Engine::submit(Request request, Callbacks callbacks) {
  check_request(request, model_, tokenizer_.get(), {cache_, cache_bytes_});
  std::erase(request.options.stop, "");
  const RequestId id = next_id_++;
  auto prompt = std::make_shared<Prompt>(id, std::move(request), std::move(callbacks), cache_);
  const GenerationOptions& options = prompt->request.options;
  prompt->ends = ends_of(options, model_);
  if (options.grammar) {
    prompt->grammar = compile(*options.grammar);
    check<ConfigError>(!grammar::Matcher(prompt->grammar, prompt->ends).ended(),
                       options.grammar->where, ": no token of the model can begin a matching text");
  }
  if (options.prompt_logprobs) prompt->logprobs = std::make_shared<PromptLogprobs>();
  inbox_.put(std::move(prompt));
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
  const uint64_t now = model_.changes();
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
  if (!sampled.empty()) {
    for (Sequence* s : sampled)
      if (s->completion.tokens.empty()) begin(*s);
    std::vector<std::vector<Choice>> choices = choose(sampled, hidden);
    for (size_t i = 0; i < choices.size(); ++i) {
      sampled[i]->failed = choices[i].empty() || sampled[i]->prompt->failed;
      if (!sampled[i]->failed) append(*sampled[i], std::move(choices[i]));
    }
    speculation_.end_step();
  }
  // What has ended is out of the scheduler before a callback can throw.
  std::vector<std::unique_ptr<Sequence>> ended = scheduler_.take_finished();
  for (const Sequence* s : sampled) {
    const Callbacks& own = s->prompt->callbacks;
    const auto& on_token = own.done ? own.on_token : callbacks.on_token;
    if (on_token && !s->failed) on_token(s->completion);
  }
  report(std::move(ended), callbacks);
  return !scheduler_.idle() || !inbox_.empty();
}

std::vector<std::vector<Choice>> Engine::choose(const std::vector<Sequence*>& sampled,
                                                const at::Tensor& hidden) {
  std::vector<SampledRows> rows;
  std::vector<std::vector<int32_t>> drafted;  // completions with their drafts
  drafted.reserve(sampled.size());
  for (const Sequence* s : sampled) {
    const Prompt& prompt = *s->prompt;
    const GenerationOptions& options = prompt.request.options;
    const Completion& c = s->completion;
    const std::vector<int32_t>& said = s->continued.empty() ? c.tokens : s->continued;
    std::span<const int32_t> completion = said;
    if (!s->draft.empty()) {
      std::vector<int32_t>& tokens = drafted.emplace_back(said);
      for (const DraftToken& t : s->draft) tokens.push_back(t.token);
      completion = tokens;
    }
    rows.push_back({.options = &options.sampling,
                    .key = {static_cast<uint64_t>(c.index), static_cast<uint64_t>(c.sample),
                            static_cast<uint64_t>(prompt.request.position) + c.tokens.size()},
                    .prompt = std::span(prompt.request.prompt)
                                  .first(prompt.request.prompt.size() -
                                         static_cast<size_t>(prompt.request.begun)),
                    .completion = completion,
                    .drafted = static_cast<int64_t>(s->draft.size()),
                    .ends = prompt.ends,
                    .min_tokens = options.min_new_tokens,
                    .adapter = prompt.request.adapter,
                    .top_logprobs = options.top_logprobs,
                    .record_kept = options.record_kept,
                    .matcher = s->matcher.get()});
  }
  return sample(model_, hidden, rows, never_);
}

// Gives the sequences for which a token is sampled now, and their rows of hidden states.
std::vector<Sequence*> Engine::forward(at::Tensor& hidden) {
  const ScheduledBatch passes =
      scheduler_.next_passes(speculation_, [this] { return nn::mixes_adapters(model_); });
  std::vector<at::Tensor> parts;
  std::vector<Sequence*> sampled;
  for (const ScheduledPass& pass : passes) {
    if (pass.forest->num_tokens() == 0) continue;
    std::vector<int64_t> first(static_cast<size_t>(pass.decoding_rows));
    std::iota(first.begin(), first.end(), 0);
    std::vector<int64_t> read = first;
    for (const auto& [prompt, row] : pass.prefilled) read.push_back(row);
    const auto cached = pass.rows.pass(*pass.forest);
    nn::Context context{
        .forest = pass.forest, .adapter = pass.adapters[0].adapter, .cache = cached.get()};
    if (pass.adapters.size() > 1) context.adapter_rows = pass.adapters;
    if (pass.to_score.empty())
      context.rows = nn::rows_to_read(std::move(read), pass.forest->num_tokens());
    const at::Tensor out = model_.forward(context);
    ++passes_;
    if (!pass.decoding.empty()) {
      parts.push_back(ops::select_rows(out, first));
      sampled.insert(sampled.end(), pass.decoding.begin(), pass.decoding.end());
    }
    for (const ScheduledPass::Chunk& chunk : pass.to_score) score_chunk(model_, out, chunk);
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

// What a completion that goes on has said already.
void Engine::begin(Sequence& s) const {
  const Prompt& prompt = *s.prompt;
  const GenerationOptions& options = prompt.request.options;
  s.completion.of_prompt = prompt.logprobs;
  if (prompt.grammar) s.matcher = std::make_unique<grammar::Matcher>(prompt.grammar, prompt.ends);
  if (tokenizer_ && (!options.stop.empty() || options.stream))
    s.text.emplace(*tokenizer_, options.stop);
  s.continued.assign(prompt.begun().begin(), prompt.begun().end());
  for (const int32_t token : prompt.begun()) {
    if (s.matcher) s.matcher->accept(token);
    if (s.text) s.text->push(token, false);
  }
}

// Takes the choices up to one that ends the sequence, and the keys of rejected tokens out of the
// cache.
void Engine::append(Sequence& sequence, std::vector<Choice> choices) {
  int64_t taken = 0;
  for (Choice& choice : choices) {
    append(sequence, std::move(choice));
    ++taken;
    if (sequence.finished()) break;
  }
  sequence.completion.added = taken;
  if (sequence.draft.empty()) return;
  speculation_.record(sequence, taken - 1);
  sequence.pages->truncate(sequence.length() - 1);
}

void Engine::append(Sequence& sequence, Choice choice) {
  Prompt& prompt = *sequence.prompt;
  const GenerationOptions& options = prompt.request.options;
  Completion& c = sequence.completion;
  c.tokens.push_back(choice.token);
  if (prompt.request.begun > 0) sequence.continued.push_back(choice.token);
  if (speculation_.on()) {
    if (!prompt.texts)
      prompt.texts = std::make_unique<DraftTexts>(prompt.request.prompt, options.sampling, c.index,
                                                  prompt.request.position);
    prompt.texts->append(c.sample, choice.token);
  }
  c.logprobs.push_back(choice.logp);
  if (options.record_kept) c.kept.push_back(std::move(choice.kept));
  if (options.top_logprobs > 0) c.top_logprobs.push_back(std::move(choice.top));
  ++new_tokens_;
  c.stopped = prompt.grammar ? choice.ended
                             : std::find(prompt.ends.begin(), prompt.ends.end(), choice.token) !=
                                   prompt.ends.end();
  if (!sequence.text) return;
  const bool may_stop =
      prompt.request.begun + static_cast<int64_t>(c.tokens.size()) >= options.min_new_tokens;
  if (sequence.text->push(choice.token, may_stop)) c.stopped = true;
  if (options.stream) c.text += sequence.text->shown().substr(c.text.size());
}

void Engine::report(std::vector<std::unique_ptr<Sequence>> ended, const Callbacks& callbacks) {
  for (const auto& sequence : ended) {
    Completion& c = sequence->completion;
    const GenerationOptions& options = sequence->prompt->request.options;
    if (!tokenizer_ || sequence->failed) continue;
    const std::vector<int32_t>& tokens =
        sequence->continued.empty() ? c.tokens : sequence->continued;
    c.text = text_of(*tokenizer_, tokens, options.stop, options.min_new_tokens);
  }
  std::string first_failure;
  for (const auto& sequence : ended) {
    const Callbacks& own = sequence->prompt->callbacks;
    const Callbacks& to = own.done ? own : callbacks;
    Completion& c = sequence->completion;
    if (!sequence->failed || c.cancelled) {
      if (to.done) to.done(std::move(c));
      continue;
    }
    const std::string why = str("row ", c.index, ", sample ", c.sample, ": ", kNotFinite);
    if (to.failed) to.failed(c, why);
    if (!to.failed && first_failure.empty()) first_failure = why;
  }
  check(first_failure.empty(), first_failure);
}

void Engine::run(const std::function<void(Completion)>& done,
                 const std::function<void(const Completion&)>& on_token,
                 const std::function<void()>& before_step) {
  do {
    if (before_step) before_step();
  } while (step({done, on_token}));
}

Engine::Statistics Engine::statistics() const {
  return {scheduler_.statistics(), speculation_.statistics(), new_tokens_, passes_};
}

Engine::Statistics generate(models::CausalLM& model,
                            const std::vector<std::vector<int32_t>>& prompts, int64_t num_samples,
                            const GenerationOptions& options,
                            const std::function<void(Completion)>& done,
                            std::shared_ptr<const Tokenizer> tokenizer,
                            const std::function<void(const Completion&)>& on_token,
                            const EngineOptions& engine_options, const std::vector<int>& adapters,
                            const std::function<void()>& before_step,
                            const std::vector<std::vector<ExternalRows>>& rows) {
  Engine engine(model, engine_options, std::move(tokenizer));
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request request{static_cast<int64_t>(i), prompts[i], num_samples, options,
                    adapters.empty() ? 0 : adapters.at(i)};
    if (!rows.empty()) request.rows = rows.at(i);
    engine.submit(std::move(request));
  }
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
      on_token, before_step);
  return engine.statistics();
}

}  // namespace temper::generate
