// TensorBoard's event files: TFRecords of Event messages (tensorboard/compat/proto/event.proto),
// written and read by hand as four shapes of message are all that is needed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "temper/metrics/histogram.h"

namespace temper {

// Length, its masked checksum, the bytes, their masked checksum.
std::string tf_record(std::string_view bytes);
// The bytes of a file's records, without those that are damaged or half-written.
std::vector<std::string> read_tf_records(std::string_view file);

// The first event of a file.
std::string version_event(double wall_time);
// Tells a reader to forget events of this step and later ones in earlier files.
std::string session_start_event(double wall_time, int64_t step);
std::string scalar_event(double wall_time, int64_t step,
                         std::span<const std::pair<std::string, float>> scalars);

std::string histogram_event(double wall_time, int64_t step, const std::string& tag,
                            const Histogram& histogram);

// What an event of scalars or of a histogram is of; no tags: another event.
struct ScalarEvent {
  int64_t step = 0;
  std::vector<std::string> tags = {};
};
ScalarEvent read_scalar_event(std::string_view event);

}  // namespace temper
