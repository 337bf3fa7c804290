#include "temper/metrics/sinks/tfevents.h"

#include <array>
#include <cstring>

#include "temper/metrics/sinks/protobuf.h"

namespace temper {
namespace {

using protobuf::bytes_field;
using protobuf::int_field;
using protobuf::key;
using protobuf::kFixed32;
using protobuf::kFixed64;
using protobuf::little_endian;

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0);
    table[i] = crc;
  }
  return table;
}

// Event: wall_time = 1, step = 2, and one of file_version = 3, summary = 5, session_log = 7.
std::string event(double wall_time, int64_t step, uint32_t field, std::string_view what) {
  return key(1, kFixed64) + little_endian(wall_time) + int_field(2, step) +
         bytes_field(field, what);
}

// TFRecord masks its checksums, so that the checksum of data that holds checksums is no fixed
// point.
std::string masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return little_endian<uint32_t>(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_crc_table();
  uint32_t crc = ~0u;
  for (const char c : bytes)
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

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
  return event(wall_time, step, 7, int_field(1, 1));  // SessionLog: status = 1, START = 1
}

std::string scalar_event(double wall_time, int64_t step,
                         std::span<const std::pair<std::string, float>> scalars) {
  std::string summary;  // Summary: repeated Value = 1 { tag = 1, simple_value = 2 }
  for (const auto& [tag, value] : scalars)
    summary += bytes_field(1, bytes_field(1, tag) + key(2, kFixed32) + little_endian(value));
  return event(wall_time, step, 5, summary);
}

ScalarEvent read_scalar_event(std::string_view event) {
  ScalarEvent out;
  protobuf::Reader fields(event);
  while (const auto field = fields.next()) {
    if (field->number == 2) out.step = static_cast<int64_t>(field->value);
    if (field->number != 5 || field->type != protobuf::kBytes) continue;
    protobuf::Reader values(field->bytes);
    while (const auto value = values.next()) {
      protobuf::Reader parts(value->bytes);
      while (const auto part = parts.next())
        if (part->number == 1 && part->type == protobuf::kBytes) out.tags.emplace_back(part->bytes);
    }
  }
  return out;
}

}  // namespace temper
