// The rows of several sources, one after the other, and passes over them in several threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "temper/base/json.h"
#include "temper/data/read/row_set.h"

namespace temper::data {

// Thread-safe.
class RowList {
 public:
  // Sources as data.train has them: files, directories, patterns, ids of data sets. Throws as
  // RowSet does, and ConfigError for one file that is named twice.
  explicit RowList(const std::vector<std::string>& sources,
                   std::map<std::string, std::string> columns = {});

  int64_t size() const { return size_; }
  int64_t bytes() const;  // of all lines, unpacked
  std::vector<std::string> files() const;
  std::string where(int64_t row) const;  // "FILE:LINE"
  const std::string& file(int64_t row) const;
  std::string line(int64_t row) const;  // its text, without the end of the line
  Json row(int64_t row) const;          // as it is in the file
  // The row with the fields renamed as `columns` says: {prompt: question}. The file's own fields
  // stay, unless `only_new`.
  Json renamed(int64_t row, bool only_new = false) const;

 private:
  size_t set_of(int64_t row) const;
  std::vector<std::unique_ptr<RowSet>> sets_;
  std::vector<int64_t> first_;  // of each set, the number of rows before it
  std::map<std::string, std::string> columns_;
  int64_t size_ = 0;
};

// Calls `compute(i)` for i in [0, n), in several threads at once, and `consume(i, result)` in the
// caller's, in order. What `compute` throws is thrown when its turn comes, so that the first wrong
// row is the one that is named. Results of a few thousand rows are held at once.
template <class Compute, class Consume>
void each_in_order(int64_t n, const Compute& compute, const Consume& consume, int threads = 0) {
  constexpr int64_t kBlock = 512;
  constexpr unsigned kMostThreads = 8;
  using Result = decltype(compute(int64_t{0}));
  struct Block {
    std::vector<Result> results;
    std::exception_ptr problem;
  };
  if (threads <= 0)
    threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads));
  for (int64_t begin = 0; begin < n;) {
    std::vector<Block> blocks(static_cast<size_t>(threads));
    std::vector<std::thread> running;
    for (int t = 0; t < threads; ++t)
      running.emplace_back([&, t] {
        Block& block = blocks[static_cast<size_t>(t)];
        const int64_t from = begin + t * kBlock;
        try {
          for (int64_t i = from; i < std::min(n, from + kBlock); ++i)
            block.results.push_back(compute(i));
        } catch (...) {
          block.problem = std::current_exception();
        }
      });
    for (std::thread& thread : running) thread.join();
    for (Block& block : blocks) {
      for (Result& result : block.results) consume(begin++, std::move(result));
      if (block.problem) std::rethrow_exception(block.problem);
    }
  }
}

}  // namespace temper::data
