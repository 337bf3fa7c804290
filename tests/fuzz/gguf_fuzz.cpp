// Any bytes as a GGUF file: parsed, or a DataError. Every byte that a tensor claims is read, so
// that a view out of bounds shows.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "temper/base/error.h"
#include "temper/io/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  try {
    size_t total = 0;
    unsigned sum = 0;
    const GgufFile file =
        parse_gguf({reinterpret_cast<const std::byte*>(data), size}, "fuzz", nullptr);
    for (const auto& [name, view] : file.tensors) {
      if (shape_bytes(view.shape, view.dtype) != view.num_bytes) std::abort();
      for (size_t i = 0; i < view.num_bytes; ++i) sum += static_cast<unsigned>(view.data[i]);
      total += view.num_bytes;
    }
    if (total > size || sum == 1u << 31) std::abort();  // no two tensors share a byte
  } catch (const DataError&) {
  }
  return 0;
}
