#include "temper/data/rows/row_survey.h"

#include <algorithm>

namespace temper::data {
namespace {

constexpr int64_t kBlock = 64;  // rows that a thread takes at once
constexpr int kMostThreads = 8;

// The rows from the source's first on that make up `max_bytes`.
int64_t rows_within(const RowSet& rows, int64_t max_bytes) {
  int64_t bytes = 0;
  for (int64_t row = 0; row < rows.size(); ++row) {
    bytes += rows.row_bytes(row);
    if (bytes > max_bytes) return row;
  }
  return rows.size();
}

}  // namespace

RowSurveyor::RowSurveyor(const RowOrder& order, Count count, SurveyOptions options)
    : order_(order), count_(std::move(count)) {
  const auto sources = static_cast<int64_t>(order.sources().size());
  for (int64_t s = 0; s < sources; ++s) {
    first_.push_back(planned_);
    const RowSet& rows = order.rows_of(static_cast<size_t>(s));
    planned_ += rows_within(rows, options.max_bytes / sources);
  }
  bound_ = planned_;
  found_.dropped_rows.resize(static_cast<size_t>(sources));
  int count_of_threads = options.threads;
  if (count_of_threads <= 0)
    count_of_threads =
        std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 1, kMostThreads);
  running_ = count_of_threads;
  for (int i = 0; i < count_of_threads; ++i) threads_.emplace_back([this] { read_rows(); });
}

RowSurveyor::~RowSurveyor() {
  stop();
  join();
}

void RowSurveyor::join() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void RowSurveyor::read_rows() {
  RowSurvey mine;
  mine.dropped_rows.resize(first_.size());
  LoaderState state;
  state.notices.emplace();
  for (int64_t begin = 0; !stop_ && (begin = next_.fetch_add(kBlock)) < bound_;) {
    for (int64_t i = begin; i < std::min<int64_t>(begin + kBlock, bound_) && !stop_; ++i) {
      const auto source = static_cast<size_t>(std::upper_bound(first_.begin(), first_.end(), i) -
                                              first_.begin() - 1);
      const RowOrder::Drawn drawn{&order_.rows_of(source), i - first_[source]};
      state.draws = i;  // the row's number, for notices
      try {
        ++mine.rows;
        if (const std::optional<int64_t> tokens = count_(drawn, state))
          mine.tokens += *tokens;
        else
          mine.dropped_rows[source].push_back(drawn.row);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!problem_ || i < problem_row_) {
          problem_ = std::current_exception();
          problem_row_ = i;
          bound_ = i;  // an earlier row may be wrong too
        }
      }
    }
  }
  const std::lock_guard lock(mutex_);
  found_.rows += mine.rows;
  found_.tokens += mine.tokens;
  found_.truncated += state.truncated;
  found_.untrained += state.untrained;
  found_.with_eos += state.with_eos;
  found_.notices.add(*state.notices);
  for (size_t s = 0; s < first_.size(); ++s) {
    found_.dropped += static_cast<int64_t>(mine.dropped_rows[s].size());
    found_.dropped_rows[s].insert(found_.dropped_rows[s].end(), mine.dropped_rows[s].begin(),
                                  mine.dropped_rows[s].end());
  }
  --running_;
}

RowSurvey RowSurveyor::result() {
  join();
  if (problem_) std::rethrow_exception(problem_);
  for (std::vector<int64_t>& rows : found_.dropped_rows) std::sort(rows.begin(), rows.end());
  found_.complete = found_.rows == order_.rows();
  found_.notices.held_out = about_held_out(order_);
  return found_;
}

}  // namespace temper::data
