#include "temper/data/compress.h"

#include <zstd.h>

#include "temper/base/error.h"

namespace temper::data {

std::string compress_zstd(std::string_view text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const size_t size =
      ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), ZSTD_CLEVEL_DEFAULT);
  check(!ZSTD_isError(size), "zstd: cannot compress: ", ZSTD_getErrorName(size));
  packed.resize(size);
  return packed;
}

}  // namespace temper::data
