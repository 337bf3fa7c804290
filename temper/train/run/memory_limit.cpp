#include "temper/train/run/memory_limit.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/dist/environment.h"

namespace temper::train {

int64_t parse_bytes(std::string_view text, const std::string& where) {
  static constexpr std::array<std::pair<std::string_view, double>, 9> kBytesOf{{{"", 1},
                                                                                {"kB", 1e3},
                                                                                {"MB", 1e6},
                                                                                {"GB", 1e9},
                                                                                {"TB", 1e12},
                                                                                {"KiB", 0x1p10},
                                                                                {"MiB", 0x1p20},
                                                                                {"GiB", 0x1p30},
                                                                                {"TiB", 0x1p40}}};
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  const auto* const found = std::find_if(kBytesOf.begin(), kBytesOf.end(),
                                         [&](const auto& known) { return known.first == unit; });
  check<ConfigError>(error == std::errc() && found != kBytesOf.end() && std::isfinite(value) &&
                         value * found->second >= 1 && value * found->second < 1e18,
                     where, ": found `", text,
                     "`, expected a number of bytes, perhaps with a unit: 12GB, 12GiB, 800MB");
  return std::llround(value * found->second);
}

std::optional<int64_t> memory_limit(const RunConfig& config) {
  if (!config.train.memory_limit) return {};
  return parse_bytes(*config.train.memory_limit, config.where("train.memory_limit"));
}

MemoryWatch::MemoryWatch(const TrainSection& section)
    : text_(section.memory_limit.value_or("")), alone_(dist::read_environment().size == 1) {
  if (section.memory_limit) limit_ = parse_bytes(text_, "train.memory_limit");
}

bool MemoryWatch::exceeded() const {
  return limit_ && most_memory_bytes() > *limit_ && peak_memory_bytes() > *limit_;
}

void MemoryWatch::fail(const std::string& when) const {
  throw MemoryExceeded(str(when, ": a rank's resident memory is, or was, more than ",
                           "train.memory_limit, ", text_, "; this rank's peak is ",
                           peak_memory_bytes() / 1'000'000, " MB"));
}

void MemoryWatch::check(const std::string& when) const {
  if (alone_ && exceeded()) fail(when);
}

bool fits_for_copies(int64_t bytes, const RunConfig& config) {
  const std::optional<int64_t> limit = memory_limit(config);
  return bytes <= usable_memory_bytes() / ranks_on_machine().value_or(1) / 10 * 9 &&
         (!limit || bytes <= *limit);
}

}  // namespace temper::train
