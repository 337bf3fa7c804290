#include "temper/generate/generator.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>

#include "temper/base/error.h"
#include "temper/generate/cache.h"
#include "temper/ops/embedding.h"

namespace temper::generate {
namespace {

// A prompt whose keys are in the cache, for as long as a sample of it still has to start.
struct Prompt {
  Prompt(const std::vector<int32_t>& prompt_tokens, PageCache& cache) : tokens(&prompt_tokens), pages(cache) {}
  const std::vector<int32_t>* tokens;
  PageCache::Sequence pages;
  at::Tensor last_hidden;  // [1, H]: every sample's first token comes from it
};

struct Running {
  Completion completion;
  std::shared_ptr<Prompt> prompt;
  std::unique_ptr<PageCache::Sequence> pages;
  int64_t length = 0;  // tokens whose keys are cached
};

// Rows come and go at every step: a finished one's place is taken at once (continuous batching, Yu et al., OSDI 2022).
class Engine {
 public:
  Engine(models::CausalLM& model, const std::vector<std::vector<int32_t>>& prompts, const GenerateOptions& options,
         const std::function<void(Completion)>& done)
      : model_(model), prompts_(prompts), options_(options), done_(done), cache_(model, max_pages(model, options)) {}

  void run() {
    const int64_t total = static_cast<int64_t>(prompts_.size()) * options_.num_samples;
    while (delivered_ < total) {
      admit(total);
      check(!running_.empty(), "generate: a prompt of ", prompts_[static_cast<size_t>(next_ / options_.num_samples)].size(),
            " tokens and its completion do not fit the key-value cache");
      step();
    }
  }

 private:
  static int64_t max_pages(models::CausalLM& model, const GenerateOptions& options) {
    return std::max<int64_t>(1, options.cache_bytes / PageCache(model, 0).page_bytes());
  }

  // Pages that a sequence will need at most; admission reserves them, so nothing that runs can run dry.
  int64_t pages_needed(int64_t row) const {
    return PageCache::pages_for(static_cast<int64_t>(prompts_[static_cast<size_t>(row)].size()) + options_.max_new_tokens) + 1;
  }

  void admit(int64_t total) {
    std::vector<std::shared_ptr<Prompt>> fresh;
    std::vector<Running*> started;
    int64_t prefill = 0;
    while (next_ < total && static_cast<int64_t>(running_.size()) < options_.max_batch) {
      const int64_t row = next_ / options_.num_samples, sample = next_ % options_.num_samples;
      const std::vector<int32_t>& tokens = prompts_[static_cast<size_t>(row)];
      const int64_t length = static_cast<int64_t>(tokens.size());
      if (sample == 0 && !fresh.empty() && prefill + length > options_.prefill_tokens) break;
      const int64_t pages = pages_needed(row) + (sample == 0 ? PageCache::pages_for(length) : 0);
      if (reserved_ + pages > max_pages(model_, options_)) break;
      reserved_ += pages;
      if (sample == 0) {
        check<DataError>(!tokens.empty(), "row ", row, ": an empty prompt");
        prompt_ = std::make_shared<Prompt>(tokens, cache_);
        fresh.push_back(prompt_);
        prefill += length;
      }
      auto running = std::make_unique<Running>();
      running->completion.index = row;
      running->completion.sample = sample;
      running->prompt = prompt_;
      running->length = length;
      started.push_back(running.get());
      running_.push_back(std::move(running));
      ++next_;
    }
    if (!fresh.empty()) prefill_prompts(fresh);
    if (!started.empty()) start(started);
  }

  void prefill_prompts(const std::vector<std::shared_ptr<Prompt>>& fresh) {
    auto forest = std::make_shared<Forest>();
    BatchRows rows;
    std::vector<int64_t> last;
    for (const auto& prompt : fresh) {
      const int64_t length = static_cast<int64_t>(prompt->tokens->size());
      prompt->pages.reserve(length);
      forest->add_root(*prompt->tokens);
      rows.add(prompt->pages, length);
      last.push_back(forest->num_tokens() - 1);
    }
    const at::Tensor hidden = model_.forward({.forest = forest, .cache = &rows});
    for (size_t i = 0; i < fresh.size(); ++i) fresh[i]->last_hidden = ops::select_rows(hidden, {last[i]});
  }

  void start(const std::vector<Running*>& started) {
    std::vector<at::Tensor> hidden;
    for (Running* running : started) {
      running->pages = std::make_unique<PageCache::Sequence>(cache_);
      running->pages->fork(running->prompt->pages, running->length);
      hidden.push_back(running->prompt->last_hidden);
    }
    sample(started, at::cat(hidden));
  }

  void step() {
    auto forest = std::make_shared<Forest>();
    BatchRows rows;
    std::vector<Running*> batch;
    for (const auto& running : running_) {
      if (finished(*running)) continue;
      const int32_t token = running->completion.tokens.back();
      running->pages->reserve(running->length + 1);
      forest->add_root({&token, 1}, running->length);
      rows.add(*running->pages, 1);
      ++running->length;
      batch.push_back(running.get());
    }
    if (!batch.empty()) sample(batch, model_.forward({.forest = forest, .cache = &rows}));
    retire();
  }

  void sample(const std::vector<Running*>& batch, const at::Tensor& hidden) {
    if (options_.max_new_tokens == 0) return;
    const double temperature = options_.sampling.temperature == 0 ? 1 : options_.sampling.temperature;
    const ops::Logits next = ops::logits(model_.head_spec(temperature), hidden, model_.head().value());
    const float* logits = next.logits.const_data_ptr<float>();
    const float* log_sum = next.log_sum_exp.const_data_ptr<float>();
    const int64_t vocabulary = next.logits.size(1);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < batch.size(); ++i) {
      Completion& c = batch[i]->completion;
      const float* row = logits + static_cast<int64_t>(i) * vocabulary;
      const SampleKey key{static_cast<uint64_t>(c.index), static_cast<uint64_t>(c.sample), c.tokens.size()};
      const int32_t token = choose(options_.sampling, key, row, vocabulary);
      c.tokens.push_back(token);
      c.logprobs.push_back(row[token] - log_sum[i]);
      const auto& ends = model_.eos_token_ids;
      c.stopped = !options_.ignore_eos && std::find(ends.begin(), ends.end(), token) != ends.end();
    }
  }

  bool finished(const Running& r) const {
    return r.completion.stopped || static_cast<int64_t>(r.completion.tokens.size()) >= options_.max_new_tokens;
  }

  void retire() {
    for (auto& running : running_) {
      if (!finished(*running)) continue;
      Completion& c = running->completion;
      reserved_ -= pages_needed(c.index);
      if (c.sample == options_.num_samples - 1) reserved_ -= PageCache::pages_for(static_cast<int64_t>(prompts_[static_cast<size_t>(c.index)].size()));
      waiting_.emplace(c.index * options_.num_samples + c.sample, std::move(c));
      running.reset();
    }
    std::erase(running_, nullptr);
    for (auto it = waiting_.begin(); it != waiting_.end() && it->first == delivered_; it = waiting_.erase(it), ++delivered_)
      done_(std::move(it->second));
  }

  models::CausalLM& model_;
  const std::vector<std::vector<int32_t>>& prompts_;
  const GenerateOptions& options_;
  const std::function<void(Completion)>& done_;
  PageCache cache_;
  std::shared_ptr<Prompt> prompt_;
  std::vector<std::unique_ptr<Running>> running_;
  std::map<int64_t, Completion> waiting_;  // done, but an earlier one is not
  int64_t next_ = 0, delivered_ = 0, reserved_ = 0;
};

}  // namespace

void generate(models::CausalLM& model, const std::vector<std::vector<int32_t>>& prompts, const GenerateOptions& options,
              const std::function<void(Completion)>& done) {
  const at::NoGradGuard no_grad;
  Engine(model, prompts, options, done).run();
}

}  // namespace temper::generate
