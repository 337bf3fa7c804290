#include "temper/metrics/sinks/tfevents.h"

#include <cstring>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>

#include "temper/metrics/sinks/crc32c.h"
#include "temper/metrics/sinks/little_endian.h"

namespace temper {
namespace {

using protozero::pbf_wire_type;
using protozero::tag_and_type;

// Event: wall_time = 1, step = 2, and one of file_version = 3, summary = 5, session_log = 7.
std::string event(double wall_time, int64_t step, uint32_t field, std::string_view what) {
  std::string out;
  protozero::pbf_writer message(out);
  message.add_double(1, wall_time);
  if (step != 0) message.add_int64(2, step);
  message.add_bytes(field, what.data(), what.size());
  return out;
}

std::string masked_crc(std::string_view bytes) {
  return little_endian<uint32_t>(masked_crc32c(bytes));
}

}  // namespace

std::string tf_record(std::string_view bytes) {
  const std::string length = little_endian<uint64_t>(bytes.size());
  return length + masked_crc(length) + std::string(bytes) + masked_crc(bytes);
}

std::vector<std::string> read_tf_records(std::string_view file) {
  constexpr size_t kLength = sizeof(uint64_t), kSum = sizeof(uint32_t);
  std::vector<std::string> records;
  while (file.size() >= kLength + 2 * kSum) {
    uint64_t size = 0;
    std::memcpy(&size, file.data(), kLength);
    const std::string_view rest = file.substr(kLength + kSum);
    const bool begins = file.substr(kLength, kSum) == masked_crc(file.substr(0, kLength)) &&
                        size <= rest.size() - kSum;
    const std::string_view bytes = begins ? rest.substr(0, size) : std::string_view();
    if (begins && rest.substr(size, kSum) == masked_crc(bytes)) {
      records.emplace_back(bytes);
      file = rest.substr(size + kSum);
    } else {
      file.remove_prefix(1);  // behind damage the next record begins where its length is whole
    }
  }
  return records;
}

std::string version_event(double wall_time) { return event(wall_time, 0, 3, "brain.Event:2"); }

std::string session_start_event(double wall_time, int64_t step) {
  std::string log;
  protozero::pbf_writer(log).add_enum(1, 1);  // SessionLog: status = 1, START = 1
  return event(wall_time, step, 7, log);
}

std::string scalar_event(double wall_time, int64_t step,
                         std::span<const std::pair<std::string, float>> scalars) {
  std::string summary;  // Summary: repeated Value = 1 { tag = 1, simple_value = 2 }
  protozero::pbf_writer message(summary);
  for (const auto& [tag, value] : scalars) {
    protozero::pbf_writer of_tag(message, 1);
    of_tag.add_string(1, tag);
    of_tag.add_float(2, value);
  }
  return event(wall_time, step, 5, summary);
}

std::string histogram_event(double wall_time, int64_t step, const std::string& tag,
                            const Histogram& histogram) {
  // HistogramProto: min = 1, max, num, sum, sum_squares, bucket_limit = 6 (right edges), bucket
  std::string proto;
  protozero::pbf_writer fields(proto);
  double count = 0;
  for (const int64_t n : histogram.counts) count += static_cast<double>(n);
  fields.add_double(1, histogram.min);
  fields.add_double(2, histogram.max);
  fields.add_double(3, count);
  fields.add_double(4, histogram.sum);
  fields.add_double(5, histogram.sum_squares);
  const std::vector<double> counts(histogram.counts.begin(), histogram.counts.end());
  if (!counts.empty())
    fields.add_packed_double(6, histogram.edges.begin() + 1, histogram.edges.end());
  fields.add_packed_double(7, counts.begin(), counts.end());
  std::string summary;  // Summary: repeated Value = 1 { tag = 1, histo = 5 }
  protozero::pbf_writer message(summary);
  {
    protozero::pbf_writer of_tag(message, 1);
    of_tag.add_string(1, tag);
    of_tag.add_message(5, proto);
  }
  return event(wall_time, step, 5, summary);
}

ScalarEvent read_scalar_event(std::string_view event) {
  ScalarEvent out;
  try {
    for (protozero::pbf_reader fields(event.data(), event.size()); fields.next();) {
      switch (fields.tag_and_type()) {
        case tag_and_type(2, pbf_wire_type::varint):
          out.step = fields.get_int64();
          break;
        case tag_and_type(5, pbf_wire_type::length_delimited):
          for (auto summary = fields.get_message();
               summary.next(1, pbf_wire_type::length_delimited);)
            for (auto value = summary.get_message();
                 value.next(1, pbf_wire_type::length_delimited);)
              out.tags.push_back(value.get_string());
          break;
        default:
          fields.skip();
      }
    }
  } catch (const protozero::exception&) {  // no message: what it began with
  }
  return out;
}

}  // namespace temper
