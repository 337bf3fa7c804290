#include "temper/io/tensor_view.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <utility>

namespace temper {
namespace {
struct Entry {
  DType dtype;
  std::string_view name;
  size_t size;
};
constexpr std::array<Entry, 11> kEntries{{{DType::kFloat64, "F64", 8},
                                          {DType::kFloat32, "F32", 4},
                                          {DType::kFloat16, "F16", 2},
                                          {DType::kBFloat16, "BF16", 2},
                                          {DType::kInt64, "I64", 8},
                                          {DType::kInt32, "I32", 4},
                                          {DType::kInt16, "I16", 2},
                                          {DType::kInt8, "I8", 1},
                                          {DType::kUInt8, "U8", 1},
                                          {DType::kBool, "BOOL", 1},
                                          {DType::kFloat8E4M3, "F8_E4M3", 1}}};
}  // namespace

size_t dtype_size(DType dtype) { return kEntries[static_cast<size_t>(dtype)].size; }
std::string_view dtype_name(DType dtype) { return kEntries[static_cast<size_t>(dtype)].name; }
std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Entry& entry : kEntries)
    if (entry.name == name) return entry.dtype;
  return std::nullopt;
}

std::optional<size_t> shape_bytes(const std::vector<int64_t>& shape, DType dtype) {
  size_t bytes = dtype_size(dtype);
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0)
      empty = true;
    else if (__builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes))
      return std::nullopt;
  }
  return empty ? 0 : bytes;
}

void give_back_pages(const TensorView& view) {
  if (!view.mapped) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(view.data) + page - 1) / page * page,
             end = (reinterpret_cast<uintptr_t>(view.data) + view.num_bytes) / page * page;
  // A private read-only mapping: nothing is lost. Where it is refused, the pages stay.
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

TensorView bytes_view(std::string bytes) {
  const auto owned = std::make_shared<const std::string>(std::move(bytes));
  return {.dtype = DType::kUInt8,
          .shape = {static_cast<int64_t>(owned->size())},
          .data = reinterpret_cast<const std::byte*>(owned->data()),
          .num_bytes = owned->size(),
          .owner = owned};
}

std::string bytes_of(const TensorView& view) {
  return {reinterpret_cast<const char*>(view.data), view.num_bytes};
}

}  // namespace temper
