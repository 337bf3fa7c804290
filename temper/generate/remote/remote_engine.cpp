#include "temper/generate/remote/remote_engine.h"

#include <algorithm>
#include <chrono>

#include "temper/base/error.h"
#include "temper/base/stopped.h"
#include "temper/generate/text_stream.h"

namespace temper::generate {
namespace {

constexpr std::chrono::milliseconds kStep{100};

}  // namespace

RemoteEngine::RemoteEngine(const ServerSection& section, int64_t vocabulary,
                           std::shared_ptr<const Tokenizer> tokenizer)
    : RemoteEngine(
          std::make_shared<remote::ServerPool>(remote::pool_options(section),
                                               remote::make_protocol(section.kind, vocabulary)),
          std::move(tokenizer)) {}

RemoteEngine::RemoteEngine(std::shared_ptr<remote::ServerPool> pool,
                           std::shared_ptr<const Tokenizer> tokenizer, size_t connections)
    : pool_(std::move(pool)),
      tokenizer_(std::move(tokenizer)),
      queue_({.threads = connections, .at_end = WorkQueueOptions::AtEnd::kDrop}) {}

RemoteEngine::~RemoteEngine() {
  queue_.stop();
  pool_->stop();
}

RequestId RemoteEngine::submit(Request request, Callbacks callbacks) {
  check<ConfigError>(request.options.stop.empty() || tokenizer_,
                     "stop texts need a tokenizer, and the model has none");
  check<DataError>(!request.prompt.empty(), "row ", request.index, ": an empty prompt");
  check<ConfigError>(request.rows.empty() || pool_->protocol().takes_images(),
                     "rollout.server.kind: servers of this kind take no images beside token ids; "
                     "expected openai (temper serve)");
  std::erase(request.options.stop, "");
  auto asked = std::make_shared<Asked>(Asked{next_id_++, std::move(request), std::move(callbacks)});
  const int64_t most = pool_->protocol().most_samples();
  for (int64_t first = 0; first < asked->request.num_samples; first += most) {
    auto task = std::make_shared<Task>();
    task->asked = asked;
    task->turn = next_turn_++;
    task->what = {&asked->request, first, std::min(most, asked->request.num_samples - first),
                  remote::task_seed(asked->request, first)};
    ++open_;
    queue_.run([this, task = std::move(task)] { sample(task); });
  }
  return asked->id;
}

// Nothing is asked for tasks that have no thread yet; what is on its way is dropped when it comes.
void RemoteEngine::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  cancelled_.insert(id);
}

void RemoteEngine::sample(const std::shared_ptr<Task>& task) {
  const auto is_cancelled = [&] { return cancelled_.contains(task->asked->id); };
  std::unique_lock lock(mutex_);
  std::exception_ptr failure;
  if (!is_cancelled()) {
    lock.unlock();
    try {
      task->samples = pool_->sample(task->what, task->turn);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
  }
  task->cancelled = is_cancelled();
  if (failure && !task->cancelled && !failure_) failure_ = failure;
  done_.push_back(task);
  done_changed_.notify_all();
}

void RemoteEngine::report(const Task& task, const Callbacks& callbacks) const {
  const Callbacks& own = task.asked->callbacks;
  const auto& done = own.done ? own.done : callbacks.done;
  if (!done) return;
  const Request& request = task.asked->request;
  for (int64_t s = 0; s < task.what.count; ++s) {
    Completion c;
    c.index = request.index;
    c.sample = request.first_sample + task.what.first + s;
    c.request = task.asked->id;
    c.cancelled = task.cancelled;
    if (!task.cancelled) {
      const remote::RemoteSample& sample = task.samples.at(static_cast<size_t>(s));
      c.tokens = sample.tokens;
      c.logprobs = sample.logprobs;
      c.kept = sample.kept;
      c.stopped = sample.stopped;
      if (sample.text)
        c.text = *sample.text;
      else if (tokenizer_)
        c.text =
            text_of(*tokenizer_, c.tokens, request.options.stop, request.options.min_new_tokens);
    }
    done(std::move(c));
  }
}

void RemoteEngine::watch(std::function<void(const std::string&)> tell, std::function<bool()> stop) {
  tell_ = std::move(tell);
  stop_ = std::move(stop);
}

void RemoteEngine::check_servers() {
  for (const std::string& news : pool_->take_news())
    if (tell_) tell_(news);
  if (stop_ && stop_() && pool_->all_gone())
    throw Stopped("the run was asked to stop while no server answers (rollout.server.urls)");
}

bool RemoteEngine::step(const Callbacks& callbacks) {
  check_servers();
  std::vector<std::shared_ptr<Task>> ended;
  {
    std::unique_lock lock(mutex_);
    if (open_ == 0) {
      cancelled_.clear();
      return false;
    }
    done_changed_.wait_for(lock, kStep, [this] { return !done_.empty() || failure_; });
    if (failure_) std::rethrow_exception(failure_);
    ended.swap(done_);
  }
  open_ -= ended.size();
  for (const auto& task : ended) report(*task, callbacks);
  return open_ > 0;
}

}  // namespace temper::generate
