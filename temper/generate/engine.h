// Sampling many sequences at once through a cache of keys and values, with the training forward
// pass's own kernels: the log-probabilities recorded are, bit for bit, those that scoring and
// training compute.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "temper/generate/cache.h"
#include "temper/generate/sampler.h"
#include "temper/models/model.h"
#include "temper/text/tokenizer.h"

namespace temper::generate {

inline constexpr int64_t kMostNewTokens = int64_t{1} << 24;

struct EngineOptions {
  SamplingOptions sampling;
  int64_t max_new_tokens = 64;  // at most kMostNewTokens
  bool ignore_eos = false;
  std::vector<std::string> stop;  // texts that end a completion; they need a tokenizer
  int64_t max_batch = 256;        // sequences at once; changes the speed, never a token
  int64_t cache_bytes = 0;        // most memory for keys and values; 0: a quarter of what is usable
  int64_t prefill_tokens = 2048;  // of prompts in one forward pass
};

struct Request {
  int64_t index = 0;            // names the prompt among the random numbers and in its completions
  std::vector<int32_t> prompt;  // not empty
  int64_t num_samples = 1;
};

struct Completion {
  int64_t index = 0, sample = 0;
  std::vector<int32_t> tokens;  // a sampled end token included
  std::vector<float> logprobs;  // at the sampling temperature (greedy: at 1), before penalty,
                                // top-k, top-p and min-p
  bool stopped = false;         // by an end token or a stop text; else by its length
  std::string text;  // without special tokens, cut at a stop text; empty without a tokenizer
};

// What a completion says depends on (seed, index, sample) and its prompt alone. Sequences come and
// go at every step (continuous batching, Yu et al., OSDI 2022); prompts go through the model in
// chunks beside sequences that decode; samples of a prompt share its pages, and so do prompts that
// begin alike, also of earlier calls while the weights stay what they are. A sequence is admitted
// when all the pages that it may need are there, so nothing that runs can run dry.
class Engine {
 public:
  Engine(models::CausalLM& model, EngineOptions options,
         std::shared_ptr<const Tokenizer> tokenizer = nullptr);
  ~Engine();

  // Also from inside `done`. Throws DataError for an empty prompt and for ids that are not the
  // model's, ConfigError for a prompt that can never fit the cache.
  void submit(Request request);
  // Samples until all that was submitted is done. `done` gets completions as they end; the order is
  // deterministic. `on_token`, if given, sees every completion after each of its tokens.
  void run(const std::function<void(Completion)>& done,
           const std::function<void(const Completion&)>& on_token = {});

  struct Statistics {
    int64_t prompt_tokens = 0;  // of prompts, each once
    int64_t reused_tokens = 0;  // of those, found in pages of earlier prompts
    int64_t new_tokens = 0, passes = 0;
  };
  const Statistics& statistics() const { return statistics_; }
  // Throws RunError unless every page of the cache is accounted for.
  void check_invariants() const;
  // Gives the cache's memory back until the next run.
  void release_memory() { cache_.release_memory(); }

 private:
  struct Prompt;
  struct Running;
  void forget_stale_prefixes();
  int64_t pages_of_prompt(const Prompt& prompt) const;
  int64_t pages_of_sample(const Prompt& prompt) const;
  void admit();
  bool admit_one();
  void step(const std::function<void(Completion)>& done,
            const std::function<void(const Completion&)>& on_token);
  at::Tensor forward(std::vector<Running*>& sampled);
  void sample(const std::vector<Running*>& rows, const at::Tensor& hidden);
  void append(Running& running, int32_t token, float logp);
  bool finished(const Running& running) const;
  void retire(const std::function<void(Completion)>& done);

  models::CausalLM& model_;
  EngineOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  int64_t cache_bytes_;
  PageCache cache_;
  std::deque<std::shared_ptr<Prompt>> waiting_;   // prompts with samples that have not started
  std::vector<std::shared_ptr<Prompt>> filling_;  // admitted, not all of the prompt is in the cache
  std::vector<std::unique_ptr<Running>> running_;
  int64_t reserved_ = 0;  // pages that what was admitted may take
  uint64_t weights_ = 0;  // a fingerprint of what the known prefixes were computed with
  Statistics statistics_;
};

// Completions of many prompts, `done` in order of (index, sample). What `done` and `on_token` throw
// ends the sampling.
void generate(models::CausalLM& model, const std::vector<std::vector<int32_t>>& prompts,
              int64_t num_samples, const EngineOptions& options,
              const std::function<void(Completion)>& done,
              std::shared_ptr<const Tokenizer> tokenizer = nullptr,
              const std::function<void(const Completion&)>& on_token = {});

}  // namespace temper::generate
