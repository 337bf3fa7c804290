#include <bit>
#include <cstring>
#include <set>
#include <type_traits>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/io/gguf.h"

namespace temper {
namespace {

// Reads forwards; every length is compared with the bytes that are left before it is used.
class GgufReader {
 public:
  GgufReader(std::span<const std::byte> bytes, std::string where)
      : bytes_(bytes), where_(std::move(where)) {}

  void at(std::string place) { place_ = std::move(place); }
  std::string place() const { return place_.empty() ? where_ : where_ + ": " + place_; }
  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }

  template <class T>
  T number() {
    need(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof value);
    position_ += sizeof value;
    return value;
  }
  bool flag() {
    const auto value = number<uint8_t>();
    check<DataError>(value <= 1, place(), ": ", int{value}, " where 0 or 1 was expected");
    return value == 1;
  }
  std::string text() {
    const auto size = number<uint64_t>();
    need(size);
    const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + position_;
    position_ += size;
    return {begin, size};
  }
  // Reads a count of items that take at least `least_bytes` bytes each.
  uint64_t count(size_t least_bytes) {
    const auto value = number<uint64_t>();
    check<DataError>(value <= left() / least_bytes, place(), ": ", value, " items in ", left(),
                     " bytes; the file may be truncated");
    return value;
  }
  GgufValue value() {
    const auto type = number<uint32_t>();
    if (type == gguf::kArrayType) return array(number<uint32_t>());
    return with_type(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      return GgufValue(std::in_place_type<T>, one<T>());
    });
  }

 private:
  void need(uint64_t size) const {
    if (size <= left()) [[likely]]
      return;
    throw DataError(str(place(), ": ", size, " bytes expected, ", left(),
                        " are left; not a GGUF file, or truncated"));
  }
  template <class T>
  T one() {
    if constexpr (std::is_same_v<T, bool>)
      return flag();
    else if constexpr (std::is_same_v<T, std::string>)
      return text();
    else
      return number<T>();
  }
  GgufValue array(uint32_t type) {
    return with_type(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const uint64_t size =
          count(std::is_same_v<T, std::string> ? sizeof(uint64_t)
                                               : (std::is_same_v<T, bool> ? 1 : sizeof(T)));
      std::vector<T> items;
      items.reserve(size);
      for (uint64_t i = 0; i < size; ++i) items.push_back(one<T>());
      return GgufValue(GgufArray(std::move(items)));
    });
  }
  // `use` with the type of that number: GgufValue's alternatives stand in their order.
  template <size_t kNumber = 0, class Use>
  GgufValue with_type(uint32_t number, const Use& use) {
    if constexpr (kNumber == std::variant_size_v<GgufValue>) {
      throw DataError(str(place(), ": value type ", number,
                          " is not supported; expected 0 to 12, and no array of arrays"));
    } else {
      if constexpr (kNumber != gguf::kArrayType)
        if (number == kNumber)
          return use(std::type_identity<std::variant_alternative_t<kNumber, GgufValue>>());
      return with_type<kNumber + 1>(number, use);
    }
  }

  std::span<const std::byte> bytes_;
  std::string where_, place_;
  size_t position_ = 0;
};

uint64_t alignment_of(const GgufFile& file, const std::string& where) {
  const GgufValue* value = file.find("general.alignment");
  if (!value) return gguf::kAlignment;
  const auto* number = std::get_if<uint32_t>(value);
  check<DataError>(number && std::has_single_bit(*number) && *number >= 8, where,
                   ": `general.alignment`: expected a power of two, at least 8");
  return *number;
}

struct Described {
  std::string name;
  TensorView view;
  uint64_t offset;
  const gguf::BlockType* block = nullptr;
  std::vector<int64_t> shape;  // of a tensor of blocks
};

[[noreturn]] void fail_unread(uint32_t type, const std::string& place) {
  std::string found = str(type), read = "F32, F16, BF16";
  for (const auto& [number, name] : gguf::kUnreadTypes)
    if (number == type) found = name;
  for (const gguf::BlockType& block : gguf::kBlockTypes) read += str(", ", block.name);
  throw DataError(str(place, ": type ", found, " is not supported; expected one of ", read));
}

// A tensor's type, and the bytes that it then has.
void set_type(Described& tensor, uint32_t type, const std::string& place) {
  for (const auto& [number, dtype] : gguf::kTensorTypes)
    if (number == type) {
      tensor.view.dtype = dtype;
      const auto bytes = shape_bytes(tensor.view.shape, dtype);
      check<DataError>(bytes.has_value(), place, ": a size below 0, or too large");
      tensor.view.num_bytes = *bytes;
      return;
    }
  for (const gguf::BlockType& block : gguf::kBlockTypes)
    if (static_cast<uint32_t>(block.type) == type) tensor.block = &block;
  if (!tensor.block) fail_unread(type, place);
  const auto values = shape_bytes(tensor.view.shape, DType::kUInt8);
  check<DataError>(values.has_value(), place, ": a size below 0, or too large");
  const int64_t width = tensor.view.shape.empty() ? 1 : tensor.view.shape.back();
  check<DataError>(width % tensor.block->values == 0, place, ": rows of ", width, " values in ",
                   tensor.block->name, ", whose blocks have ", tensor.block->values);
  const size_t blocks = *values / static_cast<size_t>(tensor.block->values);
  check<DataError>(blocks <= static_cast<size_t>(INT64_MAX) / tensor.block->bytes, place,
                   ": too large");
  tensor.shape = std::move(tensor.view.shape);
  tensor.view.dtype = DType::kUInt8;
  tensor.view.num_bytes = blocks * tensor.block->bytes;
  tensor.view.shape = {static_cast<int64_t>(tensor.view.num_bytes)};
}

Described describe(GgufReader& reader) {
  Described tensor;
  reader.at("a tensor's name");
  tensor.name = reader.text();
  reader.at("tensor `" + tensor.name + "`");
  const auto dimensions = reader.number<uint32_t>();
  check<DataError>(dimensions <= gguf::kMostDimensions, reader.place(), ": ", dimensions,
                   " dimensions; at most ", gguf::kMostDimensions, " are allowed");
  for (uint32_t i = 0; i < dimensions; ++i)
    tensor.view.shape.insert(tensor.view.shape.begin(), reader.number<int64_t>());
  const auto type = reader.number<uint32_t>();
  tensor.offset = reader.number<uint64_t>();
  set_type(tensor, type, reader.place());
  return tensor;
}

}  // namespace

const GgufValue* GgufFile::find(std::string_view key) const {
  for (const auto& [name, value] : keys)
    if (name == key) return &value;
  return nullptr;
}

GgufFile parse_gguf(std::span<const std::byte> bytes, const std::string& where,
                    std::shared_ptr<const void> owner) {
  GgufReader reader(bytes, where);
  const bool magic = bytes.size() >= gguf::kMagic.size() &&
                     std::memcmp(bytes.data(), gguf::kMagic.data(), gguf::kMagic.size()) == 0;
  check<DataError>(magic, where, ": not a GGUF file: it does not begin with `GGUF`");
  reader.number<uint32_t>();
  const auto version = reader.number<uint32_t>();
  check<DataError>(version == gguf::kVersion || version == gguf::kVersionBefore, where,
                   ": GGUF version ", version, " is not supported; expected ", gguf::kVersion,
                   ", little-endian");
  // Name, dimensions, type and offset; name, type and one byte.
  const uint64_t tensors = reader.count(24), keys = reader.count(13);
  GgufFile file;
  std::set<std::string> seen;
  for (uint64_t i = 0; i < keys; ++i) {
    reader.at(str("key ", i));
    std::string key = reader.text();
    reader.at("`" + key + "`");
    check<DataError>(seen.insert(key).second, reader.place(), ": is there twice");
    file.keys.emplace_back(std::move(key), reader.value());
  }
  std::vector<Described> described;
  for (uint64_t i = 0; i < tensors; ++i) described.push_back(describe(reader));
  reader.at("");
  const uint64_t alignment = alignment_of(file, where);
  const uint64_t begin = reader.position() + gguf::padding(reader.position(), alignment);
  uint64_t expected = 0;
  for (auto& [name, view, offset, block, shape] : described) {
    const std::string place = where + ": tensor `" + name + "`";
    check<DataError>(offset == expected, place, ": lies at byte ", offset,
                     " of the data, expected ", expected);
    check<DataError>(begin <= bytes.size() && offset <= bytes.size() - begin &&
                         view.num_bytes <= bytes.size() - begin - offset,
                     place, ": ", view.num_bytes, " bytes lie outside the file's ", bytes.size(),
                     "; the file may be truncated");
    view.data = bytes.data() + begin + offset;
    view.owner = owner;
    expected = offset + view.num_bytes + gguf::padding(view.num_bytes, alignment);
    const bool fresh = !file.tensors.contains(name) && !file.blocks.contains(name);
    check<DataError>(fresh, place, ": is there twice");
    if (block)
      file.blocks.emplace(name, GgufBlocks{*block, std::move(shape), std::move(view)});
    else
      file.tensors.emplace(name, std::move(view));
  }
  return file;
}

GgufFile read_gguf(const std::string& path) {
  const auto mapped = MappedFile::open(path);
  GgufFile file = parse_gguf({mapped->data(), mapped->size()}, path, mapped);
  for (auto& [name, view] : file.tensors) view.mapped = true;
  for (auto& [name, blocks] : file.blocks) blocks.bytes.mapped = true;
  return file;
}

}  // namespace temper
