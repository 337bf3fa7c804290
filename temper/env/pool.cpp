#include "temper/env/pool.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <map>
#include <utility>

#include "temper/base/error.h"
#include "temper/env/command_host.h"
#include "temper/env/tool_host.h"
#include "temper/process/pipes.h"

namespace temper::env {
namespace {

using process::Clock;

// Episodes of an environment in this process (environment.h).
class NativeHost : public Host {
 public:
  explicit NativeHost(MakeEnvironment make) : make_(make) {}

  // Throws DataError where the environment says that the row lacks something.
  void reset(int64_t episode, const Json& row) override {
    std::unique_ptr<Environment>& environment = episodes_[episode] = make_();
    Reply reply{.episode = episode};
    try {
      reply.observation = environment->reset(row);
    } catch (const DataError&) {
      throw;
    } catch (const std::exception& e) {
      reply.failure = {Failure::Kind::kCrashed, e.what()};
    }
    answered_.push_back(std::move(reply));
  }
  void step(int64_t episode, const Turn& turn) override {
    Reply reply{.episode = episode};
    try {
      reply.observation = episodes_.at(episode)->step(turn);
    } catch (const std::exception& e) {
      reply.failure = {Failure::Kind::kCrashed, e.what()};
    }
    answered_.push_back(std::move(reply));
  }
  void close(int64_t episode) override { episodes_.erase(episode); }
  void add_awaited(std::vector<pollfd>&, Clock::time_point& until) const override {
    if (!answered_.empty()) until = Clock::now();
  }
  void advance(std::vector<Reply>& replies) override {
    for (Reply& reply : answered_) replies.push_back(std::move(reply));
    answered_.clear();
  }

 private:
  MakeEnvironment make_;
  std::map<int64_t, std::unique_ptr<Environment>> episodes_;
  std::vector<Reply> answered_;
};

std::unique_ptr<Host> make_host(const EnvironmentSection& section) {
  const std::string problem = find_problem(section);
  check<ConfigError>(problem.empty(), problem);
  std::unique_ptr<Host> host;
  if (!section.name.empty())
    host = std::make_unique<NativeHost>(environments().find(section.name, "environment.name"));
  if (!section.command.empty()) host = std::make_unique<CommandHost>(section);
  if (!section.tools.empty()) host = std::make_unique<ToolHost>(section, std::move(host));
  check<ConfigError>(host != nullptr, "environment: has neither a name, a command nor tools");
  return host;
}

}  // namespace

Registry<MakeEnvironment>& environments() {
  static Registry<MakeEnvironment> table("environment");
  return table;
}

EnvironmentPool::EnvironmentPool(EnvironmentSection section)
    : section_(std::move(section)),
      host_(make_host(section_)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check(wake_ >= 0, "cannot make an eventfd for the environment");
  thread_ = std::thread([this] { serve(); });
}

EnvironmentPool::~EnvironmentPool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  put([](Host&) {});
  thread_.join();
  ::close(wake_);
}

void EnvironmentPool::put(Order order) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(std::move(order));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
}

int64_t EnvironmentPool::open(std::shared_ptr<const Json> row, std::string where) {
  const int64_t episode = next_episode_++;
  put([episode, row = std::move(row), where = std::move(where)](Host& host) {
    try {
      host.reset(episode, *row);
    } catch (const DataError& e) {
      throw DataError(where + ": " + e.what());
    }
  });
  return episode;
}

void EnvironmentPool::step(int64_t episode, Turn turn) {
  put([episode, turn = std::move(turn)](Host& host) { host.step(episode, turn); });
}

void EnvironmentPool::close(int64_t episode) {
  put([episode](Host& host) { host.close(episode); });
}

std::vector<Reply> EnvironmentPool::take(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, most, [this] { return !replies_.empty() || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  return std::exchange(replies_, {});
}

void EnvironmentPool::serve() {
  std::vector<pollfd> fds;
  try {
    while (true) {
      std::deque<Order> orders;
      bool ends = false;
      {
        const std::lock_guard lock(mutex_);
        orders.swap(orders_);
        ends = ending_;
      }
      for (const Order& order : orders) order(*host_);
      if (ends) break;
      std::vector<Reply> replies;
      host_->advance(replies);
      if (!replies.empty()) {
        const std::lock_guard lock(mutex_);
        for (Reply& reply : replies) replies_.push_back(std::move(reply));
        arrived_.notify_all();
      }
      fds.assign(1, {wake_, POLLIN, 0});
      Clock::time_point until = Clock::now() + std::chrono::minutes(1);
      host_->add_awaited(fds, until);
      process::wait_for(fds, until);
      uint64_t ignored = 0;
      [[maybe_unused]] const ssize_t n = ::read(wake_, &ignored, sizeof ignored);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    arrived_.notify_all();
  }
  host_.reset();
}

}  // namespace temper::env
