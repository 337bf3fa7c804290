// Any bytes as a body of the Tinker API, plain or compressed by the first byte: it is read, or is a
// DataError, and what was read is no larger than the body allows. Seeds: tests/fuzz/seeds/wire.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "temper/base/error.h"
#include "temper/tinker/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  if (size == 0) return 0;
  std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr size_t kMost = size_t{1} << 20;
  try {
    if (data[0] % 2 == 1) body = tinker::decompress_zstd(body, kMost);
    if (body.size() > std::max(kMost, size)) std::abort();
    const tinker::ForwardBackwardRequest request = tinker::read_forward_backward(body);
    size_t numbers = 0;
    for (const tinker::WireDatum& datum : request.data) {
      numbers += datum.tokens.size();
      for (const auto& [name, tensor] : datum.inputs) {
        numbers += tensor.size() + tensor.crow.size() + tensor.columns.size();
        for (const int64_t extent : tensor.shape)
          if (extent < 0) std::abort();
      }
    }
    if (numbers > 8 * body.size() + 64) std::abort();
  } catch (const DataError&) {
  }
  return 0;
}
