// Completions from ranks with the role `rollout`, in the engine's place.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "temper/generate/remote/remote_engine.h"

namespace temper::workers {

// The protocol by which ranks are asked for completions (wire.h). For the same request they are,
// bit for bit, those of an engine of this process with the same weights. RemoteWeights::version is
// the number of updates.
std::unique_ptr<generate::remote::Protocol> rank_protocol();

// Requests of a lost rank go to the ranks that are left; when none is left, to a source of this
// process.
class RankEngine : public generate::CompletionSource {
 public:
  // local: makes the source of this process, once, on the thread that calls step(); empty: step()
  // throws NoServer.
  RankEngine(std::shared_ptr<generate::remote::ServerPool> pool,
             std::shared_ptr<const Tokenizer> tokenizer, size_t connections,
             std::function<generate::CompletionSource*()> local);

  generate::RequestId submit(generate::Request request,
                             generate::Callbacks callbacks = {}) override;
  void cancel(generate::RequestId id) override;
  bool step(const generate::Callbacks& callbacks) override;
  void rest() override;

  // Ends what is going on, as RemoteEngine::stop().
  void stop() { remote_.stop(); }
  void set_version(int64_t version) {
    remote_.set_weights({.version = std::to_string(version), .path = {}});
  }

 private:
  struct Open {
    generate::Request request;
    generate::Callbacks callbacks;  // the request's own
    generate::RequestId inner = 0;  // its number at the source that it was given to
    int64_t left = 0;               // number of completions that are not done
  };
  void give(generate::RequestId id, Open& open);
  void fall_back();

  generate::RemoteEngine remote_;
  std::function<generate::CompletionSource*()> make_local_;
  generate::CompletionSource* source_;  // the ranks, or this process
  std::map<generate::RequestId, Open> open_;
  std::map<generate::RequestId, generate::RequestId> outer_;  // outer id of each inner one
  generate::RequestId next_id_ = 1;
};

}  // namespace temper::workers
