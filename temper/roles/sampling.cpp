#include "temper/roles/sampling.h"

#include <charconv>

#include "temper/base/error.h"
#include "temper/roles/trained_weights.h"
#include "temper/roles/wire.h"

namespace temper::roles {
namespace {

constexpr int64_t kMostRequests = int64_t{1} << 30;  // those that train bound them

}  // namespace

Sampling::Sampling(train::Policy& policy, generate::GenerationOptions options,
                   const generate::EngineOptions& engine)
    : policy_(policy),
      options_(std::move(options)),
      loop_(*policy.model, engine, policy.tokenizer, kMostRequests) {}

std::string Sampling::take_weights(const std::string& version, const std::string& bytes) {
  int64_t number = -1;
  const char* const end = version.data() + version.size();
  const auto [stop, error] = std::from_chars(version.data(), end, number);
  check<DataError>(error == std::errc() && stop == end && number >= 0, "weights of the version `",
                   version, "`, expected a number");
  auto kept = std::make_shared<const std::string>(bytes);
  const std::lock_guard lock(mutex_);
  waiting_[number] = std::move(kept);
  arrived_.notify_all();
  return "{}";
}

void Sampling::use(int64_t version) {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [&] { return ended_ || version_ >= version || waiting_.contains(version); });
  check(!ended_, "this rank is ending");
  check<DataError>(version_ <= version, "asked for weights after ", version,
                   " updates; those after ", version_, " sample");
  if (version_ == version) return;
  loop_.change_weights([&] { set_trained_weights(*policy_.model, waiting_.at(version)); },
                       std::to_string(version));
  version_ = version;
  waiting_.erase(waiting_.begin(), waiting_.upper_bound(version));
}

std::string Sampling::sample(const std::string& text) {
  SampleAsk ask = parse_sample(text, options_);
  use(ask.version);
  const int64_t count = ask.request.num_samples;
  const std::shared_ptr<serve::Ticket> ticket = loop_.submit({std::move(ask.request)});
  std::vector<generate::remote::RemoteSample> samples(static_cast<size_t>(count));
  for (int64_t left = count; left > 0;) {
    serve::Piece piece;
    if (!ticket->next(piece, std::chrono::milliseconds(100))) continue;
    samples.at(static_cast<size_t>(piece.choice)) = {
        std::move(piece.tokens), std::move(piece.logprobs), piece.stopped, std::move(piece.text)};
    --left;
  }
  return completions_text(samples);
}

void Sampling::run(const std::function<bool()>& stop) {
  struct End {
    Sampling& sampling;
    ~End() {
      const std::lock_guard lock(sampling.mutex_);
      sampling.ended_ = true;
      sampling.arrived_.notify_all();
    }
  } const end{*this};
  loop_.run(stop);
}

}  // namespace temper::roles
