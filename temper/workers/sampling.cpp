#include "temper/workers/sampling.h"

#include <algorithm>
#include <charconv>

#include "temper/base/error.h"
#include "temper/workers/trained_weights.h"

namespace temper::workers {
namespace {

// Ranks that compute the same rows schedule them alike, whatever memory each has.
generate::EngineOptions agreed(generate::EngineOptions options, dist::Group* tensor) {
  options.cache_bytes = generate::cache_bytes(options);
  if (!tensor || tensor->size() == 1) return options;
  for (const std::string& theirs : tensor->all_gather(str(options.cache_bytes)))
    options.cache_bytes = std::min<int64_t>(options.cache_bytes, std::stoll(theirs));
  return options;
}

}  // namespace

Sampling::Sampling(train::Policy& policy, generate::GenerationOptions options,
                   const generate::EngineOptions& engine, int64_t behind)
    : policy_(policy),
      options_(std::move(options)),
      engine_(*policy.model, agreed(engine, policy.tensor.get()), policy.tokenizer),
      behind_(behind) {}

void Sampling::take_weights(const std::string& version, const std::string& bytes) {
  int64_t number = -1;
  const char* const end = version.data() + version.size();
  const auto [stop, error] = std::from_chars(version.data(), end, number);
  check<DataError>(error == std::errc() && stop == end && number >= 0, "weights of the version `",
                   version, "`, expected a number");
  auto kept = std::make_shared<const std::string>(bytes);
  const std::lock_guard lock(mutex_);
  weights_[number] = std::move(kept);
  arrived_.notify_all();
}

bool Sampling::is_ready(int64_t version) {
  const std::lock_guard lock(mutex_);
  return version == version_ || version < newest_ - behind_ || weights_.contains(version);
}

bool Sampling::has_weights(int64_t version) {
  const std::lock_guard lock(mutex_);
  return weights_.contains(version);
}

void Sampling::use(int64_t version, const std::function<bool()>& stop) {
  std::unique_lock lock(mutex_);
  while (!weights_.contains(version)) {
    if (stop()) return;  // nobody waits for what would be sampled
    arrived_.wait_for(lock, std::chrono::milliseconds(100));
  }
  set_trained_weights(*policy_.model, weights_.at(version));
  version_ = version;
  newest_ = std::max(newest_, version);
  const int64_t oldest = behind_ > 0 ? newest_ - behind_ : newest_ + 1;
  weights_.erase(weights_.begin(), weights_.lower_bound(oldest));
}

void Sampling::begin(SampleAsk ask, Callbacks callbacks) {
  check<DataError>(ask.version == version_, "asked for weights after ", ask.version,
                   " updates; those after ", version_, " sample");
  struct Progress {
    Callbacks callbacks;
    int64_t first = 0, left = 0;
    std::vector<generate::remote::RemoteSample> samples;
    bool failed = false;
  };
  const auto progress = std::make_shared<Progress>(
      std::move(callbacks), ask.request.first_sample, ask.request.num_samples,
      std::vector<generate::remote::RemoteSample>(static_cast<size_t>(ask.request.num_samples)));
  generate::Callbacks own;
  own.done = [progress](generate::Completion c) {
    progress->samples.at(static_cast<size_t>(c.sample - progress->first)) = {
        std::move(c.tokens), std::move(c.logprobs), c.stopped, std::move(c.text),
        std::move(c.kept)};
    if (--progress->left == 0 && !progress->failed)
      progress->callbacks.done(completions_text(progress->samples));
  };
  own.failed = [progress](const generate::Completion&, const std::string& why) {
    if (!std::exchange(progress->failed, true)) progress->callbacks.failed(why);
  };
  engine_.submit(std::move(ask.request), std::move(own));
}

}  // namespace temper::workers
