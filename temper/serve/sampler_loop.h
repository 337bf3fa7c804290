// One engine for all clients: what they ask for is sampled together, each gets what is theirs.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "temper/base/error.h"
#include "temper/generate/engine.h"

namespace temper::serve {

// What one completion grew by.
struct Piece {
  int64_t choice = 0;  // its prompt's number times the samples of a prompt, plus its sample's
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<int32_t>> kept;                     // as generate::Completion::kept
  std::vector<generate::TopLogprobs> top;                     // where they are asked for
  std::shared_ptr<const generate::PromptLogprobs> of_prompt;  // the same
  std::string text;
  bool finished = false;  // nothing follows
  bool stopped = false;   // as generate::Completion::stopped
};

class SamplerLoop;

// A place among the requests that the server takes at once (SamplerLoop::reserve). Held from when a
// request is known until its samples are complete, it bounds what waits in memory.
struct Reservation {
  std::shared_ptr<void> sampling;  // until the samples are complete
  std::shared_ptr<void> open;      // until the client has its answer
  uint64_t client = 0;             // generate::Request::client

  // Holds it until the samples are complete, too.
  void add(std::shared_ptr<void> held) {
    sampling = std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(
        std::move(sampling), std::move(held));
  }
};

// Thrown where the server ends before what it was asked for is done.
struct ServerStopped : RunError {
  using RunError::RunError;
};

// The completions that a client waits for. Its end cancels what is not done.
class Ticket {
 public:
  ~Ticket();
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  // Takes the next piece; false: there is none yet. Throws RunError when none will come, which is
  // ServerStopped where the server ends.
  bool take(Piece& piece);
  // Sets a function that the sampling thread calls, without locks, whenever take() may have
  // something new: it must not wait.
  void on_arrival(std::function<void()> arrived);
  // Names the weights that sample for it.
  const std::string& weights() const { return weights_; }

 private:
  friend class SamplerLoop;
  struct Queue;
  Ticket(SamplerLoop& loop, std::shared_ptr<Queue> queue, std::shared_ptr<void> open);
  SamplerLoop& loop_;
  generate::CompletionSource* source_ = nullptr;  // whom the requests were submitted to
  std::shared_ptr<Queue> queue_;
  std::vector<generate::RequestId> ids_;
  std::string weights_;
  std::shared_ptr<void> open_;
};

// Thrown where as many requests as the server takes, or takes of one address, are there already, or
// where what they hold is as much.
struct TooManyRequests {
  int64_t limit;
  bool of_address = false;
  bool of_bytes = false;  // the limit is of SamplerLoop::hold(), not a number of requests
};

class SamplerLoop {
 public:
  // most_requests: most requests at once that wait or are being sampled. A request whose samples
  // are complete, and whose client has yet to read them, does not count. most_of_address: most of
  // these from one address; 0: three quarters, so that none keeps the others out. most_bytes: that
  // these hold, of which one client has at most three quarters.
  SamplerLoop(models::CausalLM& model, const generate::EngineOptions& options,
              std::shared_ptr<const Tokenizer> tokenizer, int64_t most_requests,
              int64_t most_of_address = 0, int64_t most_bytes = INT64_MAX);
  // For a caller that samples itself, between begin() and end(). has_text: what samples has a
  // tokenizer.
  SamplerLoop(bool has_text, int64_t most_requests);

  // Throws what submit would throw of the options' grammar, and makes submit fast.
  void prepare(const generate::GenerationOptions& options) {
    if (own_engine_) own_engine_->prepare(options);
  }
  // A place for the requests of one client, at this address; empty: one that has no limit of its
  // own. From any thread. Throws TooManyRequests, and ServerStopped after refuse_new.
  Reservation reserve(const std::string& address = {});
  // Counts bytes that a client's requests hold in memory beside their tokens (images), for as long
  // as the result lives. From any thread. Throws TooManyRequests.
  std::shared_ptr<void> hold(int64_t bytes, const std::string& client);
  // Submits requests, which have the same number of samples. From any thread, and never waits. With
  // GenerationOptions::stream a completion comes in many pieces, else in one. Null while the
  // weights are being changed: nothing is taken then, and `later` is called once, on the thread
  // that samples, when it is time for another try; it must not wait. Throws as Engine::submit, and
  // ServerStopped after the end.
  std::shared_ptr<Ticket> submit(std::vector<generate::Request>& requests, Reservation& reservation,
                                 std::function<void()> later);

  // Changes the model: `change` runs on the thread that samples, when all that was submitted before
  // is done. `name`: of the weights afterwards. From any thread. Throws what `change` throws, and
  // ServerStopped.
  void change_weights(const std::function<void()>& change, const std::string& name);

  // From now on reserve and change_weights throw ServerStopped; requests that have a place are
  // completed. From any thread.
  void refuse_new() { refuses_ = true; }
  bool refuses() const { return refuses_ || ended_; }
  // Tells all clients that wait for completions that the server has stopped. From any thread.
  void give_up();

  // Samples until `stop`, which is asked after every step and every 50 ms. The model is used by
  // this thread alone. Throws RunError of the model; waiting clients hear of it. `work`: other use
  // of the model, called between steps as long as it gives true (something was done); where there
  // is enough to do, sampling and work get about half of the time each.
  void run(const std::function<bool()>& stop, const std::function<bool()>& work = {});
  // In place of run(), for a caller that samples itself: between begin() and end() it samples by
  // step() and wait(), as CompletionSource has them. Outside of them submit throws ServerStopped.
  // source: who samples, with weights of this name; any thread may submit to it, and it outlives
  // this object. end() cancels what is being sampled and steps until nothing is left.
  void begin(generate::CompletionSource& source, const std::string& weights);
  bool step();
  bool wait(std::chrono::milliseconds timeout) { return source_->wait(timeout); }
  void end();
  // There is something for `work` to do. From any thread.
  void wake() {
    if (own_engine_) own_engine_->cancel(0);  // no request has this number
  }

  struct Counts {
    int64_t requests = 0, refused = 0;  // since the start
    int64_t open = 0;
    int64_t prompt_tokens = 0, reused_tokens = 0, new_tokens = 0;
    int64_t drafted_tokens = 0, accepted_tokens = 0;
  };
  Counts counts() const;

 private:
  friend class Ticket;
  struct Change {
    const std::function<void()>* run = nullptr;
    std::string name;
    std::exception_ptr failure;
    bool done = false;
  };
  void update_counts();
  bool make_change();
  void call_later();
  void wake_all();

  std::unique_ptr<generate::Engine> own_engine_;  // null: the caller samples
  generate::CompletionSource* source_;            // who samples; null: nobody yet. Set with gate_
  bool has_text_;
  const int64_t most_requests_, most_of_address_, most_bytes_;
  // Requests that wait or are being sampled, by address, and the bytes that they hold, by client.
  struct Addresses {
    std::mutex mutex;
    std::map<std::string, int64_t> requests, bytes;
    int64_t all_bytes = 0;
  };
  const std::shared_ptr<Addresses> addresses_ = std::make_shared<Addresses>();
  std::atomic<bool> refuses_{false}, gives_up_{false}, ended_{false}, paused_{false};
  std::atomic<int64_t> open_{0}, sampling_{0}, requests_{0}, refused_{0};
  std::atomic<int64_t> prompt_tokens_{0}, reused_tokens_{0}, new_tokens_{0}, drafted_tokens_{0},
      accepted_tokens_{0};
  std::mutex waiting_mutex_;
  std::set<std::shared_ptr<Ticket::Queue>> waiting_;
  std::mutex gate_;                          // between submitting and changing
  std::set<generate::RequestId> submitted_;  // since begin(), to the caller's source
  std::condition_variable changed_;
  Change* change_ = nullptr;
  std::vector<std::function<void()>> later_;  // what waits for the change
  std::string weights_ = "initial";
};

}  // namespace temper::serve
