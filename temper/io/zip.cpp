#include "temper/io/zip.h"

#include <cstdint>
#include <cstring>

#include "temper/base/error.h"

namespace temper {
namespace {
struct ZipReader {
  std::span<const std::byte> bytes;
  const std::string& where;

  template <class T>
  T at(size_t offset) const {
    check<DataError>(offset <= bytes.size() && bytes.size() - offset >= sizeof(T), where,
                     ": zip archive cut short at byte ", offset);
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  }
  std::span<const std::byte> range(uint64_t offset, uint64_t size) const {
    check<DataError>(offset <= bytes.size() && size <= bytes.size() - offset, where,
                     ": zip entry at byte ", offset, " of ", size, " bytes lies outside the file");
    return bytes.subspan(offset, size);
  }
};

// The end record stands in the last 64 KiB + 22 bytes.
size_t find_end(const ZipReader& in) {
  check<DataError>(in.bytes.size() >= 22, in.where, ": not a zip archive");
  const size_t lowest = in.bytes.size() > 65557 ? in.bytes.size() - 65557 : 0;
  for (size_t at = in.bytes.size() - 22 + 1; at-- > lowest;)
    if (in.at<uint32_t>(at) == 0x06054b50) return at;
  throw DataError(in.where + ": zip archive without an end record; it may be truncated");
}
}  // namespace

std::map<std::string, std::span<const std::byte>> stored_entries(std::span<const std::byte> archive,
                                                                 const std::string& where) {
  const ZipReader in{archive, where};
  const size_t end = find_end(in);
  uint64_t count = in.at<uint16_t>(end + 10), at = in.at<uint32_t>(end + 16);
  if (end >= 20 && in.at<uint32_t>(end - 20) == 0x07064b50) {
    const uint64_t record = in.at<uint64_t>(end - 20 + 8);
    check<DataError>(record <= archive.size() && in.at<uint32_t>(record) == 0x06064b50, where,
                     ": bad zip64 end record");
    count = in.at<uint64_t>(record + 32);
    at = in.at<uint64_t>(record + 48);
  }
  std::map<std::string, std::span<const std::byte>> entries;
  for (uint64_t i = 0; i < count; ++i) {
    check<DataError>(in.at<uint32_t>(at) == 0x02014b50, where, ": bad zip directory entry ", i);
    const uint16_t flags = in.at<uint16_t>(at + 8), method = in.at<uint16_t>(at + 10);
    uint64_t packed = in.at<uint32_t>(at + 20), size = in.at<uint32_t>(at + 24),
             local = in.at<uint32_t>(at + 42);
    const size_t name_size = in.at<uint16_t>(at + 28), extra_size = in.at<uint16_t>(at + 30),
                 comment = in.at<uint16_t>(at + 32);
    const auto name_bytes = in.range(at + 46, name_size);
    const std::string name(reinterpret_cast<const char*>(name_bytes.data()), name_size);
    // zip64's extra field replaces the sizes that do not fit, in this order.
    for (size_t x = at + 46 + name_size, stop = x + extra_size; x + 4 <= stop;) {
      const uint16_t id = in.at<uint16_t>(x), field_size = in.at<uint16_t>(x + 2);
      size_t field = x + 4;
      if (id == 1) {
        for (uint64_t* value : {&size, &packed, &local}) {
          if (*value != 0xffffffffu) continue;
          *value = in.at<uint64_t>(field);
          field += 8;
        }
      }
      x += 4 + size_t{field_size};
    }
    check<DataError>(method == 0 && (flags & 1) == 0 && packed == size, where, ": zip entry `",
                     name,
                     "` is compressed or encrypted; "
                     "torch.save writes neither");
    check<DataError>(in.at<uint32_t>(local) == 0x04034b50, where, ": zip entry `", name,
                     "` has no local header");
    const uint64_t data = local + 30 + in.at<uint16_t>(local + 26) + in.at<uint16_t>(local + 28);
    entries[name] = in.range(data, size);
    at += 46 + name_size + extra_size + comment;
  }
  return entries;
}

}  // namespace temper
