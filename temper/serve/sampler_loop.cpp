#include "temper/serve/sampler_loop.h"

#include <algorithm>
#include <deque>
#include <type_traits>
#include <utility>

#include "temper/base/clock.h"
#include "temper/base/error.h"

namespace temper::serve {
namespace {

constexpr const char* kNotChanged = "the server has stopped before its weights were changed";

// Counts as one for as long as it lives.
std::shared_ptr<void> counted(std::atomic<int64_t>& count) {
  ++count;
  return {&count, [](std::atomic<int64_t>* c) { --*c; }};
}

}  // namespace

// Filled by the engine's callbacks, emptied by whoever answers the client.
struct Ticket::Queue {
  struct Sent {
    size_t tokens = 0, text = 0;
  };

  void put(int64_t choice, const generate::Completion& c, bool finished) {
    {
      const std::lock_guard lock(mutex);
      Sent& done = sent[static_cast<size_t>(choice)];
      // Tokens are held until the text that they begin is complete.
      if (!finished && has_text && c.text.size() <= done.text) return;
      cancelled = cancelled || c.cancelled;
      const auto rest = [&](const auto& list) {
        const auto first = std::min(done.tokens, list.size());
        return std::decay_t<decltype(list)>(list.begin() + static_cast<ptrdiff_t>(first),
                                            list.end());
      };
      pieces.push_back({choice, rest(c.tokens), rest(c.logprobs), rest(c.kept),
                        rest(c.top_logprobs), c.of_prompt,
                        c.text.size() > done.text ? c.text.substr(done.text) : std::string(),
                        finished, c.stopped});
      done = {c.tokens.size(), std::max(done.text, c.text.size())};
      unfinished -= finished;
      if (unfinished == 0) leave();
    }
    wake();
  }

  void fail(const std::string& why) {
    {
      const std::lock_guard lock(mutex);
      if (failure.empty()) failure = why;
      leave();
    }
    wake();
  }

  // Stops counting as a request that is sampled. Called with the mutex held.
  void leave() { sampling.reset(); }

  void wake() {
    std::function<void()> told;
    {
      const std::lock_guard lock(mutex);
      told = arrived;
    }
    if (told) told();
  }

  std::mutex mutex;
  std::function<void()> arrived;
  std::deque<Piece> pieces;
  std::string failure;     // why there will be no others
  std::vector<Sent> sent;  // by choice
  int64_t num_samples = 1, unfinished = 0;
  std::shared_ptr<void> sampling;  // Reservation::sampling
  bool has_text = false, cancelled = false;
};

Ticket::Ticket(SamplerLoop& loop, std::shared_ptr<Queue> queue, std::shared_ptr<void> open)
    : loop_(loop), queue_(std::move(queue)), open_(std::move(open)) {
  const std::lock_guard lock(loop_.waiting_mutex_);
  loop_.waiting_.insert(queue_);
}

Ticket::~Ticket() {
  {
    const std::lock_guard lock(loop_.waiting_mutex_);
    loop_.waiting_.erase(queue_);
  }
  for (const generate::RequestId id : ids_) source_->cancel(id);  // of finished ones: nothing
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->leave();
  }
}

bool Ticket::take(Piece& piece) {
  const std::lock_guard lock(queue_->mutex);
  check(queue_->failure.empty(), queue_->failure);
  check<ServerStopped>(
      !queue_->cancelled && !loop_.gives_up_ && !(queue_->pieces.empty() && loop_.ended_),
      "the server has stopped before the completion was done; retry later");
  if (queue_->pieces.empty()) return false;
  piece = std::move(queue_->pieces.front());
  queue_->pieces.pop_front();
  return true;
}

void Ticket::on_arrival(std::function<void()> arrived) {
  const std::lock_guard lock(queue_->mutex);
  queue_->arrived = std::move(arrived);
}

SamplerLoop::SamplerLoop(models::CausalLM& model, const generate::EngineOptions& options,
                         std::shared_ptr<const Tokenizer> tokenizer, int64_t most_requests,
                         int64_t most_of_address, int64_t most_bytes)
    : own_engine_(std::make_unique<generate::Engine>(model, options, tokenizer)),
      source_(own_engine_.get()),
      has_text_(tokenizer != nullptr),
      most_requests_(most_requests),
      most_of_address_(most_of_address > 0 ? most_of_address : most_requests - most_requests / 4),
      most_bytes_(most_bytes) {}

SamplerLoop::SamplerLoop(bool has_text, int64_t most_requests)
    : source_(nullptr),
      has_text_(has_text),
      most_requests_(most_requests),
      most_of_address_(most_requests),
      most_bytes_(INT64_MAX),
      paused_(true) {}

Reservation SamplerLoop::reserve(const std::string& address) {
  check<ServerStopped>(!refuses(), "the server is stopping; retry later");
  Reservation reservation{counted(sampling_), counted(open_)};
  if (sampling_ > most_requests_) {
    ++refused_;
    throw TooManyRequests{most_requests_};
  }
  if (address.empty()) return reservation;
  reservation.client = std::hash<std::string>{}(address) | 1;  // 0 is this program
  {
    const std::lock_guard lock(addresses_->mutex);
    ++addresses_->requests[address];
  }
  // Gives back both places.
  reservation.sampling = {
      nullptr, [all = addresses_, address, place = std::move(reservation.sampling)](void*) {
        const std::lock_guard lock(all->mutex);
        if (--all->requests[address] == 0) all->requests.erase(address);
      }};
  const std::lock_guard lock(addresses_->mutex);
  if (addresses_->requests[address] <= most_of_address_) return reservation;
  ++refused_;
  throw TooManyRequests{most_of_address_, true};
}

std::shared_ptr<void> SamplerLoop::hold(int64_t bytes, const std::string& client) {
  if (bytes == 0) return nullptr;
  const int64_t most = most_bytes_ - most_bytes_ / 4;  // of one client
  const std::lock_guard lock(addresses_->mutex);
  const auto held = addresses_->bytes.find(client);
  const int64_t own = held == addresses_->bytes.end() ? 0 : held->second;
  const bool of_client = bytes > most - own;
  if (of_client || bytes > most_bytes_ - addresses_->all_bytes) {
    ++refused_;
    throw TooManyRequests{of_client ? most : most_bytes_, of_client, true};
  }
  addresses_->bytes[client] = own + bytes;
  addresses_->all_bytes += bytes;
  return {nullptr, [all = addresses_, client, bytes](void*) {
            const std::lock_guard guard(all->mutex);
            all->all_bytes -= bytes;
            if ((all->bytes[client] -= bytes) == 0) all->bytes.erase(client);
          }};
}

std::shared_ptr<Ticket> SamplerLoop::submit(std::vector<generate::Request>& requests,
                                            Reservation& reservation, std::function<void()> later) {
  const std::lock_guard lock(gate_);
  check<ServerStopped>(!ended_ && !paused_, "the server has stopped; retry later");
  if (change_) {
    later_.push_back(std::move(later));
    return nullptr;
  }
  auto queue = std::make_shared<Ticket::Queue>();
  queue->has_text = has_text_;
  queue->num_samples = requests.at(0).num_samples;
  queue->sent.resize(requests.size() * static_cast<size_t>(queue->num_samples));
  queue->unfinished = static_cast<int64_t>(queue->sent.size());
  queue->sampling = std::move(reservation.sampling);
  std::shared_ptr<Ticket> ticket(new Ticket(*this, queue, std::move(reservation.open)));
  ticket->source_ = source_;
  ticket->weights_ = weights_;
  int64_t first_choice = 0;
  for (generate::Request& request : requests) {
    generate::Callbacks callbacks;
    const int64_t offset = first_choice - request.first_sample;
    first_choice += queue->num_samples;
    const auto put = [queue, offset](const generate::Completion& c, bool finished) {
      queue->put(offset + c.sample, c, finished);
    };
    callbacks.done = [put](const generate::Completion& c) { put(c, true); };
    callbacks.failed = [queue](const generate::Completion&, const std::string& why) {
      queue->fail(why);
    };
    request.client = reservation.client;
    if (request.options.stream)
      callbacks.on_token = [put](const generate::Completion& c) { put(c, false); };
    ticket->ids_.push_back(source_->submit(std::move(request), std::move(callbacks)));
    if (!own_engine_) submitted_.insert(ticket->ids_.back());
  }
  ++requests_;
  return ticket;
}

void SamplerLoop::change_weights(const std::function<void()>& change, const std::string& name) {
  check<ServerStopped>(!refuses(), kNotChanged);
  Change asked{&change, name, nullptr, false};
  std::unique_lock lock(gate_);
  changed_.wait(lock, [this] { return change_ == nullptr || ended_; });
  if (!ended_) {
    change_ = &asked;
    wake();
    changed_.wait(lock, [&] { return asked.done; });
  }
  check<ServerStopped>(asked.done, kNotChanged);
  if (asked.failure) std::rethrow_exception(asked.failure);
}

// Nothing is being sampled, and nothing is submitted before this is over. False: nobody asks for a
// change, or something was submitted before it.
bool SamplerLoop::make_change() {
  std::unique_lock lock(gate_);
  if (!change_ || source_->wait(std::chrono::milliseconds(0))) return false;
  // Nothing is submitted while change_ is set: the lock is free for those who ask.
  lock.unlock();
  std::exception_ptr failure;
  try {
    (*change_->run)();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  if (!failure) weights_ = change_->name;
  change_->failure = failure;
  change_->done = true;
  change_ = nullptr;
  changed_.notify_all();
  lock.unlock();
  call_later();
  return true;
}

void SamplerLoop::call_later() {
  std::vector<std::function<void()>> all;
  {
    const std::lock_guard lock(gate_);
    all.swap(later_);
  }
  for (const auto& one : all) one();
}

void SamplerLoop::give_up() {
  gives_up_ = true;
  wake_all();
}

void SamplerLoop::wake_all() {
  std::vector<std::shared_ptr<Ticket::Queue>> all;
  {
    const std::lock_guard lock(waiting_mutex_);
    all.assign(waiting_.begin(), waiting_.end());
  }
  for (const auto& queue : all) queue->wake();
}

void SamplerLoop::run(const std::function<bool()>& stop, const std::function<bool()>& work) {
  struct End {
    SamplerLoop& loop;
    ~End() {
      {
        const std::lock_guard lock(loop.gate_);
        loop.ended_ = true;
        if (loop.change_) {
          loop.change_->failure = std::make_exception_ptr(ServerStopped(kNotChanged));
          loop.change_->done = true;
          loop.change_ = nullptr;
        }
        loop.changed_.notify_all();
      }
      loop.call_later();
      loop.wake_all();
    }
  } const end{*this};
  double owed = 0;  // seconds that sampling may take before it is work's turn
  while (!stop()) {
    double begin = steady_seconds();
    const bool worked = work && owed <= 0 && work();
    if (worked) owed = steady_seconds() - begin;
    begin = steady_seconds();
    const bool more = step();
    owed = more ? owed - (steady_seconds() - begin) : 0;
    if (!more && !worked && !make_change()) wait(std::chrono::milliseconds(50));
  }
}

void SamplerLoop::begin(generate::CompletionSource& source, const std::string& weights) {
  const std::lock_guard lock(gate_);
  source_ = &source;
  weights_ = weights;
  submitted_.clear();
  paused_ = false;
}

bool SamplerLoop::step() {
  const bool more = source_->step({});
  update_counts();
  return more;
}

void SamplerLoop::end() {
  std::set<generate::RequestId> submitted;
  {
    const std::lock_guard lock(gate_);
    paused_ = true;
    submitted.swap(submitted_);
  }
  for (const generate::RequestId id : submitted) source_->cancel(id);
  while (step()) {
  }
}

void SamplerLoop::update_counts() {
  const auto* const engine = dynamic_cast<const generate::Engine*>(source_);
  if (!engine) return;
  const generate::Engine::Statistics s = engine->statistics();
  prompt_tokens_ = s.prompt_tokens;
  reused_tokens_ = s.reused_tokens;
  new_tokens_ = s.new_tokens;
  drafted_tokens_ = s.drafted_tokens;
  accepted_tokens_ = s.accepted_tokens;
}

SamplerLoop::Counts SamplerLoop::counts() const {
  return {requests_,      refused_,    open_,           prompt_tokens_,
          reused_tokens_, new_tokens_, drafted_tokens_, accepted_tokens_};
}

}  // namespace temper::serve
