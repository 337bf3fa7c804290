// The rows of each step, in an order that is a function of the seed and of how many rows were drawn before.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/data/row_file.h"
#include "temper/data/sft_row.h"

namespace temper::data {

struct SourceSpec {
  std::string path;
  double weight = 1;
  std::string name;
};

struct LoaderOptions {
  int64_t batch_size = 8;
  bool shuffle = true;
  uint64_t seed = 0;
  std::optional<double> epochs;  // ends after so many passes; none: goes around for ever
};

// Everything that decides what comes next.
struct LoaderState {
  int64_t draws = 0;               // rows drawn so far, dropped ones included
  std::vector<int64_t> counts;     // of each source
  int64_t truncated = 0, dropped = 0, untrained = 0;  // rows cut, left out, or without a trained token
  int64_t with_eos = 0, rows = 0;  // rows that train an end token; rows given

  Json to_json() const;
  static LoaderState from_json(const Json& json, const std::string& where);
};

// Sources are interleaved by largest deficit: the next row comes from the source that lags most behind its share, so that
// realised shares never drift. Shares are proportional to the weights, or, where all weights are equal, to the sources'
// rows, so that a pass over the data sees each row once. Within a source rows follow a permutation keyed by (seed, source,
// pass), or the file's order.
class Loader {
 public:
  Loader(const std::vector<SourceSpec>& sources, SftFormat format, LoaderOptions options);
  ~Loader();

  // The next step's rows: batch_size, fewer at the end of a pass when epochs are counted, none at the very end. They are
  // read and tokenized in the background while the step before is computed. Errors of rows are thrown here.
  std::vector<SftRow> next();

  // The state after the rows that next() gave last; restore() goes on from there to the same rows.
  const LoaderState& state() const { return state_; }
  void restore(LoaderState state);

  int64_t rows() const { return total_rows_; }
  // Steps of a run of so many epochs, if no row is dropped.
  int64_t steps(double epochs) const;
  const std::vector<SourceSpec>& sources() const { return specs_; }

 private:
  struct Step {
    std::vector<SftRow> rows;
    LoaderState state;
  };
  Step load(LoaderState state) const;
  size_t choose_source(const LoaderState& state) const;

  std::vector<SourceSpec> specs_;
  std::vector<std::unique_ptr<RowFile>> files_;
  std::vector<double> share_;
  SftFormat format_;
  LoaderOptions options_;
  int64_t total_rows_ = 0;
  LoaderState state_;
  std::future<Step> ahead_;
};

// Micro-batches of a step: rows by their lengths into passes of at most max_tokens (best fit, longest first; a longer row
// alone), rows of a pass in their own order. Deterministic.
std::vector<std::vector<size_t>> pack_rows(const std::vector<int64_t>& lengths, int64_t max_tokens);

// Shares a step's rows among ranks so that each has about as many tokens. Deterministic.
std::vector<std::vector<size_t>> split_rows(const std::vector<int64_t>& lengths, int64_t ranks);

}  // namespace temper::data
