// What is asked of the sampler, and what it gives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "temper/generate/sampling/sampler.h"
#include "temper/grammar/spec.h"
#include "temper/ops/forest.h"

namespace temper::generate {

inline constexpr int64_t kMostNewTokens = int64_t{1} << 24;

// How one request is sampled.
struct GenerationOptions {
  SamplingOptions sampling;
  int64_t max_new_tokens = 64;  // 1 to kMostNewTokens
  int64_t min_new_tokens = 0;  // before so many no end token is chosen, and no stop text looked for
  bool ignore_eos = false;
  std::vector<std::string> stop;        // texts that end a completion; they need a tokenizer
  std::vector<int32_t> stop_token_ids;  // end tokens beside the model's, whatever ignore_eos says
  bool stream = false;                  // on_token sees the text so far
  // What the completion has to be; needs a tokenizer. Null: anything. Where the grammar ends, so
  // does the completion: by an end token, or at once where there is none.
  std::shared_ptr<const grammar::Spec> grammar;
  int64_t top_logprobs = 0;      // likeliest tokens recorded at each position
  bool prompt_logprobs = false;  // of the prompt's tokens, too; the prefix cache is not used then
  // Where top_k, top_p or min_p leave a part of the vocabulary: record which, and log-probabilities
  // of the distribution over it. Only without what SamplingOptions::changes_logits() names.
  bool record_kept = false;
};

struct Request {
  int64_t index = 0;            // names the prompt among the random numbers and in its completions
  std::vector<int32_t> prompt;  // not empty
  int64_t num_samples = 1;
  GenerationOptions options;
  int adapter = 0;  // nn::Context::adapter
  // Who asks. Where several do, they take turns, and none can keep the others out; 0: this program
  // itself, which nobody shares the engine with.
  uint64_t client = 0;
  // Where a completion is continued: the number of its first sample, and how many tokens of it the
  // prompt ends with. They determine the random numbers.
  int64_t first_sample = 0, position = 0;
  // How many tokens at the prompt's end are the completion's own, which was interrupted. Penalties,
  // stop texts, the grammar and min_new_tokens see them, and Completion::text has them; all else is
  // of the tokens after them. At most `position`, and fewer than the prompt has.
  int64_t begun = 0;
  std::vector<ExternalRows> rows = {};  // in place of the embeddings of some of the prompt's tokens
};

using RequestId = uint64_t;  // of one engine

// Likeliest first, with log-probabilities as Completion::logprobs.
using TopLogprobs = std::vector<std::pair<int32_t, float>>;

// What the model says of a prompt's tokens from the second one on.
struct PromptLogprobs {
  std::vector<float> logprobs;
  std::vector<TopLogprobs> top;  // where top_logprobs asks for it
};

struct Completion {
  int64_t index = 0, sample = 0;
  std::vector<int32_t> tokens;  // a sampled end token included
  std::vector<float> logprobs;  // at the sampling temperature (greedy: at 1), before penalty,
                                // top-k, top-p and min-p; with `kept` after these three
  std::vector<std::vector<int32_t>> kept;  // by token, ascending, where record_kept asks for it
  std::vector<TopLogprobs> top_logprobs;   // of each token, where they were asked for
  std::shared_ptr<const PromptLogprobs> of_prompt;  // where they were asked for
  bool stopped = false;  // by an end token, a stop text or its grammar's end; else by its length
  std::optional<float> score;  // what a beam search ranks it by
  bool cancelled = false;  // its request was cancelled: `tokens` are those sampled before, if any
  int64_t added = 0;       // for on_token: how many of the tokens are new
  // Without special tokens, cut at a stop text; empty without a tokenizer. For on_token, with
  // GenerationOptions::stream: what no later token takes back (the beginning of a character or of a
  // stop text is held back).
  std::string text;
  RequestId request = 0;
};

struct Callbacks {
  std::function<void(Completion)> done;
  std::function<void(const Completion&)> on_token;  // after each step of the engine
                                                    // that adds to it; may be empty
  // Called in place of `done` for a completion that ends because the model's logits for it are not
  // finite; `why` is the message. If empty, the engine throws RunError with that message instead.
  std::function<void(const Completion&, const std::string& why)> failed = {};
};

}  // namespace temper::generate
