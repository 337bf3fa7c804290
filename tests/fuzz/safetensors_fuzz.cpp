// Any bytes as a safetensors file: parsed, or a DataError. Seed: tests/fuzz/seeds/safetensors.
#include <cstddef>
#include <cstdint>

#include "temper/base/error.h"
#include "temper/io/safetensors.h"
#include "tests/fuzz/read_tensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  try {
    read_tensors(
        parse_safetensors({reinterpret_cast<const std::byte*>(data), size}, "fuzz", nullptr), size);
  } catch (const DataError&) {
  }
  return 0;
}
