#include "temper/workers/rank_engine.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/workers/wire.h"

namespace temper::workers {

using generate::Callbacks;
using generate::Completion;
using generate::CompletionSource;
using generate::Request;
using generate::RequestId;
using generate::remote::RemoteSample;
using generate::remote::RemoteWeights;
using generate::remote::SampleTask;
using http::Client;

namespace {

class RankProtocol : public generate::remote::Protocol {
 public:
  // A prompt goes through the model once for all of its samples.
  int64_t most_samples() const override { return int64_t{1} << 40; }
  bool takes_images() const override { return true; }
  std::string model_name(http::Client&) const override { return "policy"; }
  // Weights are sent to the ranks in another way (weights_sender.h).
  void load(http::Client&, const RemoteWeights&, const RemoteWeights&) const override {}

  std::vector<RemoteSample> sample(http::Client& http, const std::string&, const SampleTask& task,
                                   const RemoteWeights& weights) const override {
    Request request = *task.request;
    request.first_sample += task.first;
    request.num_samples = task.count;
    std::vector<RemoteSample> samples =
        parse_completions(http.post(kSample, sample_text(std::stoll(weights.version), request)));
    check<DataError>(static_cast<int64_t>(samples.size()) == task.count, "found ", samples.size(),
                     " completions, expected ", task.count);
    return samples;
  }
};

}  // namespace

std::unique_ptr<generate::remote::Protocol> rank_protocol() {
  return std::make_unique<RankProtocol>();
}

RankEngine::RankEngine(std::shared_ptr<generate::remote::ServerPool> pool,
                       std::shared_ptr<const Tokenizer> tokenizer, size_t connections,
                       std::function<CompletionSource*()> local)
    : remote_(std::move(pool), std::move(tokenizer), connections),
      make_local_(std::move(local)),
      source_(&remote_) {}

void RankEngine::give(RequestId id, Open& open) {
  open.inner = source_->submit(open.request);
  outer_[open.inner] = id;
}

RequestId RankEngine::submit(Request request, Callbacks callbacks) {
  const RequestId id = next_id_++;
  const int64_t samples = request.num_samples;
  Open& open = open_[id] = {std::move(request), std::move(callbacks), 0, samples};
  give(id, open);
  return id;
}

void RankEngine::cancel(RequestId id) {
  const auto found = open_.find(id);
  if (found != open_.end()) source_->cancel(found->second.inner);
}

// All completions of a request come at once, so none of those that are open has been given.
void RankEngine::fall_back() {
  source_ = make_local_();
  outer_.clear();
  for (auto& [id, open] : open_) give(id, open);
}

bool RankEngine::step(const Callbacks& callbacks) {
  const auto done = [&](Completion c) {
    const RequestId id = outer_.at(c.request);
    Open& open = open_.at(id);
    const Callbacks own = open.callbacks;
    if (--open.left == 0) {
      outer_.erase(c.request);
      open_.erase(id);
    }
    c.request = id;
    const auto& report = own.done ? own.done : callbacks.done;
    if (report) report(std::move(c));
  };
  try {
    return source_->step({.done = done, .on_token = {}});
  } catch (const generate::remote::NoServer&) {
    if (!make_local_ || source_ != &remote_) throw;
  }
  fall_back();
  return true;
}

void RankEngine::rest() { source_->rest(); }

}  // namespace temper::workers
