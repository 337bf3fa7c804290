#include "temper/tinker/samples.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "temper/base/error.h"
#include "temper/models/vision/image_rows.h"

namespace temper::tinker {

namespace {

// Samples that a session's requests have at the engine, and the fewest of one request.
constexpr int64_t kSamplesAtOnce = 256, kFewestAtOnce = 8;

}  // namespace

std::shared_ptr<Sampling> Sampling::start(serve::SamplerLoop& loop, const SampleRequest& request,
                                          std::shared_ptr<AdapterPlace> place,
                                          WireTensor target_logprobs, const Beside& beside,
                                          uint64_t client, Done done, Failed failed) {
  auto sampling = std::make_shared<Sampling>();
  sampling->loop_ = &loop;
  sampling->request_ = request;
  sampling->request_.place.reset();  // that is the reservation's
  sampling->place_ = place;
  sampling->target_logprobs_ = std::move(target_logprobs);
  sampling->beside_ = beside;
  sampling->done_ = std::move(done);
  sampling->failed_ = std::move(failed);
  generate::Request& asked = sampling->asked_;
  asked.prompt = request.prompt;
  asked.rows = models::external_rows(request.images);
  asked.num_samples = request.num_samples;
  asked.options = request.options;
  asked.options.top_logprobs = request.top_of_samples;
  asked.adapter = place ? place->index() : 0;
  const double temperature = asked.options.sampling.temperature;
  const bool together = temperature == 1 || temperature == 0;
  generate::Request scored = asked;
  if (request.scores_prompt()) {
    // A prompt's log-probabilities are those of temperature 1, whatever samples have.
    generate::Request& scores = together ? asked : scored;
    scores.options.prompt_logprobs = true;
    scores.options.top_logprobs = std::max(request.top_of_prompt, request.top_of_samples);
  }
  sampling->reservation_ = request.place ? *request.place : loop.reserve();
  sampling->reservation_.client = client;
  ++*beside;
  sampling->counted_ = std::shared_ptr<void>(nullptr, [beside](void*) { --*beside; });
  sampling->submit_next();
  if (request.scores_prompt() && !together) {
    scored.num_samples = 1;
    scored.options.sampling = {};
    scored.options.max_new_tokens = 1;
    scored.options.stop.clear();
    serve::Reservation beside_it = loop.reserve();
    beside_it.client = client;
    sampling->submit(std::move(scored), std::move(beside_it), false);
  }
  // Where all has been sampled before the functions are set, the look below finds it.
  std::vector<std::shared_ptr<serve::Ticket>> tickets;
  for (Part& part : sampling->parts_) tickets.push_back(part.ticket);
  for (const auto& ticket : tickets) ticket->on_arrival([sampling] { sampling->look(); });
  sampling->look();
  return sampling;
}

void Sampling::submit(generate::Request request, serve::Reservation reservation, bool samples) {
  Part part;
  part.samples = samples;
  part.left = static_cast<size_t>(request.num_samples);
  part.pieces.resize(part.left);
  std::vector<generate::Request> one;
  one.push_back(std::move(request));
  part.ticket = loop_->submit(one, reservation, [] {});
  check<serve::ServerStopped>(part.ticket != nullptr, "the model's weights are being changed");
  parts_.push_back(std::move(part));
}

// The next ones of the samples.
void Sampling::submit_next() {
  const int64_t share = kSamplesAtOnce / std::max<int64_t>(beside_->load(), 1);
  generate::Request next = asked_;
  next.first_sample = next_sample_;
  next.num_samples = std::min(request_.num_samples - next_sample_, std::max(share, kFewestAtOnce));
  if (next_sample_ > 0) next.options.prompt_logprobs = false;
  next_sample_ += next.num_samples;
  submit(std::move(next), reservation_, true);
}

void Sampling::cancel() {
  const std::lock_guard lock(mutex_);
  over_ = true;
  parts_.clear();
  place_.reset();
  reservation_ = {};
  counted_.reset();
}

void Sampling::look() {
  std::vector<Part> ended;  // destroyed without the lock, as the next one
  std::shared_ptr<AdapterPlace> place;
  SampleResult found;
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    try {
      while (take()) {
        if (next_sample_ == request_.num_samples) break;
        submit_next();
        parts_.back().ticket->on_arrival([self = shared_from_this()] { self->look(); });
      }
      if (std::any_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.left > 0; }))
        return;
      found = result();
    } catch (const std::exception& e) {
      why = e.what();
      if (why.empty()) why = "sampling failed";
    }
    over_ = true;
    ended.swap(parts_);
    place.swap(place_);
    reservation_ = {};
    counted_.reset();
  }
  if (why.empty())
    done_(std::move(found));
  else
    failed_(why);
}

// Whether all that was submitted is there.
bool Sampling::take() {
  bool all = true;
  for (Part& part : parts_) {
    for (serve::Piece piece; part.left > 0 && part.ticket->take(piece); piece = {}) {
      part.left -= piece.finished;
      part.pieces.at(static_cast<size_t>(piece.choice)) = std::move(piece);
    }
    all = all && part.left == 0;
  }
  return all;
}

namespace {

TopTokens first_of(const std::vector<generate::TopLogprobs>& top, int64_t k) {
  TopTokens tokens{k, {}};
  for (const generate::TopLogprobs& at : top)
    tokens.at.emplace_back(at.begin(), at.begin() + std::min<ptrdiff_t>(k, std::ssize(at)));
  return tokens;
}

}  // namespace

SampleResult Sampling::result() const {
  SampleResult result;
  std::shared_ptr<const generate::PromptLogprobs> scores;
  for (const Part& part : parts_) {
    if (part.pieces.front().of_prompt) scores = part.pieces.front().of_prompt;
    for (const serve::Piece& piece : part.pieces) {
      if (!part.samples) continue;
      SampledTokens& sequence = result.sequences.emplace_back();
      sequence.stopped = piece.stopped;
      sequence.tokens = piece.tokens;
      sequence.logprobs = piece.logprobs;
      if (request_.top_of_samples > 0) sequence.top = first_of(piece.top, request_.top_of_samples);
    }
  }
  result.targets = target_logprobs_;
  if (!request_.scores_prompt() || !scores) return result;
  // The first token has nothing before it.
  const size_t length = request_.prompt.size(),
               first = request_.last_n > 0 ? length - static_cast<size_t>(request_.last_n) : 1;
  if (request_.prompt_logprobs) {
    result.prompt_logprobs.assign(length, std::numeric_limits<float>::quiet_NaN());
    for (size_t i = first; i < length; ++i) result.prompt_logprobs[i] = scores->logprobs.at(i - 1);
  }
  if (request_.top_of_prompt > 0) {
    std::vector<generate::TopLogprobs> top(length);
    for (size_t i = first; i < length; ++i) top[i] = scores->top.at(i - 1);
    result.prompt_top = first_of(top, request_.top_of_prompt);
  }
  return result;
}

}  // namespace temper::tinker
