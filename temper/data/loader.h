// The rows of each step, in an order that is a function of the seed and of how many rows were drawn
// before.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "temper/base/error.h"
#include "temper/data/read/row_set.h"
#include "temper/data/rows/row_notices.h"
#include "temper/data/rows/sft_row.h"

namespace temper::data {

struct LoaderOptions {
  int64_t batch_size = 8;
  bool shuffle = true;
  uint64_t seed = 0;
  std::optional<double> epochs;  // ends after so many passes; none: goes around for ever
  // A pass's last rows, where they are fewer than this (at most batch_size), join the step before.
  int64_t smallest_batch = 1;
};

// Everything that decides what comes next.
struct LoaderState {
  int64_t draws = 0;            // rows drawn so far, dropped ones included
  std::vector<int64_t> counts;  // of each source
  int64_t truncated = 0, dropped = 0,
          untrained = 0;                   // rows cut, left out, or without a trained token
  int64_t with_eos = 0, rows = 0;          // rows that train an end token; rows given
  int64_t batches = 0;                     // calls of next() that gave rows
  std::optional<RowNotices> notices = {};  // counted where there are some; not kept in checkpoints

  Json to_json() const;
  static LoaderState from_json(const Json& json, const std::string& where);
};

// What reading rows before they are drawn found (row_survey.h).
struct RowSurvey {
  int64_t rows = 0;                                    // read, those left out included
  int64_t tokens = 0;                                  // of the rows that are given
  int64_t dropped = 0;                                 // rows left out
  int64_t truncated = 0, untrained = 0, with_eos = 0;  // as in LoaderState
  RowNotices notices = {};
  bool complete = false;                           // these are all rows of all sources
  std::vector<std::vector<int64_t>> dropped_rows;  // of each source, ascending
};

// Which row is drawn when. Sources are interleaved by largest deficit: the next row comes from the
// source that lags most behind its share, so that realised shares never drift. Shares are
// proportional to the weights, or, where no source has one, to the sources' rows, so that a pass
// over the data sees each row once. Within a source rows follow a permutation keyed by (seed,
// source, pass), or the file's order.
class RowOrder {
 public:
  RowOrder(std::vector<SourceSpec> sources, LoaderOptions options);

  struct Drawn {
    const RowSet* file;
    int64_t row;
  };
  // Draws one row and counts it in `state`; none at the end of the epochs, or, where `begun`, of a
  // pass.
  std::optional<Drawn> draw(LoaderState& state, bool begun) const;

  int64_t rows() const { return total_rows_; }
  int64_t split_rows() const;  // RowSet::split_rows of all sources
  // The steps of a run of so many epochs in which no row is left out, and the same where the survey
  // found that some are: exact where it is complete (and the draws of several sources are at most
  // 1e8); else rows are left out in the proportion of those that the survey read.
  int64_t steps(double epochs) const;
  int64_t steps(double epochs, const RowSurvey& survey) const;
  // Their names are those of the specs, or paths; a number is added to one that is taken.
  const std::vector<SourceSpec>& sources() const { return specs_; }
  const RowSet& rows_of(size_t source) const { return *sets_[source]; }
  const LoaderOptions& options() const { return options_; }

 private:
  size_t choose_source(const LoaderState& state) const;
  // The source and its row that come next; counts them in `state`.
  std::pair<size_t, int64_t> choose_row(LoaderState& state) const;
  int64_t draws(double epochs) const;
  int64_t steps_of(int64_t rows) const;  // of a pass that gives so many rows

  std::vector<SourceSpec> specs_;
  std::vector<std::unique_ptr<RowSet>> sets_;
  std::vector<double> share_;
  LoaderOptions options_;
  int64_t total_rows_ = 0;
};

// RowSet::about_held_out of all sources.
std::string about_held_out(const RowOrder& order);

// What is wrong with rows of which none is given; after their path.
inline constexpr const char* kAllLeftOut =
    ": every row is left out: it is longer than data.max_length and data.overlong is drop, or its "
    "prompt alone fills data.max_length";

// The rows of each step. They are read (and tokenized) in the background while the step before is
// computed; what is wrong with a row is thrown by next().
template <class Row>
class Loader {
 public:
  // Makes a row of a drawn one, counting what it did in the state; none: the row is left out.
  // Called in the background.
  using Read = std::function<std::optional<Row>(const RowOrder::Drawn& drawn, LoaderState& state)>;

  Loader(std::vector<SourceSpec> sources, LoaderOptions options, Read read)
      : order_(std::move(sources), options), read_(std::move(read)) {
    state_.counts.assign(order_.sources().size(), 0);
  }
  ~Loader() { forget(); }

  // The next rows: `count` of them, fewer (or, with smallest_batch, a few more) at the end of a
  // pass when epochs are counted, none at the very end.
  std::vector<Row> next(int64_t count) {
    if (ahead_.valid() && ahead_count_ != count) forget();
    Step step = ahead_.valid() ? ahead_.get() : load(state_, count);
    state_ = std::move(step.state);
    ahead_count_ = count;
    if (!step.rows.empty())
      ahead_ = std::async(std::launch::async,
                          [this, count, state = state_] { return load(state, count); });
    return std::move(step.rows);
  }
  std::vector<Row> next() { return next(order_.options().batch_size); }

  // The state after the rows that next() gave last; restore() goes on from there to the same rows.
  const LoaderState& state() const { return state_; }
  void restore(LoaderState state) {
    check<DataError>(state.counts.size() == order_.sources().size(),
                     "the checkpoint was made with ", state.counts.size(),
                     " data sources, data.train has ", order_.sources().size());
    int64_t drawn = 0;
    for (const int64_t count : state.counts) {
      check<DataError>(
          count >= 0 && count <= state.draws - drawn,
          "the checkpoint's data position is inconsistent: rows drawn of each source do not add "
          "up to the ",
          state.draws, " drawn in all");
      drawn += count;
    }
    check<DataError>(drawn == state.draws && state.rows >= 0 && state.rows <= drawn,
                     "the checkpoint's data position is inconsistent: ", state.draws,
                     " rows drawn, ", drawn, " of all sources, ", state.rows, " given");
    forget();
    state_ = std::move(state);
  }
  const RowOrder& order() const { return order_; }

 private:
  struct Step {
    std::vector<Row> rows;
    LoaderState state;
  };

  Step load(LoaderState state, int64_t count) const {
    Step step{{}, std::move(state)};
    add_rows(step, count, false);
    join_short_rest(step);
    step.state.batches += !step.rows.empty();
    return step;
  }

  // Up to `count` rows; `begun`: of this pass alone.
  void add_rows(Step& step, int64_t count, bool begun) const {
    LoaderState& state = step.state;
    int64_t drawn_in_vain = 0;
    while (static_cast<int64_t>(step.rows.size()) < count) {
      std::optional<RowOrder::Drawn> drawn = order_.draw(state, begun || !step.rows.empty());
      if (!drawn) {
        check<DataError>(state.rows > 0 || state.dropped == 0 || !step.rows.empty(),
                         order_.sources()[0].path, kAllLeftOut);
        break;
      }
      std::optional<Row> row = read_(*drawn, state);
      if (!row) {
        ++state.dropped;
        check<DataError>(++drawn_in_vain <= order_.rows(), drawn->file->path(), kAllLeftOut);
        continue;
      }
      drawn_in_vain = 0;
      ++state.rows;
      step.rows.push_back(std::move(*row));
    }
  }

  void join_short_rest(Step& step) const {
    const int64_t smallest = order_.options().smallest_batch;
    if (smallest < 2 || !order_.options().epochs || step.rows.empty()) return;
    Step rest{{}, step.state};
    add_rows(rest, smallest, true);
    if (static_cast<int64_t>(rest.rows.size()) >= smallest) return;  // a step of their own
    for (Row& row : rest.rows) step.rows.push_back(std::move(row));
    step.state = std::move(rest.state);
  }

  void forget() {
    if (ahead_.valid()) ahead_.wait();
    ahead_ = {};
  }

  RowOrder order_;
  Read read_;
  LoaderState state_;
  std::future<Step> ahead_;
  int64_t ahead_count_ = 0;
};

// A row by itself, as a loader's reader (Loader::Read) makes it; none: it is left out.
template <class Read>
auto read_one(const Read& read, const RowSet& set, int64_t row) {
  LoaderState uncounted;
  return read({&set, row}, uncounted);
}

// Counts a row that a reader gives, `json` as the file has it, in the state's notices, if any.
void add_notices(LoaderState& state, const TextFormat& format, const Json& json,
                 const RowOrder::Drawn& drawn);

// The reader of supervised rows for a Loader, and, with Overlong::kSplit, what a source's rows
// become (SourceSpec::pieces); otherwise empty.
Loader<SftRow>::Read sft_reader(SftFormat format);
Pieces sft_pieces(SftFormat format);

// Micro-batches of a step: rows by their lengths into passes of at most max_tokens (best fit,
// longest first; a longer row alone), rows of a pass in their own order. Deterministic.
std::vector<std::vector<size_t>> pack_rows(const std::vector<int64_t>& lengths, int64_t max_tokens);

// Shares a step's rows among ranks so that each has about as many tokens. Deterministic.
std::vector<std::vector<size_t>> split_rows(const std::vector<int64_t>& lengths, int64_t ranks);

}  // namespace temper::data
