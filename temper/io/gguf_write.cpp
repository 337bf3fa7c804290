#include <cstring>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/io/gguf.h"
#include "temper/io/gguf_format.h"

namespace temper {
namespace {

class Bytes {
 public:
  template <class T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof value);  // both are little-endian
    text_.append(raw, sizeof raw);
  }
  void text(std::string_view value) {
    number<uint64_t>(value.size());
    text_ += value;
  }
  void value(const GgufValue& value) {
    number<uint32_t>(static_cast<uint32_t>(value.index()));
    std::visit([&](const auto& v) { one(v); }, value);
  }
  void pad(uint64_t alignment) { text_.append(gguf::padding(text_.size(), alignment), '\0'); }
  std::string& raw() { return text_; }

 private:
  void one(bool value) { number<uint8_t>(value); }
  void one(const std::string& value) { text(value); }
  void one(const GgufArray& array) {
    number<uint32_t>(static_cast<uint32_t>(array.index()));
    std::visit(
        [&](const auto& items) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(items)>, std::monostate>) {
            number<uint64_t>(items.size());
            for (const auto& item : items) one(item);
          }
        },
        array);
  }
  template <class T>
  void one(T value) {
    number(value);
  }
  std::string text_;
};

uint32_t type_of(const TensorView& view, const std::string& place) {
  for (const auto& [number, dtype] : gguf::kTensorTypes)
    if (dtype == view.dtype) return number;
  throw RunError(str(place, ": GGUF has no type for ", dtype_name(view.dtype)));
}

}  // namespace

void write_gguf(const std::string& path, const GgufKeys& keys,
                const std::vector<std::pair<std::string, TensorView>>& tensors) {
  Bytes header;
  header.raw() += gguf::kMagic;
  header.number(gguf::kVersion);
  header.number<uint64_t>(tensors.size());
  header.number<uint64_t>(keys.size());
  for (const auto& [key, value] : keys) {
    header.text(key);
    header.value(value);
  }
  uint64_t offset = 0;
  for (const auto& [name, view] : tensors) {
    const std::string place = path + ": tensor `" + name + "`";
    check(name.size() <= gguf::kMostNameBytes, place, ": a name of ", name.size(),
          " bytes; GGUF allows ", gguf::kMostNameBytes);
    check(view.shape.size() <= gguf::kMostDimensions, place, ": ", view.shape.size(),
          " dimensions; GGUF allows ", gguf::kMostDimensions);
    header.text(name);
    header.number(static_cast<uint32_t>(view.shape.size()));
    for (auto extent = view.shape.rbegin(); extent != view.shape.rend(); ++extent)
      header.number(*extent);
    header.number(type_of(view, place));
    header.number(offset);
    offset += view.num_bytes + gguf::padding(view.num_bytes, gguf::kAlignment);
  }
  header.pad(gguf::kAlignment);
  AtomicFile file(path);
  file.write(header.raw().data(), header.raw().size());
  for (const auto& [name, view] : tensors) {
    const TensorView made = view.make ? view.make() : view;
    check(made.num_bytes == view.num_bytes && made.dtype == view.dtype, path, ": `", name,
          "` was made of ", made.num_bytes, " bytes, not ", view.num_bytes);
    file.write(made.data, made.num_bytes);
    const std::string zeros(gguf::padding(made.num_bytes, gguf::kAlignment), '\0');
    file.write(zeros.data(), zeros.size());
  }
  file.commit();
}

}  // namespace temper
