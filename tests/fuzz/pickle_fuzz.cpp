// Any bytes as a file of torch.save, the zip form or the legacy one: parsed, or a DataError. Every
// byte of every tensor is read. Seeds: tests/fuzz/seeds/pickle.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "temper/base/error.h"
#include "temper/io/torch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  try {
    unsigned sum = 0;
    for (const auto& [name, view] :
         parse_torch_file({reinterpret_cast<const std::byte*>(data), size}, "fuzz", nullptr)) {
      if (shape_bytes(view.shape, view.dtype) != view.num_bytes) std::abort();
      for (size_t i = 0; i < view.num_bytes; ++i) sum += static_cast<unsigned>(view.data[i]);
    }
    if (sum == 1u << 31) std::abort();
  } catch (const DataError&) {
  }
  return 0;
}
