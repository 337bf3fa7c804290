#include "temper/tinker/service/service.h"

#include <algorithm>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/serve/answering.h"
#include "temper/serve/asked.h"
#include "temper/tinker/service/service_fields.h"

namespace temper::tinker {
namespace {

constexpr double kSweepSeconds = 20;

bool is_users_fault(const std::exception& e) {
  return dynamic_cast<const DataError*>(&e) || dynamic_cast<const ConfigError*>(&e) ||
         dynamic_cast<const serve::Refusal*>(&e);
}

}  // namespace

FailureCategory category_of(const std::exception& e) {
  return is_users_fault(e) ? FailureCategory::kUser : FailureCategory::kServer;
}

Service::Service(models::CausalLM& model, serve::SamplerLoop& sampling, ServiceOptions options,
                 const std::string& state_directory)
    : options_(std::move(options)),
      model_(model),
      sampling_(sampling),
      places_(model),
      widths_(adapter_widths(model)),
      store_(state_directory),
      futures_(options_.futures) {
  if (options_.adapter_bytes == 0) options_.adapter_bytes = usable_memory_bytes() / 4;
  // A backward pass keeps about what goes into its layers or comes out, in float32. A forward pass
  // keeps little of it.
  constexpr int64_t kLeast = 512, kForwardFactor = 8;
  const int64_t token_bytes = widths_.active * static_cast<int64_t>(sizeof(float));
  most_trained_ = std::max(kLeast, usable_memory_bytes() / 2 / std::max<int64_t>(token_bytes, 1));
  options_.most_positions = std::min(options_.most_positions, most_trained_ * kForwardFactor);
}

Service::~Service() { close(); }

void Service::check_open() const {
  check<serve::ServerStopped>(!closed_, "the server is stopping; retry later");
}

void Service::later(std::function<void()> control) {
  {
    const std::lock_guard lock(mutex_);
    controls_.push_back(std::move(control));
  }
  sampling_.wake();
}

void Service::Share::add(const std::string& of_owner, const std::string& of_session,
                         const Asker& asker, int64_t amount) {
  all += amount;
  if (of_owner == asker.owner) owner += amount;
  if (of_session == asker.session) session += amount;
}

bool Service::Share::is_beyond(int64_t more, int64_t most, bool urgent) const {
  if (urgent) return all + more > 2 * most;
  return all + more > most || (session > 0 && session + more > most - most / 8) ||
         (owner > 0 && owner + more > most - most / 16);
}

bool Service::work() {
  places_.remove_ended();
  std::function<void()> control;
  std::vector<ModelPointer> next;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    const auto take = [&](std::deque<std::function<void()>>& from) {
      control = std::move(from.front());
      from.pop_front();
    };
    if (!controls_.empty()) {
      take(controls_);
    } else {
      if (scorings_.empty() || scored_last_) next = take_turn();
      scored_last_ = next.empty() && !scorings_.empty();
      if (scored_last_) take(scorings_);
    }
  }
  if (control)
    control();
  else
    run_jobs(next);
  return control || !next.empty();
}

// The models take turns, by name. Those that wait to make passes, too, may share the pass of the
// one whose turn it is. One that is within a pass comes first: no two hold what a pass needs.
std::vector<Service::ModelPointer> Service::take_turn() {
  if (std::exchange(in_pass_, false))
    if (const auto found = models_.find(last_served_);
        found != models_.end() && found->second->jobs.current())
      return {found->second};
  std::vector<ModelPointer> waiting;
  const auto take = [&](auto from, auto to) {
    for (; from != to; ++from)
      if (from->second->ready && from->second->jobs.current()) waiting.push_back(from->second);
  };
  const auto middle = models_.upper_bound(last_served_);
  take(middle, models_.end());
  take(models_.begin(), middle);
  if (waiting.empty()) return waiting;
  last_served_ = waiting[0]->id;
  if (!waiting[0]->jobs.current()->passes) waiting.resize(1);
  std::erase_if(waiting, [&](const ModelPointer& model) {
    return model != waiting[0] && !model->jobs.current()->passes;
  });
  return waiting;
}

// One slice of the first one's job, and of the others' that share its pass.
void Service::run_jobs(const std::vector<ModelPointer>& models) {
  std::vector<ForwardBackward*> requests;
  for (const ModelPointer& model : models) {
    const std::lock_guard lock(mutex_);
    if (const Job* job = model->jobs.current(); job && job->passes)
      requests.push_back(job->passes());
  }
  const std::string failure = requests.empty() ? "" : ForwardBackward::step_together(requests);
  in_pass_ = !requests.empty() && requests[0]->in_pass();
  if (!failure.empty() && failure != last_failure_ && options_.warn)
    options_.warn(
        "training requests of several adapters could not share a pass, and went one by "
        "one: " +
        failure);
  if (!failure.empty()) last_failure_ = failure;
  for (const ModelPointer& model : models) run_job(model);
}

// One slice. What it throws fails the job alone.
void Service::run_job(const ModelPointer& model) {
  Job* job = nullptr;
  {
    const std::lock_guard lock(mutex_);
    job = model->jobs.current();  // which this thread alone removes
  }
  if (!job) return;
  bool done = true;
  try {
    done = job->step();
  } catch (const std::exception& e) {
    futures_.fail(job->future, e.what(), category_of(e));
  }
  if (!done) return;
  job->step = {};  // here, where they may use the model
  job->passes = {};
  const std::lock_guard lock(mutex_);
  model->jobs.finish_current();
}

void Service::check_room(const Model& model, int64_t seq, int64_t bytes) const {
  const bool is_next = model.jobs.is_next(seq);  // those that came before wait for it
  if (model.jobs.waiting() >= options_.most_waiting && !is_next)
    throw serve::Refusal(429, str("too many requests: found ", model.jobs.waiting(),
                                  " waiting requests of this model, the maximum; retry later"));
  if (bytes == 0) return;
  Share waiting;
  for (const auto& [id, one] : models_)
    waiting.add(one->owner, one->session, {model.owner, model.session}, one->jobs.bytes());
  if (waiting.is_beyond(bytes, options_.waiting_bytes, is_next))
    throw serve::Refusal(429,
                         str("too many requests: those that wait hold ", waiting.all,
                             " bytes, of this session ", waiting.session, "; the server takes ",
                             options_.waiting_bytes, kShares, "; retry later"));
}

// Answers with the future of a request that takes its turn among those of its model. `validate`
// throws where it is refused; it then uses up its number.
Json Service::enqueue(const std::string& owner, const std::string& model_id,
                      std::optional<int64_t> seq, const std::string& digest, int64_t bytes,
                      const std::function<void()>& validate, const MakeJob& make) {
  check_open();
  ModelPointer model;
  {
    const std::lock_guard lock(mutex_);
    model = model_of(owner, model_id);
    if (!seq) seq = model->jobs.next_number();
    if (const auto future = model->jobs.known(*seq, digest))
      return {{"request_id", *future}, {"model_id", model_id}};
    check_room(*model, *seq, bytes);
  }
  store_.touch_run(model_id);
  try {
    validate();
  } catch (const std::exception& e) {
    if (is_users_fault(e)) {
      const std::lock_guard lock(mutex_);
      model->jobs.refuse(*seq, digest, serve::answer_to(e));
    }
    sampling_.wake();
    throw;
  }
  Json answer{{"request_id", ""}, {"model_id", model_id}};
  {
    const std::lock_guard lock(mutex_);
    // Another thread may have taken in the same request meanwhile.
    if (const auto future = model->jobs.known(*seq, digest)) {
      answer["request_id"] = *future;
      return answer;
    }
    if (model->gone) throw serve::Refusal(404, "model_id: the model was unloaded");
    const std::string future = futures_.open({model->owner, model->session});
    Job job = make(model, future);
    job.future = future;
    job.bytes = bytes;
    model->jobs.add(*seq, digest, std::move(job), steady_seconds());
    answer["request_id"] = future;
  }
  sampling_.wake();
  return answer;
}

void Service::end_model(const ModelPointer& model, const std::string& why) {
  std::vector<Job> jobs;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(model->gone, true)) return;
    jobs = model->jobs.clear();
    models_.erase(model->id);
  }
  for (const Job& job : jobs) futures_.fail(job.future, why, FailureCategory::kUser);
  jobs.clear();
  model->adapter.reset();
}

void Service::tick() {
  const double now = steady_seconds();
  futures_.tick(now);
  if (now - swept_ < kSweepSeconds) return;
  swept_ = now;
  store_.sweep();
  std::vector<Job> stuck;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, session] : sessions_)
      if (!session.finished && now - session.seen > options_.idle_seconds) end_session(session);
    std::erase_if(sessions_, [&](const auto& one) {
      return one.second.finished && now - one.second.seen > 24 * 3600;
    });
    std::erase_if(loaded_, [](const auto& one) { return one.second.expired(); });
    for (auto& [id, model] : models_)
      for (Job& job : model->jobs.take_stuck(now, options_.gap_seconds))
        stuck.push_back(std::move(job));
  }
  for (const Job& job : stuck)
    futures_.fail(job.future, "a request with a lower seq_id never came", FailureCategory::kUser);
  sampling_.wake();
}

void Service::close() {
  if (closed_.exchange(true)) return;
  futures_.close();
  std::map<std::string, Running> samplings;
  {
    const std::lock_guard lock(mutex_);
    samplings.swap(samplings_);
  }
  for (const auto& [future, running] : samplings)
    if (running.sampling) running.sampling->cancel();
}

}  // namespace temper::tinker
