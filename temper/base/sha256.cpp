#include "temper/base/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/file.h"

namespace temper {
namespace {

constexpr size_t kReadAtOnce = size_t{1} << 20;

std::string hex_of(const unsigned char* digest, unsigned size) {
  std::string text;
  for (unsigned i = 0; i < size; ++i)
    for (const int shift : {4, 0}) text += "0123456789abcdef"[digest[i] >> shift & 15];
  return text;
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  check(::EVP_Digest(bytes.data(), bytes.size(), digest, &size, ::EVP_sha256(), nullptr) == 1,
        "OpenSSL computes no SHA-256");
  return hex_of(digest, size);
}

std::string sha256_of_file(const std::string& path, const std::atomic<bool>* cancelled) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  check<DataError>(file.get() >= 0, path, ": cannot open: ", std::strerror(errno));
  const std::unique_ptr<EVP_MD_CTX, decltype(&::EVP_MD_CTX_free)> state(::EVP_MD_CTX_new(),
                                                                        ::EVP_MD_CTX_free);
  bool ok = state && ::EVP_DigestInit_ex(state.get(), ::EVP_sha256(), nullptr) == 1;
  std::vector<char> buffer(kReadAtOnce);
  for (ssize_t count = 1; ok && count > 0;) {
    if (cancelled && *cancelled) return "";
    do count = ::read(file.get(), buffer.data(), buffer.size());
    while (count < 0 && errno == EINTR);
    check<DataError>(count >= 0, path, ": cannot read: ", std::strerror(errno));
    ok = ::EVP_DigestUpdate(state.get(), buffer.data(), static_cast<size_t>(count)) == 1;
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  check(ok && ::EVP_DigestFinal_ex(state.get(), digest, &size) == 1, "OpenSSL computes no SHA-256");
  return hex_of(digest, size);
}

}  // namespace temper
