// Requests to sample, from when they come to their end.
#include "temper/base/error.h"
#include "temper/serve/asked.h"
#include "temper/tinker/digest.h"
#include "temper/tinker/service/service.h"
#include "temper/tinker/service/service_fields.h"

namespace temper::tinker {
namespace {

constexpr size_t kMostAsked = 4096;  // requests of a sampler whose retries are known

// The ids of the samples follow from the request's, so that a retry has the same.
Json sample_answer(const std::string& future, int64_t samples) {
  Json names = Json::array();
  for (int64_t i = 0; i < samples; ++i) names.push_back("seq-" + future + "-" + std::to_string(i));
  return {{"request_id", future}, {"sample_sequence_ids", names}};
}

// Of files that are kept in memory.
int64_t bytes_of(const ImageSpans& images) {
  int64_t bytes = 0;
  for (const ImageSpan& span : images)
    if (span.first == 0) bytes += span.image->file_bytes();
  return bytes;
}

}  // namespace

Json Service::sample(const std::string& owner, const Json& body) {
  check_open();
  serve::Members members(body);
  const std::string id = members.text("sampling_session_id");
  if (id.empty())
    throw DataError(
        "asample: expected sampling_session_id, from create_sampling_session or "
        "save_weights_for_sampler");
  const std::optional<int64_t> seq = members.integer("seq_id", 0, INT64_MAX);
  const std::string digest = digest_of("asample", body);
  const auto known = [&](const Sampler& sampler) -> std::optional<Json> {
    if (!seq) return std::nullopt;
    const auto found = sampler.asked.find(*seq);
    if (found == sampler.asked.end()) return std::nullopt;
    check<DataError>(found->second.digest == digest, "seq_id: ", *seq,
                     " was another request's; expected the same content in a retry");
    return sample_answer(found->second.future, found->second.samples);
  };
  {
    const std::lock_guard lock(mutex_);
    if (const auto before = known(*sampler_of(owner, id))) return *before;
  }
  SampleRequest request =
      read_sample(body, model_.vocab_size, options_.most_positions, options_.chunks);
  request.held = sampling_.hold(bytes_of(request.images), owner);
  const bool decodes = !request.images.empty();
  SamplerPointer sampler;
  std::string future;
  bool waits = false, ready = false;
  {
    const std::lock_guard lock(mutex_);
    sampler = sampler_of(owner, id);
    if (const auto before = known(*sampler)) return *before;
    const Asker asker{owner, sampler->session};
    Share running;
    for (const auto& [other, one] : samplings_) running.add(one.owner, one.session, asker, 1);
    if (running.is_beyond(1, options_.most_sampling))
      throw serve::Refusal(
          429,
          str("too many requests: ", running.all, " are sampled, of this session ", running.session,
              "; the server takes ", options_.most_sampling, kShares, "; retry later"));
    future = futures_.open(asker);
    samplings_[future] = {owner, sampler->session};
    if (seq) sampler->asked[*seq] = {digest, future, request.num_samples};
    while (sampler->asked.size() > kMostAsked) sampler->asked.erase(sampler->asked.begin());
    waits = !decodes && put_off(sampler, request, future);
    ready = sampler->ready && request.targets.shape.empty();
  }
  try {
    if (decodes) {
      // As without images: a full server says so at once.
      if (ready) request.place = sampling_.reserve();
      images_.run(owner, [this, sampler, request, future] {
        guarded(future, [&] { decode_and_begin(sampler, request, future); });
      });
    } else if (!waits) {
      begin_sampling(sampler, request, future);
    }
  } catch (...) {
    // Refused at once: the number is free again.
    const std::lock_guard lock(mutex_);
    if (seq) sampler->asked.erase(*seq);
    samplings_.erase(future);
    futures_.fail(future, "the request was refused", FailureCategory::kUser);
    throw;
  }
  if (waits || decodes) sampling_.wake();
  return sample_answer(future, request.num_samples);
}

// Weights that are being loaded, and scores of other tokens, are the model's thread's.
bool Service::put_off(const SamplerPointer& sampler, const SampleRequest& request,
                      const std::string& future) {
  const auto begin = [this, sampler, request, future] {
    guarded(future, [&] { begin_sampling(sampler, request, future); });
  };
  const bool scores = !request.targets.shape.empty();
  if (!sampler->ready)
    sampler->waiting.push_back([this, begin, scores] {
      if (!scores) return begin();
      const std::lock_guard locked(mutex_);
      scorings_.push_back(begin);
    });
  else if (scores)
    scorings_.push_back(begin);
  return !sampler->ready || scores;
}

void Service::decode_and_begin(const SamplerPointer& sampler, const SampleRequest& request,
                               const std::string& future) {
  if (!is_asked_for(future)) return;  // it was cancelled
  decoded_.check(request.images, "`prompt`");
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    waits = put_off(sampler, request, future);
  }
  if (waits)
    sampling_.wake();
  else
    begin_sampling(sampler, request, future);
}

// What fails is the future.
void Service::guarded(const std::string& future, const std::function<void()>& work) {
  std::string why;
  FailureCategory category = FailureCategory::kUser;
  try {
    return work();
  } catch (const serve::TooManyRequests&) {
    why = "too many requests; retry later";
    category = FailureCategory::kServer;
  } catch (const std::exception& e) {
    why = e.what();
    category = category_of(e);
  }
  {
    const std::lock_guard lock(mutex_);
    samplings_.erase(future);
  }
  futures_.fail(future, why, category);
}

bool Service::is_asked_for(const std::string& future) {
  const std::lock_guard lock(mutex_);
  return samplings_.contains(future);
}

void Service::begin_sampling(const SamplerPointer& sampler, const SampleRequest& request,
                             const std::string& future) {
  Weights weights;
  {
    const std::lock_guard lock(mutex_);
    check<ConfigError>(sampler->failure.empty(), sampler->failure);
    check<ConfigError>(!sampler->gone, "the sampler's weights are not kept any more");
    weights = {sampler->place, sampler->beside, std::hash<std::string>{}(sampler->owner) | 1};
  }
  if (request.targets.shape.empty()) return start_sampling(weights, request, future, {});
  if (!is_asked_for(future)) return;  // it was cancelled
  const int adapter = weights.place ? weights.place->index() : 0;
  score_targets(weights, request, future,
                std::make_shared<TargetLogprobs>(model_, adapter, request));
}

// A slice, and then the next ones between other uses of the model, before another request's: of
// those that are scored one at a time has what it needs in memory.
void Service::score_targets(const Weights& weights, const SampleRequest& request,
                            const std::string& future,
                            const std::shared_ptr<TargetLogprobs>& scores) {
  if (!is_asked_for(future)) return;
  if (scores->step()) return start_sampling(weights, request, future, scores->result());
  const std::lock_guard lock(mutex_);
  scorings_.push_front(
      [=, this] { guarded(future, [&] { score_targets(weights, request, future, scores); }); });
}

void Service::start_sampling(const Weights& weights, const SampleRequest& request,
                             const std::string& future, const WireTensor& targets) {
  const auto over = std::make_shared<bool>(false);
  const auto forget = [this, future, over] {
    const std::lock_guard lock(mutex_);
    *over = true;
    samplings_.erase(future);
  };
  const std::shared_ptr<Sampling> sampling = Sampling::start(
      sampling_, request, weights.place, targets, weights.beside, weights.client,
      [this, future, forget](const SampleResult& result) {
        futures_.resolve(future, write_sample(result), Futures::Kind::kProtobuf);
        forget();
      },
      [this, future, forget](const std::string& why) {
        futures_.fail(future, why, FailureCategory::kServer);
        forget();
      });
  bool cancelled = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = samplings_.find(future);
    cancelled = found == samplings_.end() && !*over;
    if (found != samplings_.end()) found->second.sampling = sampling;
  }
  if (cancelled) sampling->cancel();
}

Json Service::cancel(const std::string& owner, const Json& body) {
  serve::Members members(body);
  const std::string future = members.text("request_id");
  check_named("request_id", future, "the request that is to be cancelled");
  if (!futures_.is_open(owner, future)) return Json::object();
  constexpr const char* kWhy = "the request was cancelled";
  std::optional<Running> running;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = samplings_.find(future); found != samplings_.end()) {
      running = found->second;
      samplings_.erase(found);
    }
  }
  if (running) {
    if (running->sampling) running->sampling->cancel();
    futures_.fail(future, kWhy, FailureCategory::kUser);
    return Json::object();
  }
  // Of a model's requests: where they may use the model, between slices.
  later([this, future] {
    std::optional<Job> job;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [id, model] : models_)
        if ((job = model->jobs.cancel(future))) break;
    }
    if (job) futures_.fail(future, kWhy, FailureCategory::kUser);
  });
  return Json::object();
}

}  // namespace temper::tinker
