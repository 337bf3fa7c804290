#include "temper/generate/engine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <set>

#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/ops/embedding.h"

namespace temper::generate {

// A prompt from its submission until its last sample is done.
struct Engine::Prompt {
  Prompt(Request r, PageCache& cache) : request(std::move(r)), pages(cache) {}
  int64_t length() const { return static_cast<int64_t>(request.prompt.size()); }
  bool ready() const { return last_hidden.defined(); }

  Request request;
  PageCache::Sequence pages;
  int64_t filled = 0;      // positions whose keys are in the cache
  at::Tensor last_hidden;  // [1, H]: every sample's first token comes from it
  int64_t next_sample = 0, unfinished = 0;
};

struct Engine::Running {
  Completion completion;
  std::shared_ptr<Prompt> prompt;
  std::unique_ptr<PageCache::Sequence> pages;  // null until the prompt is ready
  std::unique_ptr<StreamDecoder> decoder;      // where stop texts are looked for
};

Engine::Engine(models::CausalLM& model, EngineOptions options,
               std::shared_ptr<const Tokenizer> tokenizer)
    : model_(model),
      options_(std::move(options)),
      tokenizer_(std::move(tokenizer)),
      cache_bytes_(options_.cache_bytes > 0 ? options_.cache_bytes : usable_memory_bytes() / 4),
      cache_(model, cache_bytes_) {
  check<ConfigError>(options_.max_new_tokens <= kMostNewTokens, "max_new_tokens: found ",
                     options_.max_new_tokens, ", expected at most ", kMostNewTokens);
  check<ConfigError>(options_.stop.empty() || tokenizer_,
                     "stop texts need a tokenizer, and the model has none");
  std::erase(options_.stop, "");
}

Engine::~Engine() = default;

// What a prompt's own pages are, and what a sample needs beside those of them that it shares.
int64_t Engine::pages_of_prompt(const Prompt& prompt) const {
  return PageCache::pages_for(prompt.length());
}
int64_t Engine::pages_of_sample(const Prompt& prompt) const {
  return PageCache::pages_for(prompt.length() + options_.max_new_tokens) -
         prompt.length() / ops::page_tokens();
}

void Engine::submit(Request request) {
  check<DataError>(!request.prompt.empty(), "row ", request.index, ": an empty prompt");
  for (const int32_t id : request.prompt)
    check<DataError>(id >= 0 && id < model_.vocab_size, "row ", request.index, ": token ", id,
                     ", and the model has ", model_.vocab_size);
  auto prompt = std::make_shared<Prompt>(std::move(request), cache_);
  const int64_t needed = pages_of_prompt(*prompt) + pages_of_sample(*prompt);
  check<ConfigError>(needed <= cache_.max_pages(), "a prompt of ", prompt->length(), " tokens and ",
                     options_.max_new_tokens, " new ones need ", needed * cache_.page_bytes(),
                     " bytes for keys and values, and may take ", cache_bytes_,
                     " (rollout.cache_bytes, --cache-bytes)");
  prompt->unfinished = prompt->request.num_samples;
  if (prompt->unfinished > 0) waiting_.push_back(std::move(prompt));
}

void Engine::forget_stale_prefixes() {
  uint64_t weights = 0;
  model_.each_parameter(
      [&](const std::string&, nn::Parameter& p) { weights = weights * 31 + p.updates(); });
  if (weights != weights_) cache_.forget_prefixes();
  weights_ = weights;
}

void Engine::run(const std::function<void(Completion)>& done,
                 const std::function<void(const Completion&)>& on_token) {
  const at::NoGradGuard no_grad;
  forget_stale_prefixes();
  while (!waiting_.empty() || !running_.empty()) {
    admit();
    step(done, on_token);
  }
}

void Engine::admit() {
  while (static_cast<int64_t>(running_.size()) < options_.max_batch && !waiting_.empty() &&
         admit_one()) {
  }
}

// Starts the next sample of the prompt that waits longest, if its pages are to be had.
bool Engine::admit_one() {
  const std::shared_ptr<Prompt>& prompt = waiting_.front();
  const bool first = prompt->next_sample == 0;
  const int64_t needed = pages_of_sample(*prompt) + (first ? pages_of_prompt(*prompt) : 0);
  if (reserved_ + needed > cache_.max_pages()) return false;
  reserved_ += needed;
  if (first) {
    filling_.push_back(prompt);
    statistics_.prompt_tokens += prompt->length();
  }
  auto running = std::make_unique<Running>();
  running->completion.index = prompt->request.index;
  running->completion.sample = prompt->next_sample++;
  running->prompt = prompt;
  if (!options_.stop.empty()) running->decoder = std::make_unique<StreamDecoder>(*tokenizer_);
  running_.push_back(std::move(running));
  if (prompt->next_sample == prompt->request.num_samples) waiting_.pop_front();
  return true;
}

void Engine::step(const std::function<void(Completion)>& done,
                  const std::function<void(const Completion&)>& on_token) {
  std::vector<Running*> sampled;
  const at::Tensor hidden = forward(sampled);
  if (!sampled.empty()) sample(sampled, hidden);
  if (on_token)
    for (const Running* running : sampled) on_token(running->completion);
  retire(done);
}

// One pass: the last token of everything that decodes, and the next chunks of prompts. Gives the
// hidden rows that tokens are sampled from now, and whose they are.
at::Tensor Engine::forward(std::vector<Running*>& sampled) {
  auto forest = std::make_shared<Forest>();
  BatchRows rows;
  std::vector<int64_t> wanted;  // rows of the pass
  for (const auto& running : running_) {
    if (!running->pages) continue;
    const int64_t position =
        running->prompt->length() + static_cast<int64_t>(running->completion.tokens.size()) - 1;
    running->pages->reserve(position + 1);
    wanted.push_back(forest->num_tokens());
    forest->add_root({&running->completion.tokens.back(), 1}, position);
    rows.add(*running->pages, 1);
    sampled.push_back(running.get());
  }
  std::vector<std::pair<Prompt*, int64_t>>
      ends;  // prompts that are whole after this pass, and their last rows
  int64_t room = options_.prefill_tokens;
  for (const auto& prompt : filling_) {
    if (room == 0) break;
    const std::span<const int32_t> tokens = prompt->request.prompt;
    if (prompt->filled == 0) {
      prompt->filled = prompt->pages.reuse(tokens);
      statistics_.reused_tokens += prompt->filled;
    }
    const int64_t chunk = std::min(room, prompt->length() - prompt->filled);
    prompt->pages.reserve(prompt->filled + chunk);
    forest->add_root(
        tokens.subspan(static_cast<size_t>(prompt->filled), static_cast<size_t>(chunk)),
        prompt->filled);
    rows.add(prompt->pages, chunk);
    prompt->filled += chunk;
    room -= chunk;
    if (prompt->filled == prompt->length())
      ends.emplace_back(prompt.get(), forest->num_tokens() - 1);
  }
  std::vector<at::Tensor> parts;
  if (forest->num_tokens() > 0) {
    const at::Tensor hidden = model_.forward({.forest = forest, .cache = &rows});
    ++statistics_.passes;
    if (!wanted.empty()) parts.push_back(ops::select_rows(hidden, wanted));
    for (const auto& [prompt, row] : ends) {
      prompt->last_hidden = ops::select_rows(hidden, {row});
      prompt->pages.publish(prompt->request.prompt);
    }
    std::erase_if(filling_, [](const auto& prompt) { return prompt->ready(); });
  }
  for (const auto& running : running_) {
    if (running->pages || !running->prompt->ready()) continue;
    running->pages = std::make_unique<PageCache::Sequence>(cache_);
    running->pages->fork(running->prompt->pages, running->prompt->length());
    parts.push_back(running->prompt->last_hidden);
    sampled.push_back(running.get());
  }
  return parts.empty() ? at::Tensor() : parts.size() == 1 ? parts[0] : at::cat(parts);
}

void Engine::sample(const std::vector<Running*>& rows, const at::Tensor& hidden) {
  const double temperature = options_.sampling.temperature == 0 ? 1 : options_.sampling.temperature;
  const ops::Logits next = model_.logits(hidden, temperature);
  const float *logits = next.logits.const_data_ptr<float>(),
              *log_sum = next.log_sum_exp.const_data_ptr<float>();
  const int64_t vocabulary = next.logits.size(1), blocks = next.block_max.size(1);
  std::vector<int32_t> chosen(rows.size());
#pragma omp parallel for schedule(static) if (rows.size() > 4 || options_.sampling.filters())
  for (size_t i = 0; i < rows.size(); ++i) {
    const Completion& c = rows[i]->completion;
    const int64_t r = static_cast<int64_t>(i);
    const LogitsRow row{logits + r * vocabulary, vocabulary,
                        next.block_max.const_data_ptr<float>() + r * blocks,
                        next.block_sum.const_data_ptr<float>() + r * blocks};
    const SampleKey key{static_cast<uint64_t>(c.index), static_cast<uint64_t>(c.sample),
                        c.tokens.size()};
    chosen[i] = choose(options_.sampling, key, row, rows[i]->prompt->request.prompt, c.tokens);
  }
  for (size_t i = 0; i < rows.size(); ++i)
    append(*rows[i], chosen[i],
           logits[static_cast<int64_t>(i) * vocabulary + chosen[i]] - log_sum[i]);
  statistics_.new_tokens += static_cast<int64_t>(rows.size());
}

void Engine::append(Running& running, int32_t token, float logp) {
  Completion& c = running.completion;
  c.tokens.push_back(token);
  c.logprobs.push_back(logp);
  const std::vector<int32_t>& ends = model_.eos_token_ids;
  c.stopped = !options_.ignore_eos && std::find(ends.begin(), ends.end(), token) != ends.end();
  if (!running.decoder) return;
  const size_t before = c.text.size();
  c.text += running.decoder->push(token);
  for (const std::string& stop : options_.stop) {
    // A stop text that ends in what is new may begin up to its length before.
    const size_t from = before >= stop.size() ? before - stop.size() + 1 : 0;
    c.stopped = c.stopped || c.text.find(stop, from) != std::string::npos;
  }
}

bool Engine::finished(const Running& running) const {
  return running.completion.stopped ||
         static_cast<int64_t>(running.completion.tokens.size()) >= options_.max_new_tokens;
}

void Engine::retire(const std::function<void(Completion)>& done) {
  std::vector<Completion> ended;
  for (auto& running : running_) {
    if (!running->pages || !finished(*running)) continue;
    Completion& c = running->completion;
    if (tokenizer_) c.text = tokenizer_->decode(c.tokens, true);
    size_t cut = c.text.size();
    for (const std::string& stop : options_.stop) cut = std::min(cut, c.text.find(stop));
    c.text.resize(cut);
    Prompt& prompt = *running->prompt;
    reserved_ -= pages_of_sample(prompt);
    if (--prompt.unfinished == 0) reserved_ -= pages_of_prompt(prompt);
    ended.push_back(std::move(c));
    running.reset();
  }
  std::erase(running_, nullptr);
  for (Completion& completion : ended) done(std::move(completion));
}

void Engine::check_invariants() const {
  std::vector<const PageCache::Sequence*> live;
  std::set<const Prompt*> prompts;
  int64_t reserved = 0;
  for (const auto& prompt : waiting_) prompts.insert(prompt.get());
  for (const auto& running : running_) {
    prompts.insert(running->prompt.get());
    if (running->pages) live.push_back(running->pages.get());
    reserved += pages_of_sample(*running->prompt);
  }
  for (const Prompt* prompt : prompts) {
    live.push_back(&prompt->pages);
    if (prompt->next_sample > 0) reserved += pages_of_prompt(*prompt);
  }
  cache_.check_invariants(live);
  check(reserved_ == reserved, reserved_, " pages are reserved, ", reserved, " may be taken");
}

void generate(models::CausalLM& model, const std::vector<std::vector<int32_t>>& prompts,
              int64_t num_samples, const EngineOptions& options,
              const std::function<void(Completion)>& done,
              std::shared_ptr<const Tokenizer> tokenizer,
              const std::function<void(const Completion&)>& on_token) {
  Engine engine(model, options, std::move(tokenizer));
  for (size_t i = 0; i < prompts.size(); ++i)
    engine.submit({static_cast<int64_t>(i), prompts[i], num_samples});
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
