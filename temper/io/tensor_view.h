// Views of tensors in memory that is owned elsewhere, such as a weight file's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

enum class DType {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
  kFloat8E4M3  // without infinities (Micikevicius et al., arXiv 2209.05433)
};

size_t dtype_size(DType dtype);
std::string_view dtype_name(DType dtype);  // as safetensors writes it: "F32", "BF16", ...
std::optional<DType> dtype_from_name(std::string_view name);

// Contiguous, little-endian. `owner` keeps the memory (a mapping, a buffer) alive. The data may be
// unaligned.
struct TensorView {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  size_t num_bytes = 0;
  std::shared_ptr<const void> owner;
  bool mapped = false;  // the bytes are those of a mapped file
  // Where set, the bytes do not exist yet: makes them, when a file is written or a parameter takes
  // them. `data` and `owner` are null.
  std::function<TensorView()> make = {};
  // Where processes share out the tensor: gives the runs of its bytes that this process has, each
  // with its place in the whole.
  using Put = std::function<void(size_t place, const std::byte* bytes, size_t count)>;
  std::function<void(const Put&)> own = {};
};

// Takes whole pages of a mapped view out of the process's memory; they come back from the file when
// they are read again. Does nothing to other views.
void give_back_pages(const TensorView& view);

// The product of a shape, or nullopt when it is negative or its bytes overflow.
std::optional<size_t> shape_bytes(const std::vector<int64_t>& shape, DType dtype);

// "[2, 3]", for messages.
std::string shape_text(const std::vector<int64_t>& shape);

// Bytes as a tensor [size] of kUInt8, and back.
TensorView bytes_view(std::string bytes);
std::string bytes_of(const TensorView& view);

}  // namespace temper
