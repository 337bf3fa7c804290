// train.memory_limit: the resident memory that a rank may take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "temper/train/config.h"
#include "temper/train/run/agreed_error.h"

namespace temper::train {

// A rank has had more resident memory than train.memory_limit allows. The last whole step is saved.
struct MemoryExceeded : AgreedError {
  using AgreedError::AgreedError;
};

// The bytes of "12000000000", "12GB" (10^9), "12GiB" (2^30), "1.5 TB". Throws ConfigError that
// begins with `where`.
int64_t parse_bytes(std::string_view text, const std::string& where);

// The limit in bytes; none: there is no limit.
std::optional<int64_t> memory_limit(const RunConfig& config);

// Holds train.memory_limit against the peak of this process's resident memory so far, which the
// system keeps: a peak that has gone by is seen as well.
class MemoryWatch {
 public:
  explicit MemoryWatch(const TrainSection& section);
  bool has_limit() const { return limit_.has_value(); }
  bool exceeded() const;
  // Throws MemoryExceeded, on all ranks that train; `when` begins the message.
  [[noreturn]] void fail(const std::string& when) const;
  // Throws that where the limit is exceeded and this is the run's only rank: of several, all must
  // throw at the same place.
  void check(const std::string& when) const;

 private:
  std::string text_;
  std::optional<int64_t> limit_;
  bool alone_;
};

// Whether a rank's resident memory may become so large for a copy of the state: within nine tenths
// of its share of this machine's memory, and within train.memory_limit.
bool fits_for_copies(int64_t bytes, const RunConfig& config);

}  // namespace temper::train
