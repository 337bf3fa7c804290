#include "temper/env/native_host.h"

#include <utility>

#include "temper/base/error.h"

namespace temper::env {

void NativeHost::reset(int64_t episode, const Json& row) {
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

void NativeHost::step(int64_t episode, const Turn& turn) {
  Reply reply{.episode = episode};
  try {
    reply.observation = episodes_.at(episode)->step(turn);
  } catch (const std::exception& e) {
    reply.failure = {Failure::Kind::kCrashed, e.what()};
  }
  answered_.push_back(std::move(reply));
}

void NativeHost::add_awaited(std::vector<pollfd>&, process::Clock::time_point& until) const {
  if (!answered_.empty()) until = process::Clock::now();
}

void NativeHost::advance(std::vector<Reply>& replies) {
  for (Reply& reply : answered_) replies.push_back(std::move(reply));
  answered_.clear();
}

}  // namespace temper::env
