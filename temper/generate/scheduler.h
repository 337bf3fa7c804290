// Which sequences run, and what of them goes through the model next: continuous batching (Yu et
// al., OSDI 2022) with chunked prefill. Sequences come and go at every pass; prompts go through the
// model in chunks beside sequences that decode; the samples of a prompt share its pages. A sequence
// is admitted when all the pages that it may need are there, so that none that runs is ever
// preempted.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "temper/generate/cache.h"
#include "temper/generate/request.h"
#include "temper/generate/sampling/drafts.h"
#include "temper/generate/sampling/speculation.h"
#include "temper/generate/text_stream.h"
#include "temper/grammar/grammar.h"
#include "temper/nn/context.h"

namespace temper::generate {

// A request from its submission until its last sample has ended.
struct Prompt {
  Prompt(RequestId request_id, Request r, Callbacks c, PageCache& cache)
      : id(request_id),
        request(std::move(r)),
        callbacks(std::move(c)),
        pages(cache, request.adapter) {}
  int64_t length() const { return static_cast<int64_t>(request.prompt.size()); }
  // Of what follows it.
  int64_t rotation_shift() const { return temper::rotation_shift(request.rows, length()); }
  bool ready() const { return last_hidden.defined(); }
  // The end of it that belongs to the completion (Request::begun).
  std::span<const int32_t> begun() const {
    return std::span(request.prompt).last(static_cast<size_t>(request.begun));
  }

  RequestId id;
  Request request;
  Callbacks callbacks;
  std::vector<int32_t> ends;                        // tokens that end its samples
  std::shared_ptr<const grammar::Grammar> grammar;  // null: none
  std::shared_ptr<PromptLogprobs> logprobs;         // null: they are not asked for
  std::unique_ptr<DraftTexts> texts;  // null: nothing was sampled yet, or nothing is drafted
  PageTable pages;
  int64_t filled = 0;      // positions whose keys are in the cache
  at::Tensor last_hidden;  // [1, H]: every sample's first token comes from it
  int64_t next_sample = 0, unfinished = 0;
  bool failed = false;  // the log-probabilities of its tokens are not finite
};

// One sample of a prompt while it runs.
struct Sequence {
  int64_t length() const {
    return prompt->length() + static_cast<int64_t>(completion.tokens.size());
  }
  bool finished() const {
    return failed || completion.stopped ||
           static_cast<int64_t>(completion.tokens.size()) >= prompt->request.options.max_new_tokens;
  }

  std::shared_ptr<Prompt> prompt;
  Completion completion;
  std::vector<int32_t> continued;             // the completion from its beginning, where it goes on
  std::unique_ptr<PageTable> pages;           // null until the prompt is ready
  std::optional<TextStream> text;             // where stop texts or streaming need it
  std::unique_ptr<grammar::Matcher> matcher;  // null: no grammar
  bool failed = false;                        // there is nothing to sample its next token from
  std::vector<DraftToken> draft;              // goes through the model behind the last token
};

// One forward pass: the last token of every sequence that decodes and its draft, then the next
// chunks of prompts.
struct ScheduledPass {
  std::shared_ptr<Forest> forest = std::make_shared<Forest>();
  BatchRows rows;
  std::vector<nn::AdapterRows> adapters;  // cover the forest's tokens
  std::vector<Sequence*> decoding;        // each has 1 + draft.size() rows, in order
  int64_t decoding_rows = 0;
  std::vector<std::pair<Prompt*, int64_t>> prefilled;  // whole after it; the last token's row
  // Chunks of prompts whose log-probabilities are asked for: first row, first position, tokens.
  struct Chunk {
    Prompt* prompt;
    int64_t row, position, size;
  };
  std::vector<Chunk> to_score;
};
// Several where sequences of different adapters go through the model one after the other.
using ScheduledBatch = std::vector<ScheduledPass>;

class Scheduler {
 public:
  // prefill_tokens: most tokens of prompts in a step.
  Scheduler(PageCache& cache, int64_t max_batch, int64_t prefill_tokens)
      : cache_(cache), max_batch_(max_batch), prefill_tokens_(prefill_tokens) {}

  // Most pages that the request may take when it runs alone, a sample at a time.
  static int64_t pages_needed(const Request& request, int64_t page_tokens);

  void add(std::shared_ptr<Prompt> prompt);
  bool idle() const { return waiting_.empty() && running_.empty(); }

  // Admits what there is room for and plans the next passes: one for each adapter, or, where
  // several are in use and `mixes` allows it, one for all. Clients take turns (Request::client):
  // the next sample is of the one with the fewest that run, and of its requests of the first. A
  // client that others wait beside cannot keep them out: an eighth of the pages is for those of
  // whom nothing runs, and so many samples more than max_batch may run of clients below their
  // share.
  ScheduledBatch next_passes(Speculation& speculation, const std::function<bool()>& mixes);
  // After the passes, when last_hidden of its prefilled prompts is set: their pages are made known,
  // and their samples begin. Gives the samples that begin; a token is sampled for each.
  std::vector<Sequence*> begin_samples(const ScheduledBatch& passes);
  // Takes out the sequences that are finished, in order of admission; their pages stay known.
  std::vector<std::unique_ptr<Sequence>> take_finished();
  // Takes out all samples of a request, by number; those that were not admitted are empty. An
  // unknown request has none.
  std::vector<std::unique_ptr<Sequence>> cancel(RequestId id);

  struct Statistics {
    int64_t prompt_tokens = 0;  // of prompts, each once
    int64_t reused_tokens = 0;  // of those, found in pages of earlier sequences
  };
  const Statistics& statistics() const { return statistics_; }
  // Throws RunError unless every page of the cache is accounted for.
  void check_invariants() const;

 private:
  using Waiting = std::deque<std::shared_ptr<Prompt>>;
  // Samples that run, by client.
  std::map<uint64_t, int64_t> running_by_client() const;
  Waiting::iterator next_waiting(const std::map<uint64_t, int64_t>& running);
  bool admit_one();
  static void add_decoding(ScheduledPass& pass, Speculation& speculation);
  using PassOf = std::function<ScheduledPass&(const Prompt&)>;
  void plan_prefill(const PassOf& pass_of);
  int64_t add_chunk(ScheduledPass& pass, Prompt& prompt, int64_t most);
  void end(Sequence& sequence);
  void end(Prompt& prompt);

  PageCache& cache_;
  int64_t max_batch_, prefill_tokens_;
  Waiting waiting_;                               // prompts with samples that were not admitted
  std::vector<std::shared_ptr<Prompt>> filling_;  // admitted, not all of the prompt is in the cache
  std::vector<std::unique_ptr<Sequence>> running_;
  int64_t reserved_ = 0;         // pages that what was admitted may take
  int64_t reserved_states_ = 0;  // and states: of prompts and of samples
  Statistics statistics_;
};

}  // namespace temper::generate
