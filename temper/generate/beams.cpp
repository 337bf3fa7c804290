#include "temper/generate/beams.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "temper/base/error.h"
#include "temper/generate/request_check.h"
#include "temper/generate/sampling/logit_rules.h"
#include "temper/grammar/grammar.h"
#include "temper/ops/kv_store.h"
#include "temper/ops/layers/embedding.h"

namespace temper::generate {
namespace {

constexpr int64_t kMostBeams = 1024;
constexpr double kLargestLengthPenalty = 10;

// What a beam that goes on holds beside its tokens.
struct BeamState {
  std::unique_ptr<PageTable> pages;
  std::unique_ptr<grammar::Matcher> matcher;  // null: no grammar
};

// One prompt's search.
struct Search {
  using Ends = std::function<bool(const Search&, const Beam&)>;
  Search(Request r, PageCache& cache, const BeamOptions& options, int64_t end_tokens, Ends ends)
      : request(std::move(r)),
        prompt_pages(cache, request.adapter),
        beams(options, request.options.max_new_tokens, end_tokens,
              [this, ends](const Beam& beam) { return ends(*this, beam); }) {}
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  Request request;
  PageTable prompt_pages;
  BeamSearch beams;
  std::vector<BeamState> places;  // of the beams
  at::Tensor hidden;              // [beams, H]: of each one's last token

  int64_t prompt_length() const { return static_cast<int64_t>(request.prompt.size()); }
};

// Most pages of a search: the prompt's, and each beam's beside those that it shares; twice while
// beams change places.
int64_t pages_needed(const Request& request, int64_t beams, int64_t page_tokens) {
  const int64_t length = static_cast<int64_t>(request.prompt.size());
  const int64_t own =
      pages_for(length + request.options.max_new_tokens, page_tokens) - length / page_tokens;
  return pages_for(length, page_tokens) + beams * (own + 1);
}

// As many states: the prompt's, and each beam's, twice while beams change places.
int64_t states_needed(int64_t beams) { return 1 + 2 * beams; }

class Searches {
 public:
  Searches(models::CausalLM& model, const GenerationOptions& options, const BeamOptions& beams,
           const EngineOptions& engine, std::shared_ptr<const Tokenizer> tokenizer)
      : model_(model),
        options_(options),
        beams_(beams),
        tokenizer_(std::move(tokenizer)),
        prefill_tokens_(engine.prefill_tokens),
        bytes_(cache_bytes(engine)),
        cache_(model, bytes_),
        ends_(ends_of(options, model)),
        never_(never_sampled(model, tokenizer_.get())) {
    if (options.grammar)
      grammar_ = grammar::Compiler(tokenizer_, model.vocab_size).compile(*options.grammar);
  }

  int64_t max_pages() const { return cache_.max_pages(); }
  int64_t max_states() const { return cache_.max_states(); }
  int64_t page_tokens() const { return cache_.page_tokens(); }
  void check_fit(const Request& request) const {
    check_request(request, model_, tokenizer_.get(), {cache_, bytes_});
    check_fits(pages_needed(request, beams_.beams, page_tokens()), request, {cache_, bytes_});
    check<ConfigError>(states_needed(beams_.beams) <= cache_.max_states(), "beam search with ",
                       beams_.beams, " beams needs ", states_needed(beams_.beams),
                       " states of the model's layers, ", cache_.state_bytes(), " bytes each, and ",
                       cache_.max_states(), " fit ", bytes_, " bytes of cache (--cache-bytes)");
  }

  // The completions of requests of one adapter, of each the best first.
  std::vector<std::vector<Completion>> run(std::vector<Request> requests,
                                           const std::function<void(const Completion&)>& on_token) {
    std::vector<std::unique_ptr<Search>> all;
    for (Request& r : requests) all.push_back(begin(std::move(r)));
    prefill(all);
    for (;;) {
      for (auto& search : all)
        if (!search->beams.done()) {
          advance(*search);
          if (on_token) on_token(Completion{.index = search->request.index, .added = 1});
        }
      if (!forward(all)) break;
    }
    std::vector<std::vector<Completion>> out;
    for (const auto& search : all) out.push_back(completions(*search));
    return out;
  }

 private:
  std::unique_ptr<Search> begin(Request request) {
    auto search = std::make_unique<Search>(
        std::move(request), cache_, beams_, static_cast<int64_t>(ends_.size()),
        [this](const Search& of, const Beam& beam) { return ends(of, beam); });
    BeamState place;
    if (grammar_) place.matcher = std::make_unique<grammar::Matcher>(grammar_, ends_);
    search->places.push_back(std::move(place));
    return search;
  }

  bool ends(const Search& search, const Beam& beam) const {
    const bool is_end = std::find(ends_.begin(), ends_.end(), beam.tokens.back()) != ends_.end();
    if (!grammar_ && is_end) return true;
    if (grammar_ && (is_end || ends_.empty())) {
      const auto matcher = search.places[beam.parent].matcher->fork();
      matcher->accept(beam.tokens.back());
      if (matcher->ended()) return true;
    }
    if (options_.stop.empty() || static_cast<int64_t>(beam.tokens.size()) < options_.min_new_tokens)
      return false;
    return text_of(*tokenizer_, beam.tokens, options_.stop, options_.min_new_tokens) !=
           tokenizer_->decode(beam.tokens, true);
  }

  // Prompts one after another, each in chunks.
  void prefill(std::vector<std::unique_ptr<Search>>& all) {
    for (auto& search : all) {
      const std::span<const int32_t> tokens = search->request.prompt;
      const std::vector<ExternalRows>& external = search->request.rows;
      int64_t filled = search->prompt_pages.reuse(tokens, external);
      while (filled < search->prompt_length()) {
        const int64_t end = std::min(filled + prefill_tokens_, search->prompt_length()),
                      chunk = whole_cut(external, end, filled) - filled;
        auto forest = std::make_shared<Forest>();
        BatchRows rows;
        search->prompt_pages.reserve(filled + chunk);
        forest->add_root(tokens.subspan(static_cast<size_t>(filled), static_cast<size_t>(chunk)),
                         filled, rows_within(external, filled, chunk),
                         rotation_shift(external, filled));
        rows.add(search->prompt_pages, chunk);
        const auto cached = rows.pass(*forest);
        const at::Tensor out = model_.forward(
            {.forest = forest, .adapter = search->request.adapter, .cache = cached.get()});
        search->hidden = ops::select_rows(out, {chunk - 1});
        filled += chunk;
      }
      search->prompt_pages.publish(tokens, external);
      BeamState& place = search->places.front();
      place.pages = std::make_unique<PageTable>(cache_);
      place.pages->fork(search->prompt_pages, search->prompt_length());
    }
  }

  // Chooses the beams that go on from the hidden states of those that ran.
  void advance(Search& search) {
    const SamplingOptions& sampling = options_.sampling;
    const ops::Logits next =
        model_.logits(search.hidden, sampling.temperature == 0 ? 1 : sampling.temperature,
                      search.request.adapter);
    const int64_t vocabulary = next.logits.size(1);
    const size_t count = search.places.size();
    std::vector<std::vector<float>> logp(count), scores(count);
    std::vector<const float*> logp_rows, score_rows;
    for (size_t b = 0; b < count; ++b) {
      const float* x = next.logits.const_data_ptr<float>() + static_cast<int64_t>(b) * vocabulary;
      const float log_sum = next.log_sum_exp.const_data_ptr<float>()[b];
      check(std::isfinite(log_sum), "row ", search.request.index, ": ", kNotFinite);
      logp[b].resize(static_cast<size_t>(vocabulary));
      std::transform(x, x + vocabulary, logp[b].begin(), [&](float y) { return y - log_sum; });
      scores[b] = ruled(search, b, logp[b]);
      logp_rows.push_back(logp[b].data());
      score_rows.push_back(scores[b].data());
    }
    search.beams.advance(score_rows, logp_rows, vocabulary);
    if (search.beams.done())
      search.places.clear();
    else
      move_places(search);
  }

  // Log-probabilities after the rules of the request.
  std::vector<float> ruled(const Search& search, size_t b, std::vector<float> logp) const {
    for (const int32_t id : never_)
      logp[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
    const std::vector<int32_t>& tokens = search.beams.running()[b].tokens;
    const grammar::Matcher* matcher = search.places[b].matcher.get();
    SampleContext context{.prompt = search.request.prompt, .completion = tokens};
    if (matcher) context.mask = matcher->mask();
    if (static_cast<int64_t>(tokens.size()) < options_.min_new_tokens) context.banned = ends_;
    if (!options_.sampling.changes_logits() && context.banned.empty() && !matcher) return logp;
    SamplingOptions rules = options_.sampling;
    rules.temperature = 1;  // the log-probabilities have it already
    return apply_rules(rules, {logp.data(), static_cast<int64_t>(logp.size()), nullptr, nullptr},
                       context);
  }

  // The beams' pages: the last one that goes on from a beam takes its pages, the others fork them.
  void move_places(Search& search) {
    const std::vector<Beam>& running = search.beams.running();
    std::vector<int64_t> children(search.places.size());
    for (const Beam& beam : running) ++children[beam.parent];
    std::vector<BeamState> moved;
    for (const Beam& beam : running) {
      BeamState& from = search.places[beam.parent];
      BeamState place;
      if (--children[beam.parent] == 0) {
        place = std::move(from);
      } else {
        place.pages = std::make_unique<PageTable>(cache_);
        place.pages->fork(*from.pages,
                          search.prompt_length() + static_cast<int64_t>(beam.tokens.size()) - 1);
        if (from.matcher) place.matcher = from.matcher->fork();
      }
      if (place.matcher) place.matcher->accept(beam.tokens.back());
      moved.push_back(std::move(place));
    }
    search.places = std::move(moved);
  }

  // One pass of all beams that go on; false: there are none.
  bool forward(std::vector<std::unique_ptr<Search>>& all) {
    auto forest = std::make_shared<Forest>();
    BatchRows rows;
    int adapter = 0;
    for (auto& search : all)
      for (size_t b = 0; b < search->places.size(); ++b) {
        const Beam& beam = search->beams.running()[b];
        const int64_t position =
            search->prompt_length() + static_cast<int64_t>(beam.tokens.size()) - 1;
        search->places[b].pages->reserve(position + 1);
        forest->add_root({&beam.tokens.back(), 1}, position, {},
                         rotation_shift(search->request.rows, search->prompt_length()));
        rows.add(*search->places[b].pages, 1);
        adapter = search->request.adapter;
      }
    if (forest->num_tokens() == 0) return false;
    const auto cached = rows.pass(*forest);
    const at::Tensor out =
        model_.forward({.forest = forest, .adapter = adapter, .cache = cached.get()});
    int64_t first = 0;
    for (auto& search : all) {
      if (search->places.empty()) continue;
      std::vector<int64_t> mine(search->places.size());
      std::iota(mine.begin(), mine.end(), first);
      search->hidden = ops::select_rows(out, mine);
      first += static_cast<int64_t>(mine.size());
    }
    return true;
  }

  std::vector<Completion> completions(const Search& search) const {
    std::vector<Completion> out;
    for (const Beam& beam : search.beams.finished()) {
      if (static_cast<int64_t>(out.size()) == search.request.num_samples) break;
      Completion c{.index = search.request.index, .sample = static_cast<int64_t>(out.size())};
      c.tokens = beam.tokens;
      c.logprobs = beam.logprobs;
      c.stopped = beam.stopped;
      c.score = beam.score;
      if (tokenizer_)
        c.text = text_of(*tokenizer_, c.tokens, options_.stop, options_.min_new_tokens);
      out.push_back(std::move(c));
    }
    return out;
  }

  models::CausalLM& model_;
  const GenerationOptions& options_;
  const BeamOptions beams_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  const int64_t prefill_tokens_, bytes_;
  PageCache cache_;
  const std::vector<int32_t> ends_, never_;
  std::shared_ptr<const grammar::Grammar> grammar_;
};

}  // namespace

void beam_search(models::CausalLM& model, const std::vector<std::vector<int32_t>>& prompts,
                 int64_t num_samples, const GenerationOptions& options, const BeamOptions& beams,
                 const std::function<void(Completion)>& done,
                 std::shared_ptr<const Tokenizer> tokenizer,
                 const std::function<void(const Completion&)>& on_token,
                 const EngineOptions& engine_options, const std::vector<int>& adapters,
                 const std::vector<std::vector<ExternalRows>>& rows) {
  const at::NoGradGuard no_grad;
  check<ConfigError>(beams.beams <= kMostBeams, "beam search: found ", beams.beams,
                     " beams, expected at most ", kMostBeams);
  check<ConfigError>(std::abs(beams.length_penalty) <= kLargestLengthPenalty,
                     "beam search: found the length penalty ", beams.length_penalty, ", expected -",
                     kLargestLengthPenalty, " to ", kLargestLengthPenalty);
  check<ConfigError>(num_samples <= beams.beams, "beam search: found ", num_samples,
                     " completions per prompt, expected at most the number of beams, ",
                     beams.beams);
  check<ConfigError>(!options.sampling.filters(),
                     "beam search does not sample: top_k, top_p and min_p do not apply");
  const double temperature = options.sampling.temperature;
  check<ConfigError>(temperature == 0 || temperature == 1,
                     "beam search does not sample: temperature does not apply, found ",
                     temperature);
  Searches searches(model, options, beams, engine_options, std::move(tokenizer));
  const auto request = [&](size_t i) {
    Request asked{static_cast<int64_t>(i), prompts[i], num_samples, options,
                  adapters.empty() ? 0 : adapters.at(i)};
    if (!rows.empty()) asked.rows = rows.at(i);
    return asked;
  };
  for (size_t i = 0; i < prompts.size(); ++i) searches.check_fit(request(i));
  for (size_t i = 0; i < prompts.size();) {
    std::vector<Request> together;
    int64_t pages = 0;
    while (i < prompts.size()) {
      Request next = request(i);
      const int64_t needed = pages_needed(next, beams.beams, searches.page_tokens());
      const bool fits =
          together.empty() ||
          (static_cast<int64_t>(together.size() + 1) * beams.beams <= engine_options.max_batch &&
           pages + needed <= searches.max_pages() &&
           states_needed(beams.beams) * static_cast<int64_t>(together.size() + 1) <=
               searches.max_states() &&
           next.adapter == together[0].adapter);
      if (!fits) break;
      pages += needed;
      together.push_back(std::move(next));
      ++i;
    }
    for (auto& of_prompt : searches.run(std::move(together), on_token))
      for (Completion& c : of_prompt) done(std::move(c));
  }
}

}  // namespace temper::generate
