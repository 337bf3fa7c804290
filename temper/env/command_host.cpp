#include "temper/env/command_host.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/env/messages.h"

namespace temper::env {
namespace {

constexpr size_t kMostLate = 64;     // most episodes of a worker whose late answers are recognized
constexpr size_t kQuotedLine = 200;  // bytes of a line that a message quotes
// most processes that may end during an episode without its fault
constexpr int kMostLosses = 2;

Failure::Kind kind_of(process::Worker::Answer::Kind kind) {
  using Kind = process::Worker::Answer::Kind;
  return kind == Kind::kTimedOut ? Failure::Kind::kTimedOut
         : kind == Kind::kEnded  ? Failure::Kind::kCrashed
                                 : Failure::Kind::kMalformed;
}

}  // namespace

CommandHost::CommandHost(const EnvironmentSection& section) : program_(section.command[0]) {
  const process::WorkerOptions options{.command = section.command,
                                       .timeout_seconds = section.timeout_seconds,
                                       .start_timeout_seconds = section.start_timeout_seconds,
                                       .limits = section.limits,
                                       .stateful = true,
                                       .longest_line = kLongestAnswer};
  for (int64_t i = 0; i < section.workers; ++i) slots_.push_back(std::make_unique<Slot>(options));
}

void CommandHost::reset(int64_t episode, const Json& row) {
  const auto least = std::min_element(
      slots_.begin(), slots_.end(), [](const auto& a, const auto& b) { return a->open < b->open; });
  ++(*least)->open;
  episodes_[episode].slot = static_cast<size_t>(least - slots_.begin());
  ask(episode, reset_request(episode, row));
}

void CommandHost::step(int64_t episode, const Turn& turn) {
  ask(episode, step_request(episode, turn));
}

void CommandHost::ask(int64_t episode, std::string line) {
  const Episode& e = episodes_.at(episode);
  slots_[e.slot]->waiting.push_back({episode, std::move(line), false, e.answers.size()});
}

void CommandHost::close(int64_t episode) {
  const auto found = episodes_.find(episode);
  if (found == episodes_.end()) return;
  Slot& slot = *slots_[found->second.slot];
  if (found->second.known) slot.worker.tell(close_request(episode));
  forget(slot, episode);
}

void CommandHost::forget(Slot& slot, int64_t episode) {
  std::erase_if(slot.waiting, [&](const Request& r) { return r.episode == episode; });
  if (episodes_.erase(episode) > 0) --slot.open;
}

// The episode is over; the caller closes it without effect.
void CommandHost::lose(int64_t episode, Failure failure, std::vector<Reply>& replies) {
  if (!episodes_.contains(episode)) return;  // closed meanwhile
  close(episode);
  replies.push_back({.episode = episode, .failure = std::move(failure)});
}

void CommandHost::add_awaited(std::vector<pollfd>& fds, process::Clock::time_point& until) const {
  for (const auto& slot : slots_) {
    if (!slot->worker.busy()) continue;
    slot->worker.add_awaited(fds);
    until = std::min(until, slot->worker.wake_time());
  }
}

void CommandHost::advance(std::vector<Reply>& replies) {
  for (const auto& slot : slots_) {
    if (slot->worker.busy()) {
      const std::optional<process::Worker::Answer> answer = slot->worker.advance();
      if (answer && answer->kind == process::Worker::Answer::Kind::kLine)
        answered(*slot, *answer, replies);
      else if (answer)
        ended(*slot, *answer, replies);
    }
    while (!slot->worker.busy() && !slot->waiting.empty() && dispatch(*slot, replies)) {
    }
  }
}

// Sends the oldest waiting request, after repeating those that a new process has to be told again.
// False: no request was sent.
bool CommandHost::dispatch(Slot& slot, std::vector<Reply>& replies) {
  Request next = std::move(slot.waiting.front());
  slot.waiting.pop_front();
  Episode& e = episodes_.at(next.episode);
  if (!e.known && !next.repeated && !e.asked.empty()) {
    const int64_t episode = next.episode;
    slot.waiting.push_front(std::move(next));
    for (size_t i = e.asked.size(); i-- > 0;)
      slot.waiting.push_front({episode, e.asked[i], true, i});
    return true;
  }
  e.known = true;
  try {
    slot.worker.ask(next.line,
                    [&slot](const std::string& line) { return !answers_late(line, slot.late); });
  } catch (const RunError& error) {
    lose(next.episode, {Failure::Kind::kCrashed, error.what()}, replies);
    return true;
  }
  slot.current = std::move(next);
  return false;
}

void CommandHost::answered(Slot& slot, const process::Worker::Answer& answer,
                           std::vector<Reply>& replies) {
  const Request request = std::move(*slot.current);
  slot.current.reset();
  const auto found = episodes_.find(request.episode);
  if (found == episodes_.end()) return;  // closed meanwhile
  Episode& e = found->second;
  if (request.repeated) {
    if (answer.text != e.answers[request.number])
      lose(request.episode,
           {Failure::Kind::kCrashed,
            program_ + " ended, and did not answer the same when the episode was repeated"},
           replies);
    return;
  }
  auto read = read_answer(answer.text, request.episode, request.number == 0, program_);
  const std::string unasked = what_was_unasked(answer);
  if (auto* failure = std::get_if<Failure>(&read)) {
    lose(request.episode, std::move(*failure), replies);
    replies.back().unasked_lines = answer.unasked_lines;
    replies.back().unasked = unasked;
    return;
  }
  e.asked.push_back(request.line);
  e.answers.push_back(answer.text);
  replies.push_back({.episode = request.episode,
                     .observation = std::get<Observation>(std::move(read)),
                     .unasked_lines = answer.unasked_lines,
                     .unasked = unasked});
}

std::string CommandHost::what_was_unasked(const process::Worker::Answer& answer) const {
  if (answer.unasked_lines == 0) return {};
  return str(program_, " answered with a line that nobody asked for, `",
             answer.unasked.substr(0, kQuotedLine), "`; such lines are discarded");
}

// The process is gone, and the next one knows none of the episodes.
void CommandHost::ended(Slot& slot, const process::Worker::Answer& answer,
                        std::vector<Reply>& replies) {
  Request request = std::move(*slot.current);
  slot.current.reset();
  // A server behind the process may still send a late answer.
  if (answer.kind == process::Worker::Answer::Kind::kTimedOut) {
    slot.late.insert(request.episode);
    if (slot.late.size() > kMostLate) slot.late.erase(slot.late.begin());
  }
  for (auto& [number, e] : episodes_)
    if (slots_[e.slot].get() == &slot) e.known = false;
  const auto found = episodes_.find(request.episode);
  const bool open = found != episodes_.end();
  if (!open || !answer.between || ++found->second.losses > kMostLosses)
    lose(request.episode, {kind_of(answer.kind), program_ + " " + answer.text}, replies);
  else if (!request.repeated)
    slot.waiting.push_front(std::move(request));
  std::erase_if(slot.waiting, [](const Request& r) { return r.repeated; });
}

}  // namespace temper::env
