// Samplers: fixed weights that clients sample from.
#include <algorithm>

#include "temper/base/error.h"
#include "temper/serve/asked.h"
#include "temper/serve/reply_json.h"
#include "temper/tinker/digest.h"
#include "temper/tinker/service.h"
#include "temper/tinker/service_fields.h"

namespace temper::tinker {
namespace {

constexpr size_t kMostAsked = 4096;  // requests of a sampler whose retries are known

}  // namespace

Service::SamplerPointer Service::add_sampler(Session& session, const std::string& id,
                                             const std::string& digest) {
  check<DataError>(!samplers_.contains(id), "sampling_session_seq_id: `", id,
                   "` exists already; expected the next number");
  check<ConfigError>(samplers_.size() < options_.most_samplers, "the server has ",
                     options_.most_samplers, " samplers, the most that it takes; finish a session");
  auto sampler = std::make_shared<Sampler>();
  sampler->id = id;
  sampler->session = session.id;
  sampler->digest = digest;
  samplers_[id] = sampler;
  session.samplers.push_back(id);
  return sampler;
}

Json Service::create_sampling_session(const Json& body) {
  check_open();
  serve::Members members(body);
  const std::string session_id = members.text("session_id"), base = members.text("base_model"),
                    path = members.text("model_path"), digest = digest_of("sampler", body);
  const int64_t number = members.integer("sampling_session_seq_id", 0, INT64_MAX).value_or(0);
  if (base.empty() && path.empty())
    throw DataError("create_sampling_session: expected base_model or model_path");
  std::string served = base;
  if (!path.empty()) served = store_.run(store_.checkpoint(path).run).base_model;
  if (!base.empty()) check_base(base);
  const std::string id = session_id + ":sample:" + std::to_string(number);
  SamplerPointer sampler;
  {
    const std::lock_guard lock(mutex_);
    Session& session = session_of(session_id);
    if (const auto found = samplers_.find(id);
        found != samplers_.end() && found->second->digest == digest)
      return {{"type", "create_sampling_session"}, {"sampling_session_id", id}};
    sampler = add_sampler(session, id, digest);
    sampler->base_model = served;
    sampler->model_path = path;
    sampler->is_base = sampler->ready = path.empty();
  }
  if (!path.empty()) later([this, sampler] { load_sampler(sampler); });
  return {{"type", "create_sampling_session"}, {"sampling_session_id", id}};
}

// On the thread that owns the model, as the next two.
void Service::load_sampler(const SamplerPointer& sampler) {
  std::shared_ptr<AdapterPlace> place;
  {
    const std::lock_guard lock(mutex_);
    place = loaded_[sampler->model_path].lock();
  }
  try {
    if (!place)
      place = load_place(places_, store_.directory_of(store_.checkpoint(sampler->model_path)));
  } catch (const std::exception& e) {
    const std::lock_guard lock(mutex_);
    sampler->failure = e.what();
  }
  {
    const std::lock_guard lock(mutex_);
    if (place) loaded_[sampler->model_path] = place;
  }
  set_place(sampler, place);
}

void Service::set_place(const SamplerPointer& sampler, std::shared_ptr<AdapterPlace> place) {
  std::vector<std::function<void()>> waiting;
  {
    const std::lock_guard lock(mutex_);
    sampler->ready = true;
    if (!sampler->gone) sampler->place = std::move(place);
    waiting.swap(sampler->waiting);
  }
  for (const auto& one : waiting) one();
}

void Service::snapshot(const ModelPointer& model, const SamplerPointer& sampler) {
  const std::shared_ptr<AdapterPlace> place = model->adapter->snapshot();
  set_place(sampler, place);
  const std::lock_guard lock(mutex_);
  model->snapshots.push_back(sampler->id);
  for (const std::string& id : model->snapshots) {
    const auto found = samplers_.find(id);
    if (sampler->is_inflight && found != samplers_.end() && found->second->is_inflight)
      found->second->place = place;
  }
  while (model->snapshots.size() > options_.most_snapshots) {
    const auto oldest = samplers_.find(model->snapshots.front());
    model->snapshots.pop_front();
    if (oldest == samplers_.end()) continue;
    oldest->second->gone = true;
    oldest->second->place.reset();
  }
}

Service::SamplerPointer Service::sampler_of(const std::string& id) {
  const auto found = samplers_.find(id);
  if (found == samplers_.end())
    throw serve::Refusal(404, "sampling_session_id: unknown `" + id.substr(0, 200) +
                                  "`: its session has finished, or the server was started again");
  if (found->second->gone)
    throw serve::Refusal(404,
                         str("sampling_session_id: the weights of `", id,
                             "` are not kept any more: of "
                             "samplers that are not saved the last ",
                             options_.most_snapshots,
                             " of a model are; save_weights_for_sampler with a name saves them"));
  session_of(found->second->session);
  return found->second;
}

Json Service::sampler(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const SamplerPointer sampler = sampler_of(id);
  Json answer{{"sampler_id", id}, {"base_model", sampler->base_model}};
  if (!sampler->model_path.empty()) answer["model_path"] = sampler->model_path;
  return answer;
}

Json Service::sample(const Json& body) {
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
    return found->second.future;
  };
  {
    const std::lock_guard lock(mutex_);
    if (const auto before = known(*sampler_of(id))) return *before;
  }
  const SampleRequest request = read_sample(body, model_.vocab_size, options_.most_positions);
  SamplerPointer sampler;
  Json answer;
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    sampler = sampler_of(id);
    if (const auto before = known(*sampler)) return *before;
    if (samplings_.size() >= options_.most_waiting)
      throw serve::TooManyRequests{static_cast<int64_t>(options_.most_waiting)};
    Json names = Json::array();
    for (int64_t i = 0; i < request.num_samples; ++i) names.push_back(serve::new_id("seq-"));
    answer = {{"request_id", futures_.open()}, {"sample_sequence_ids", names}};
    if (seq) sampler->asked[*seq] = {digest, answer};
    while (sampler->asked.size() > kMostAsked) sampler->asked.erase(sampler->asked.begin());
    const std::string future = answer["request_id"];
    const auto begin = [this, sampler, request, future] {
      try {
        begin_sampling(sampler, request, future);
      } catch (const serve::TooManyRequests&) {
        futures_.fail(future, "too many requests; retry later", FailureCategory::kServer);
      } catch (const std::exception& e) {
        futures_.fail(future, e.what(), FailureCategory::kUser);
      }
    };
    // Weights that are being loaded, and scores of other tokens, are the model's thread's.
    waits = !sampler->ready || !request.targets.shape.empty();
    if (!sampler->ready)
      sampler->waiting.push_back(begin);
    else if (waits)
      controls_.push_back(begin);
  }
  if (waits) {
    sampling_.wake();
    return answer;
  }
  try {
    begin_sampling(sampler, request, answer["request_id"]);
  } catch (...) {
    // Refused at once: the number is free again.
    const std::lock_guard lock(mutex_);
    if (seq) sampler->asked.erase(*seq);
    futures_.fail(answer["request_id"], "the request was refused", FailureCategory::kUser);
    throw;
  }
  return answer;
}

void Service::begin_sampling(const SamplerPointer& sampler, const SampleRequest& request,
                             const std::string& future) {
  std::shared_ptr<AdapterPlace> place;
  {
    const std::lock_guard lock(mutex_);
    check<ConfigError>(sampler->failure.empty(), sampler->failure);
    check<ConfigError>(!sampler->gone, "the sampler's weights are not kept any more");
    place = sampler->place;
  }
  WireTensor targets;
  if (!request.targets.shape.empty())
    targets = target_logprobs(model_, place ? place->index() : 0, request);
  const auto over = std::make_shared<bool>(false);
  const auto forget = [this, future, over] {
    const std::lock_guard lock(mutex_);
    *over = true;
    samplings_.erase(future);
  };
  const std::shared_ptr<Sampling> sampling = Sampling::start(
      sampling_, request, place, std::move(targets),
      [this, future, forget](const SampleResult& result) {
        futures_.resolve(future, write_sample(result), true);
        forget();
      },
      [this, future, forget](const std::string& why) {
        futures_.fail(future, why, FailureCategory::kServer);
        forget();
      });
  const std::lock_guard lock(mutex_);
  if (!*over) samplings_[future] = sampling;
}

Json Service::cancel(const Json& body) {
  serve::Members members(body);
  const std::string future = members.text("request_id");
  check_named("request_id", future, "the request that is to be cancelled");
  std::shared_ptr<Sampling> sampling;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = samplings_.find(future); found != samplings_.end()) {
      sampling = found->second;
      samplings_.erase(found);
    }
  }
  if (sampling) {
    sampling->cancel();
    futures_.fail(future, "the request was cancelled", FailureCategory::kUser);
  }
  return Json::object();
}

}  // namespace temper::tinker
