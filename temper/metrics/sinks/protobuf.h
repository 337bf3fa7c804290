// Protocol buffers' wire format (protobuf.dev/programming-guides/encoding), as far as the files of
// TensorBoard and W&B need it: messages are put together field by field.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace temper::protobuf {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <class T>
std::string little_endian(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

std::string varint(uint64_t value);
std::string key(uint32_t field, WireType type);
// A string or a message.
std::string bytes_field(uint32_t field, std::string_view bytes);
// Empty for 0, which is not written.
std::string int_field(uint32_t field, int64_t value);

// The fields of a message in their order. Whoever reads checks `broken` at the end: the bytes were
// no message.
class Reader {
 public:
  struct Field {
    uint32_t number;
    WireType type;
    uint64_t value;          // value of a kVarint field
    std::string_view bytes;  // bytes of a kBytes field
  };
  explicit Reader(std::string_view message) : rest_(message) {}
  std::optional<Field> next();
  bool broken() const { return broken_; }

 private:
  std::optional<uint64_t> read_varint();
  std::optional<std::string_view> take(uint64_t size);
  std::string_view rest_;
  bool broken_ = false;
};

}  // namespace temper::protobuf
