// Who completes prompts: the engine of this process (engine.h), or servers elsewhere
// (remote/remote_engine.h).
#pragma once

#include <chrono>
#include <thread>

#include "temper/generate/request.h"
#include "temper/generate/sampling/speculation.h"

namespace temper::generate {

class CompletionSource {
 public:
  virtual ~CompletionSource() = default;

  // A request with callbacks of its own is reported to them, any other to those of step(). Throws
  // ConfigError, DataError for what cannot be obeyed.
  virtual RequestId submit(Request request, Callbacks callbacks = {}) = 0;
  // Ends a request's samples: each that is not done yet is reported, `cancelled`, by a later
  // step(). An unknown or finished request is left alone.
  virtual void cancel(RequestId id) = 0;
  // Goes on for a moment and reports completions that ended. False: nothing is left to do. Throws
  // RunError.
  virtual bool step(const Callbacks& callbacks) = 0;
  // Waits until another thread has submitted or cancelled something, at most so long; false: none
  // has. A source whose submit() and cancel() belong to the thread that steps waits for that time.
  virtual bool wait(std::chrono::milliseconds timeout) const {
    std::this_thread::sleep_for(timeout);
    return false;
  }
  // After the last step of a batch: gives memory back. Throws RunError unless all is in order.
  virtual void rest() = 0;
  // What was drafted and accepted since it was made.
  virtual Speculation::Statistics speculation() const { return {}; }
};

}  // namespace temper::generate
