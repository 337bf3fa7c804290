// Any bytes as a GGUF file: parsed, or a DataError.
#include <cstddef>
#include <cstdint>

#include "temper/base/error.h"
#include "temper/io/gguf.h"
#include "tests/fuzz/read_tensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  try {
    read_tensors(
        parse_gguf({reinterpret_cast<const std::byte*>(data), size}, "fuzz", nullptr).tensors,
        size);
  } catch (const DataError&) {
  }
  return 0;
}
