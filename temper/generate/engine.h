// Sampling many sequences at once through a cache of keys and values, with the training forward
// pass's own kernels. With an exact backend (native) the log-probabilities recorded are, bit for
// bit, those that scoring and training compute; with aten they agree within rounding.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "temper/generate/cache.h"
#include "temper/generate/completion_source.h"
#include "temper/generate/inbox.h"
#include "temper/generate/request.h"
#include "temper/generate/sampling/batch_sampler.h"
#include "temper/generate/scheduler.h"
#include "temper/grammar/grammar.h"
#include "temper/models/model.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::generate {

// What an engine may use; none of it changes a token.
struct EngineOptions {
  int64_t max_batch = 256;        // sequences at once
  int64_t cache_bytes = 0;        // most memory for keys and values; 0: this program's share of a
                                  // quarter of what is usable (local_ranks)
  int64_t prefill_tokens = 1024;  // of prompts in one forward pass
  int local_ranks = 0;  // programs that share the machine's memory; 0: as the environment's
                        // LOCAL_WORLD_SIZE says, else 1
  // Tokens that are drafted for a sequence in a step (speculation.h): kAutomatic, or at most so
  // many.
  int64_t speculative = kAutomatic;
};

// What keys and values may take under these options.
int64_t cache_bytes(const EngineOptions& options);

// What a completion says depends on its request's seed and index, its sample and its prompt alone.
// Prompts that begin like an earlier prompt, or like an earlier prompt and its completion, start
// with those keys and values (prefix caching), while the weights stay what they are.
//
// submit(), cancel() and wait() may be called from any thread; one thread at a time calls the rest,
// and callbacks run on it. A callback may submit and cancel too. What a callback throws ends the
// step, and completions that ended in it may go unreported; the engine is fit to go on. It is not
// after what the model throws.
class Engine : public CompletionSource {
 public:
  Engine(models::CausalLM& model, EngineOptions options,
         std::shared_ptr<const Tokenizer> tokenizer = nullptr);

  // A request with callbacks of its own is reported to them, any other to those of step() or run().
  // Throws DataError for an empty prompt and for ids that are not the model's, ConfigError for
  // options that cannot be obeyed, a grammar among them, and for a prompt that can never fit the
  // cache. A new grammar is compiled here, which may take seconds.
  RequestId submit(Request request, Callbacks callbacks = {}) override;
  // Compiles what submit would compile, once. From any thread. Throws ConfigError.
  void prepare(const GenerationOptions& options) {
    if (options.grammar) compile(*options.grammar);
  }
  // Ends a request's samples at the beginning of the next step: each that is not done yet is
  // reported as it is, `cancelled`. An unknown or finished request is left alone.
  void cancel(RequestId id) override;

  // One pass of all adapters (of each, where nn::mixes_adapters() says so): a token for each
  // sequence that decodes, or more where drafted ones are accepted, and chunks of waiting prompts.
  // `done` gets completions as they end; their order is deterministic. False: nothing is left to
  // do.
  bool step(const Callbacks& callbacks) override;
  void rest() override {
    check_invariants();
    release_memory();
  }
  // Waits until something was submitted or cancelled, at most so long; false: nothing was.
  bool wait(std::chrono::milliseconds timeout) const override { return inbox_.wait(timeout); }
  // Steps until all that was submitted is done. before_step: called before each step; what it
  // throws ends the sampling.
  void run(const std::function<void(Completion)>& done,
           const std::function<void(const Completion&)>& on_token = {},
           const std::function<void()>& before_step = {});

  // accepted_tokens are part of new_tokens.
  struct Statistics : Scheduler::Statistics, Speculation::Statistics {
    int64_t new_tokens = 0, passes = 0;
  };
  Statistics statistics() const;
  Speculation::Statistics speculation() const override { return speculation_.statistics(); }
  // Throws RunError unless every page of the cache is accounted for.
  void check_invariants() const { scheduler_.check_invariants(); }
  // Gives the cache's memory back until the next step. Nothing may be running. What was learnt of
  // drafts is forgotten, so that what comes next does not depend on what came before.
  void release_memory() {
    cache_.release_memory();
    speculation_.forget();
  }

 private:
  std::shared_ptr<const grammar::Grammar> compile(const grammar::Spec& spec);
  void take_messages(const Callbacks& callbacks);
  void forget_stale_prefixes();
  std::vector<Sequence*> forward(at::Tensor& hidden);
  std::vector<std::vector<Choice>> choose(const std::vector<Sequence*>& sampled,
                                          const at::Tensor& hidden);
  void append(Sequence& sequence, std::vector<Choice> choices);
  void begin(Sequence& sequence) const;
  void append(Sequence& sequence, Choice choice);
  void report(std::vector<std::unique_ptr<Sequence>> ended, const Callbacks& callbacks);

  models::CausalLM& model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  int64_t cache_bytes_;
  PageCache cache_;
  Scheduler scheduler_;
  Speculation speculation_;
  const std::vector<int32_t> never_;  // never_sampled()
  Inbox inbox_;
  std::once_flag grammars_once_;
  std::unique_ptr<grammar::Compiler> grammars_;  // made for the first grammar
  std::atomic<RequestId> next_id_{1};
  uint64_t weights_ = 0;  // model_.changes() when the known prefixes were computed
  int64_t new_tokens_ = 0, passes_ = 0;
};

// Completions of many prompts, `done` in order of (index, sample). What `done`, `on_token` and
// `before_step` throw ends the sampling. `adapters` has nn::Context::adapter of each prompt, `rows`
// its Request::rows; empty: 0, and none, of all.
Engine::Statistics generate(models::CausalLM& model,
                            const std::vector<std::vector<int32_t>>& prompts, int64_t num_samples,
                            const GenerationOptions& options,
                            const std::function<void(Completion)>& done,
                            std::shared_ptr<const Tokenizer> tokenizer = nullptr,
                            const std::function<void(const Completion&)>& on_token = {},
                            const EngineOptions& engine_options = {},
                            const std::vector<int>& adapters = {},
                            const std::function<void()>& before_step = {},
                            const std::vector<std::vector<ExternalRows>>& rows = {});

}  // namespace temper::generate
