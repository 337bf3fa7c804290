#include "temper/metrics/sinks/protobuf.h"

namespace temper::protobuf {

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

std::string key(uint32_t field, WireType type) { return varint(field << 3 | type); }

std::string bytes_field(uint32_t field, std::string_view bytes) {
  return key(field, kBytes) + varint(bytes.size()) + std::string(bytes);
}

std::string int_field(uint32_t field, int64_t value) {
  return value == 0 ? "" : key(field, kVarint) + varint(static_cast<uint64_t>(value));
}

std::optional<uint64_t> Reader::read_varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  broken_ = true;
  return {};
}

std::optional<std::string_view> Reader::take(uint64_t size) {
  if (size > rest_.size()) {
    broken_ = true;
    return {};
  }
  const std::string_view bytes = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return bytes;
}

std::optional<Reader::Field> Reader::next() {
  if (broken_ || rest_.empty()) return {};
  const auto tag = read_varint();
  if (!tag) return {};
  Field field{static_cast<uint32_t>(*tag >> 3), static_cast<WireType>(*tag & 7), 0, {}};
  if (field.type == kVarint) {
    const auto value = read_varint();
    if (!value) return {};
    field.value = *value;
    return field;
  }
  uint64_t size = field.type == kFixed64 ? 8 : 4;
  if (field.type == kBytes) {
    const auto length = read_varint();
    if (!length) return {};
    size = *length;
  } else if (field.type != kFixed64 && field.type != kFixed32) {
    broken_ = true;
    return {};
  }
  const auto bytes = take(size);
  if (!bytes) return {};
  field.bytes = *bytes;
  return field;
}

}  // namespace temper::protobuf
