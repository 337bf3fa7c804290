#include "temper/tinker/ordered_jobs.h"

#include <algorithm>

#include "temper/base/error.h"

namespace temper::tinker {
namespace {

constexpr size_t kMostRemembered = 4096;  // requests whose retries are known
constexpr int64_t kMostAhead = 65536;     // numbers beyond the one whose turn it is

}  // namespace

std::optional<std::string> OrderedJobs::known(int64_t seq, const std::string& digest) const {
  check<DataError>(seq >= 1, "seq_id: found ", seq, ", expected a number from 1 on");
  const auto found = seen_.find(seq);
  if (found == seen_.end()) {
    check<DataError>(seq >= next_, "seq_id: ", seq, " has been used; the next one is ",
                     next_number());
    check<DataError>(seq - next_ < kMostAhead, "seq_id: found ", seq, ", expected the next one, ",
                     next_number(), ": numbers follow each other");
    return std::nullopt;
  }
  check<DataError>(found->second.digest == digest, "seq_id: ", seq,
                   " was another request's; expected the same content in a retry, or the next "
                   "number, ",
                   next_number());
  if (found->second.refusal) throw Refused{*found->second.refusal};
  return found->second.future;
}

void OrderedJobs::note(int64_t seq, Seen seen) {
  last_ = std::max(last_, seq);
  seen_[seq] = std::move(seen);
  while (seen_.size() > kMostRemembered && seen_.begin()->first < next_) seen_.erase(seen_.begin());
}

void OrderedJobs::add(int64_t seq, const std::string& digest, Job job, double now) {
  note(seq, {digest, job.future, std::nullopt, false});
  bytes_ += job.bytes;
  if (jobs_.empty()) idle_since_ = now;
  jobs_[seq] = std::move(job);
}

void OrderedJobs::refuse(int64_t seq, const std::string& digest, http::Answer answer) {
  if (seq < next_ || seq - next_ >= kMostAhead || seen_.contains(seq)) return;
  note(seq, {digest, "", std::move(answer), false});
  number_is_used();
}

void OrderedJobs::number_is_used() {
  const int64_t before = next_;
  advance();
  if (next_ != before) idle_since_ = 0;  // the wait for the next number begins
}

// Past numbers whose requests were refused or cancelled.
void OrderedJobs::advance() {
  for (auto seen = seen_.find(next_);
       seen != seen_.end() && (seen->second.refusal || seen->second.cancelled);
       seen = seen_.find(next_))
    ++next_;
}

Job* OrderedJobs::current() {
  const auto found = jobs_.find(next_);
  return found == jobs_.end() ? nullptr : &found->second;
}

void OrderedJobs::finish_current() {
  const auto found = jobs_.find(next_);
  if (found == jobs_.end()) return;
  bytes_ -= found->second.bytes;
  jobs_.erase(found);
  ++next_;
  advance();
  idle_since_ = 0;
}

std::optional<Job> OrderedJobs::cancel(const std::string& future) {
  const auto found =
      std::ranges::find_if(jobs_, [&](const auto& one) { return one.second.future == future; });
  if (found == jobs_.end()) return std::nullopt;
  const int64_t seq = found->first;
  Job job = std::move(found->second);
  bytes_ -= job.bytes;
  jobs_.erase(found);
  seen_[seq].cancelled = true;
  number_is_used();
  return job;
}

std::vector<Job> OrderedJobs::clear() {
  std::vector<Job> all;
  for (auto& [seq, job] : jobs_) all.push_back(std::move(job));
  jobs_.clear();
  bytes_ = 0;
  next_ = last_ + 1;
  return all;
}

std::vector<Job> OrderedJobs::take_stuck(double now, double gap_seconds) {
  if (jobs_.empty() || current()) {
    idle_since_ = now;
    return {};
  }
  if (idle_since_ == 0) idle_since_ = now;
  return now - idle_since_ > gap_seconds ? clear() : std::vector<Job>();
}

}  // namespace temper::tinker
