#include "temper/generate/scheduler.h"

#include <algorithm>
#include <map>
#include <set>

#include "temper/base/error.h"
#include "temper/nn/mixed_adapters.h"
#include "temper/ops/kv_store.h"

namespace temper::generate {
namespace {

constexpr int64_t kSpare = 8;  // this part of the pages and of max_batch is spare

// What a prompt's own pages are, and what a sample needs beside those of them that it shares.
int64_t pages_of_prompt(const Request& request, int64_t page_tokens) {
  return pages_for(static_cast<int64_t>(request.prompt.size()), page_tokens);
}
int64_t pages_of_sample(const Request& request, int64_t page_tokens) {
  const int64_t length = static_cast<int64_t>(request.prompt.size());
  return pages_for(length + request.options.max_new_tokens, page_tokens) - length / page_tokens;
}

}  // namespace

int64_t Scheduler::pages_needed(const Request& request, int64_t page_tokens) {
  return pages_of_prompt(request, page_tokens) + pages_of_sample(request, page_tokens);
}

void Scheduler::add(std::shared_ptr<Prompt> prompt) {
  prompt->unfinished = prompt->request.num_samples;
  if (prompt->unfinished > 0) waiting_.push_back(std::move(prompt));
}

std::map<uint64_t, int64_t> Scheduler::running_by_client() const {
  std::map<uint64_t, int64_t> running;
  for (const auto& sequence : running_) ++running[sequence->prompt->request.client];
  return running;
}

// The first prompt of the client with the fewest samples that run; of several, who came first.
Scheduler::Waiting::iterator Scheduler::next_waiting(const std::map<uint64_t, int64_t>& running) {
  auto best = waiting_.begin();
  int64_t fewest = INT64_MAX;
  for (auto it = waiting_.begin(); it != waiting_.end() && fewest > 0; ++it) {
    const auto found = running.find((*it)->request.client);
    const int64_t runs = found == running.end() ? 0 : found->second;
    if (runs >= fewest) continue;
    fewest = runs;
    best = it;
  }
  return best;
}

// Starts the next sample of the client whose turn it is, if there is room for it.
bool Scheduler::admit_one() {
  const std::map<uint64_t, int64_t> running = running_by_client();
  const auto place = next_waiting(running);
  const std::shared_ptr<Prompt> prompt = *place;
  const uint64_t client = prompt->request.client;
  const auto found = running.find(client);
  const int64_t runs = found == running.end() ? 0 : found->second;
  const int64_t clients = std::ssize(running) + (runs == 0 ? 1 : 0);
  const bool below_share = clients > 1 && runs < std::max<int64_t>(max_batch_ / clients, 1);
  const int64_t spare = below_share ? std::max<int64_t>(max_batch_ / kSpare, 1) : 0;
  if (std::ssize(running_) >= max_batch_ + spare) return false;
  const int64_t kept = client != 0 && runs > 0 ? cache_.max_pages() / kSpare : 0;
  const bool first = prompt->next_sample == 0;
  const int64_t needed = pages_of_sample(prompt->request, cache_.page_tokens()) +
                         (first ? pages_of_prompt(prompt->request, cache_.page_tokens()) : 0);
  const int64_t states = first ? 2 : 1;  // the prompt has one, too
  if (reserved_ + needed > cache_.max_pages() - kept ||
      states > cache_.max_states() - reserved_states_)
    return false;
  reserved_ += needed;
  reserved_states_ += states;
  if (first) {
    filling_.push_back(prompt);
    statistics_.prompt_tokens += prompt->length();
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->completion.index = prompt->request.index;
  sequence->completion.sample = prompt->request.first_sample + prompt->next_sample++;
  sequence->completion.request = prompt->id;
  sequence->prompt = prompt;
  running_.push_back(std::move(sequence));
  if (prompt->next_sample == prompt->request.num_samples) waiting_.erase(place);
  return true;
}

ScheduledBatch Scheduler::next_passes(Speculation& speculation,
                                      const std::function<bool()>& mixes) {
  while (!waiting_.empty() && admit_one()) {
  }
  const bool several = std::any_of(running_.begin(), running_.end(), [&](const auto& sequence) {
    return sequence->prompt->request.adapter != running_.front()->prompt->request.adapter;
  });
  const bool together = several && mixes();
  std::map<int, ScheduledPass> by_adapter;
  const PassOf pass_of = [&](const Prompt& prompt) -> ScheduledPass& {
    return by_adapter[together ? 0 : prompt.request.adapter];
  };
  for (const auto& sequence : running_)
    if (sequence->pages) pass_of(*sequence->prompt).decoding.push_back(sequence.get());
  for (auto& [adapter, pass] : by_adapter) add_decoding(pass, speculation);
  plan_prefill(pass_of);
  ScheduledBatch passes;
  for (auto& [adapter, pass] : by_adapter) passes.push_back(std::move(pass));
  return passes;
}

void Scheduler::add_decoding(ScheduledPass& pass, Speculation& speculation) {
  const auto adapter_of = [](const Sequence* s) { return s->prompt->request.adapter; };
  std::ranges::stable_sort(pass.decoding, {}, adapter_of);  // few ranges
  speculation.plan(pass.decoding);
  std::vector<int32_t> tokens;
  for (const Sequence* sequence : pass.decoding) {
    tokens.assign(1, sequence->completion.tokens.back());
    for (const DraftToken& t : sequence->draft) tokens.push_back(t.token);
    const int64_t count = static_cast<int64_t>(tokens.size()), position = sequence->length() - 1;
    sequence->pages->reserve(position + count);
    pass.forest->add_root(tokens, position, {}, sequence->prompt->rotation_shift());
    pass.rows.add(*sequence->pages, count);
    nn::append_adapter_rows(pass.adapters, adapter_of(sequence), count);
    pass.decoding_rows += count;
  }
}

// First come, first served; but prompts that fit into half of the room do not wait for a long one
// before them. (Longer ones do: they may begin as it does, and reuse its pages when it is done.)
void Scheduler::plan_prefill(const PassOf& pass_of) {
  const auto rest = [](const Prompt& prompt) { return prompt.length() - prompt.filled; };
  int64_t room = prefill_tokens_;
  if (filling_.empty()) return;
  if (rest(*filling_.front()) > room) {
    int64_t half = room / 2;
    for (size_t i = 1; i < filling_.size(); ++i) {
      if (rest(*filling_[i]) > half) continue;
      const int64_t chunk = add_chunk(pass_of(*filling_[i]), *filling_[i], half);
      half -= chunk;
      room -= chunk;
    }
  }
  for (const auto& prompt : filling_)
    if (room > 0 && rest(*prompt) > 0) room -= add_chunk(pass_of(*prompt), *prompt, room);
}

// The next tokens of the prompt, at most so many, or the open rows that come next. Gives how many.
int64_t Scheduler::add_chunk(ScheduledPass& pass, Prompt& prompt, int64_t most) {
  const std::span<const int32_t> tokens = prompt.request.prompt;
  if (prompt.filled == 0 && !prompt.logprobs) {
    prompt.filled = prompt.pages.reuse(tokens, prompt.request.rows);
    statistics_.reused_tokens += prompt.filled;
  }
  const int64_t chunk = whole_cut(prompt.request.rows,
                                  std::min(prompt.filled + most, prompt.length()), prompt.filled) -
                        prompt.filled;
  prompt.pages.reserve(prompt.filled + chunk);
  if (prompt.logprobs)
    pass.to_score.push_back({&prompt, pass.forest->num_tokens(), prompt.filled, chunk});
  pass.forest->add_root(
      tokens.subspan(static_cast<size_t>(prompt.filled), static_cast<size_t>(chunk)), prompt.filled,
      rows_within(prompt.request.rows, prompt.filled, chunk),
      temper::rotation_shift(prompt.request.rows, prompt.filled));
  pass.rows.add(prompt.pages, chunk);
  nn::append_adapter_rows(pass.adapters, prompt.request.adapter, chunk);
  prompt.filled += chunk;
  if (prompt.filled == prompt.length())
    pass.prefilled.emplace_back(&prompt, pass.forest->num_tokens() - 1);
  return chunk;
}

std::vector<Sequence*> Scheduler::begin_samples(const ScheduledBatch& passes) {
  for (const ScheduledPass& pass : passes)
    for (const auto& [prompt, row] : pass.prefilled)
      prompt->pages.publish(prompt->request.prompt, prompt->request.rows);
  std::erase_if(filling_, [](const auto& prompt) { return prompt->ready(); });
  std::vector<Sequence*> begun;
  for (const auto& sequence : running_) {
    if (sequence->pages || !sequence->prompt->ready()) continue;
    sequence->pages = std::make_unique<PageTable>(cache_);
    sequence->pages->fork(sequence->prompt->pages, sequence->prompt->length());
    begun.push_back(sequence.get());
  }
  return begun;
}

// Makes known what the sequence computed, and gives back its pages and its reservation. The last
// token was sampled, and never went through the model.
void Scheduler::end(Sequence& sequence) {
  Prompt& prompt = *sequence.prompt;
  if (sequence.pages && !sequence.failed && !sequence.completion.tokens.empty()) {
    std::vector<int32_t> tokens = prompt.request.prompt;
    tokens.insert(tokens.end(), sequence.completion.tokens.begin(),
                  sequence.completion.tokens.end() - 1);
    sequence.pages->publish(tokens, prompt.request.rows);
  }
  sequence.pages.reset();
  reserved_ -= pages_of_sample(prompt.request, cache_.page_tokens());
  --reserved_states_;
  if (--prompt.unfinished == 0) end(prompt);
}

void Scheduler::end(Prompt& prompt) {
  prompt.pages.clear();
  prompt.unfinished = 0;
  reserved_ -= pages_of_prompt(prompt.request, cache_.page_tokens());
  --reserved_states_;
}

std::vector<std::unique_ptr<Sequence>> Scheduler::take_finished() {
  std::vector<std::unique_ptr<Sequence>> finished;
  for (auto& sequence : running_) {
    if (!sequence->pages || !sequence->finished()) continue;
    end(*sequence);
    finished.push_back(std::move(sequence));
  }
  std::erase(running_, nullptr);
  return finished;
}

std::vector<std::unique_ptr<Sequence>> Scheduler::cancel(RequestId id) {
  const auto is_it = [id](const std::shared_ptr<Prompt>& prompt) { return prompt->id == id; };
  std::vector<std::unique_ptr<Sequence>> cancelled;
  for (auto& sequence : running_) {
    if (!is_it(sequence->prompt)) continue;
    end(*sequence);
    cancelled.push_back(std::move(sequence));
  }
  std::erase(running_, nullptr);
  std::erase_if(filling_, is_it);
  const auto waiting = std::find_if(waiting_.begin(), waiting_.end(), is_it);
  if (waiting != waiting_.end()) {
    const std::shared_ptr<Prompt> prompt = *waiting;
    waiting_.erase(waiting);
    if (prompt->next_sample > 0) end(*prompt);
    while (prompt->next_sample < prompt->request.num_samples) {
      auto never = std::make_unique<Sequence>();
      never->prompt = prompt;
      never->completion.index = prompt->request.index;
      never->completion.sample = prompt->request.first_sample + prompt->next_sample++;
      never->completion.request = id;
      cancelled.push_back(std::move(never));
    }
  }
  for (const auto& sequence : cancelled) sequence->completion.cancelled = true;
  return cancelled;
}

void Scheduler::check_invariants() const {
  std::vector<const PageTable*> live;
  std::set<const Prompt*> prompts;
  int64_t reserved = 0;
  for (const auto& prompt : waiting_) prompts.insert(prompt.get());
  for (const auto& sequence : running_) {
    prompts.insert(sequence->prompt.get());
    if (sequence->pages) live.push_back(sequence->pages.get());
    reserved += pages_of_sample(sequence->prompt->request, cache_.page_tokens());
  }
  for (const Prompt* prompt : prompts) {
    live.push_back(&prompt->pages);
    if (prompt->next_sample > 0) reserved += pages_of_prompt(prompt->request, cache_.page_tokens());
  }
  cache_.check_invariants(live);
  check(reserved_ == reserved, reserved_, " pages are reserved, ", reserved, " may be taken");
}

}  // namespace temper::generate
