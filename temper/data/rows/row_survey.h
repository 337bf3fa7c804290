// Reads the rows of a run once before they are trained on: finds the first wrong one early, and
// counts those that will be left out.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "temper/data/loader.h"

namespace temper::data {

// Rows up to so many bytes (unpacked) are read; of larger data the first part of each source.
inline constexpr int64_t kSurveyBytes = int64_t{1} << 30;

struct SurveyOptions {
  int64_t max_bytes = kSurveyBytes;
  int threads = 0;  // 0: half of the machine's, at most 8
};

// Runs in threads of its own beside whatever else happens. What `order` refers to must outlive it.
class RowSurveyor {
 public:
  // The number of tokens of a drawn row, nullopt where it is left out; counts as Loader::Read does.
  // Called in several threads at once.
  using Count = std::function<std::optional<int64_t>(const RowOrder::Drawn&, LoaderState&)>;

  RowSurveyor(const RowOrder& order, Count count, SurveyOptions options = {});
  ~RowSurveyor();  // stops it
  RowSurveyor(const RowSurveyor&) = delete;
  RowSurveyor& operator=(const RowSurveyor&) = delete;

  // What a reader of rows (sft_reader, prompt_reader) counts.
  template <class Row>
  static Count counting(typename Loader<Row>::Read read) {
    return [read = std::move(read)](const RowOrder::Drawn& drawn, LoaderState& state) {
      const std::optional<Row> row = read(drawn, state);
      if (!row) return std::optional<int64_t>();
      if constexpr (requires { row->num_tokens(); })
        return std::optional<int64_t>(row->num_tokens());
      else
        return std::optional<int64_t>(static_cast<int64_t>(row->tokens.size()));
    };
  }

  bool done() const { return running_ == 0; }
  void stop() { stop_ = true; }
  // Waits for the end. Throws what is wrong with the first wrong row, in the order of the sources
  // and of their rows. After stop() the survey is not complete.
  RowSurvey result();

 private:
  void read_rows();
  void join();

  const RowOrder& order_;
  Count count_;
  std::vector<int64_t> first_;  // of each source, the number of rows to read before its own
  int64_t planned_ = 0;         // rows to read
  std::atomic<int64_t> next_ = 0;
  std::atomic<int64_t> bound_;  // rows from here on need not be read
  std::atomic<bool> stop_ = false;
  std::atomic<int> running_ = 0;
  std::mutex mutex_;  // guards what follows
  RowSurvey found_;
  std::exception_ptr problem_;
  int64_t problem_row_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace temper::data
