#include "temper/base/sha256.h"

#include <openssl/evp.h>

#include "temper/base/error.h"

namespace temper {

std::string sha256_hex(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  check(::EVP_Digest(bytes.data(), bytes.size(), digest, &size, ::EVP_sha256(), nullptr) == 1,
        "OpenSSL computes no SHA-256");
  std::string text;
  for (unsigned i = 0; i < size; ++i)
    for (const int shift : {4, 0}) text += "0123456789abcdef"[digest[i] >> shift & 15];
  return text;
}

}  // namespace temper
