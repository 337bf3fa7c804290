#include "temper/workers/model_worker.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <exception>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/workers/trained_weights.h"
#include "temper/workers/wire.h"

namespace temper::workers {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr auto kLook = milliseconds(50);  // time between two checks whether to stop
// time between two exchanges of requests in a group that has nothing to do
constexpr auto kBetweenRounds = milliseconds(1000);

constexpr const char* kEnding = "this rank is ending";

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
                   const generate::EngineOptions& engine, int64_t behind,
                   std::shared_ptr<const data::ImageFormat> images)
    : policy_(policy),
      options_(std::move(options)),
      engine_(*policy.model, agreed(engine, policy.tensor.get()), policy.tokenizer),
      behind_(behind),
      images_(std::move(images)) {}

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

// Something that is asked: a path of wire.h, kWeights with the version that samples from here on,
// or kEnd.
struct ModelWorker::Request {
  std::string path, text;
  std::optional<SampleAsk> ask{};  // for kSample, where the request was parsed already
  std::promise<std::string> answer{};
};

ModelWorker::ModelWorker(std::shared_ptr<dist::Group> group, std::unique_ptr<Sampling> sampling,
                         std::unique_ptr<Scoring> scoring)
    : group_(std::move(group)), sampling_(std::move(sampling)), scoring_(std::move(scoring)) {}

std::string ModelWorker::ask(const std::shared_ptr<Request>& request) {
  std::future<std::string> answer = request->answer.get_future();
  {
    const std::lock_guard lock(mutex_);
    check(!ended_, kEnding);
    waiting_.push_back(request);
    open_.insert(request);
  }
  arrived_.notify_one();
  return answer.get();
}

std::string ModelWorker::sample(const std::string& text) {
  check<DataError>(sampling_ != nullptr, "this rank does not sample");
  return ask(std::make_shared<Request>(kSample, text, sampling_->parse(text)));
}

std::string ModelWorker::score(const std::string& text) {
  check<DataError>(scoring_ != nullptr, "this rank has no reference model");
  return ask(std::make_shared<Request>(kScore, text));
}

std::string ModelWorker::take_weights(const std::string& version, const std::string& bytes) {
  check<DataError>(sampling_ != nullptr, "this rank does not sample");
  sampling_->take_weights(version, bytes);
  arrived_.notify_one();
  return "{}";
}

// Completions are those of one version at a time, the oldest first: ranks that train ask in any
// order, and some before others. What is to be scored waits for nothing.
ModelWorker::Requests ModelWorker::take(bool sampling) {
  const int64_t current = sampling_ ? sampling_->version() : 0;
  std::optional<int64_t> next;  // the version of which completions are begun
  if (sampling) {
    next = current;
  } else {
    for (const auto& request : waiting_)
      if (request->path == kSample && sampling_->is_ready(request->ask->version))
        next = std::min(next.value_or(request->ask->version), request->ask->version);
  }
  Requests taken;
  std::deque<std::shared_ptr<Request>> later;
  for (const auto& request : waiting_) {
    const bool waits = request->path == kSample && request->ask->version != next;
    if (waits)
      later.push_back(request);
    else
      taken.push_back(request);
  }
  if (next && *next != current && sampling_->has_weights(*next))
    taken.insert(taken.begin(), std::make_shared<Request>(kWeights, std::to_string(*next)));
  waiting_ = std::move(later);
  return taken;
}

ModelWorker::Requests ModelWorker::wait(bool sampling, const std::function<bool()>& stop) {
  const auto until = steady_clock::now() + (group_->size() > 1 ? kBetweenRounds : kLook);
  while (!stop()) {
    std::unique_lock lock(mutex_);
    Requests taken = take(sampling);
    if (!taken.empty() || sampling || steady_clock::now() >= until) return taken;
    arrived_.wait_for(lock, kLook);
  }
  return {std::make_shared<Request>(kEnd)};
}

// The requests of the group's first rank, on all of its ranks.
ModelWorker::Requests ModelWorker::share(Requests own) const {
  if (group_->size() == 1) return own;
  const bool leads = group_->rank() == 0;
  Json all = Json::array();
  for (const auto& request : own) all.push_back({request->path, request->text});
  const std::string text = group_->all_gather(leads ? dump_json(all) : std::string()).front();
  if (leads) return own;
  Requests theirs;
  for (const Json& one : parse_json(text, "another rank"))
    theirs.push_back(std::make_shared<Request>(one.at(0).get<std::string>(),  //
                                               one.at(1).get<std::string>()));
  return theirs;
}

// A request that is answered now.
std::promise<std::string>& ModelWorker::close(const std::shared_ptr<Request>& request) {
  const std::lock_guard lock(mutex_);
  open_.erase(request);
  return request->answer;
}

void ModelWorker::perform(const std::shared_ptr<Request>& request,
                          const std::function<bool()>& stop) {
  if (request->path == kWeights) return sampling_->use(std::stoll(request->text), stop);
  try {
    if (request->path == kScore) {
      const std::string scores = scoring_->score(request->text);
      return close(request).set_value(scores);
    }
    sampling_->begin(
        request->ask ? std::move(*request->ask) : sampling_->parse(request->text),
        {.done = [=, this](const std::string& text) { close(request).set_value(text); },
         .failed =
             [=, this](const std::string& why) {
               close(request).set_exception(std::make_exception_ptr(RunError(why)));
             }});
  } catch (const DataError&) {  // all of the group find the same
    close(request).set_exception(std::current_exception());
  } catch (const ConfigError&) {
    close(request).set_exception(std::current_exception());
  }
}

void ModelWorker::end() {
  std::set<std::shared_ptr<Request>> open;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    open.swap(open_);
    waiting_.clear();
  }
  for (const auto& request : open)
    request->answer.set_exception(std::make_exception_ptr(RunError(kEnding)));
}

void ModelWorker::run(const std::function<bool()>& stop) {
  struct End {
    ModelWorker& worker;
    ~End() { worker.end(); }
  } const at_end{*this};
  for (bool sampling = false;; sampling = sampling_ && sampling_->step()) {
    for (const auto& request : share(group_->rank() == 0 ? wait(sampling, stop) : Requests())) {
      if (request->path == kEnd) return;
      perform(request, stop);
    }
  }
}

train::RunOutcome serve_run(
    train::RunConfig& config, dist::World& world,
    const std::function<train::FrozenSource(const train::Policy&)>& reference,
    const std::function<std::unique_ptr<Sampling>(train::Policy&)>& sampling) {
  // The ranks that train learn its address before it has loaded anything.
  RankServer server(world, config.training_ranks(world.size()).size());
  const dist::Mesh mesh = world.role_mesh(config.roles);
  train::Policy policy = train::load_policy(config, mesh);
  std::unique_ptr<Scoring> scores;
  std::unique_ptr<Sampling> samples;
  if (config.roles.scores(world.rank()))
    scores = std::make_unique<Scoring>(reference(policy).load(policy),
                                       train::images_of(config, policy.tokenizer.get()));
  if (config.roles.samples(world.rank()))
    samples = sampling(policy);
  else if (!policy.lora)
    policy.model = nullptr;  // the reference is a model of its own
  ModelWorker worker(mesh.tensor, std::move(samples), std::move(scores));
  server.add(kSample,
             [&](const std::string&, const std::string& body) { return worker.sample(body); });
  server.add(kScore,
             [&](const std::string&, const std::string& body) { return worker.score(body); });
  server.add(kWeights, [&](const std::string& version, const std::string& body) {
    return worker.take_weights(version, body);
  });
  return server.serve([&](const std::function<bool()>& stop) { worker.run(stop); });
}

}  // namespace temper::workers
