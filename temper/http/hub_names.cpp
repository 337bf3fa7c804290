#include "temper/http/hub_names.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>

#include "temper/base/errno_text.h"
#include "temper/base/error.h"
#include "temper/base/file.h"

namespace temper::http {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHashedAtOnce = size_t{1} << 20;

}  // namespace

bool is_hex(const std::string& text, size_t length) {
  return text.size() == length && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string percent_encoded(const std::string& text, bool keep_slash) {
  constexpr const char* kDigits = "0123456789ABCDEF";
  std::string out;
  for (const unsigned char c : text)
    if (std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '~' || (c == '/' && keep_slash))
      out += static_cast<char>(c);
    else
      out += {'%', kDigits[c >> 4], kDigits[c & 15]};
  return out;
}

// A path within a directory, of parts that are names.
bool is_inner_path(const std::string& path) {
  if (path.empty() || path.size() > 4096 || path.front() == '/' || path.back() == '/') return false;
  for (const unsigned char c : path)
    if (c < ' ' || c == 127 || c == '\\') return false;
  const fs::path parts(path);
  return path.find("//") == std::string::npos && std::ranges::none_of(parts, [](const fs::path& p) {
           return p == ".." || p == "." || p.empty();
         });
}

std::string digest_of(const std::string& path, bool sha256) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  check(file.get() >= 0, path, ": cannot read: ", errno_text);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  check(
      context && EVP_DigestInit_ex(context.get(), sha256 ? EVP_sha256() : EVP_sha1(), nullptr) == 1,
      "cannot compute digests");
  struct stat about{};
  check(::fstat(file.get(), &about) == 0, path, ": cannot read: ", errno_text);
  if (!sha256) {
    const std::string head = str("blob ", about.st_size) + '\0';
    EVP_DigestUpdate(context.get(), head.data(), head.size());
  }
  std::string bytes(kHashedAtOnce, '\0');
  for (ssize_t n; (n = ::read(file.get(), bytes.data(), bytes.size())) != 0;) {
    check(n > 0 || errno == EINTR, path, ": cannot read: ", errno_text);
    if (n > 0) EVP_DigestUpdate(context.get(), bytes.data(), static_cast<size_t>(n));
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  EVP_DigestFinal_ex(context.get(), digest, &length);
  std::string hex;
  for (unsigned i = 0; i < length; ++i) {
    constexpr const char* kDigits = "0123456789abcdef";
    hex += {kDigits[digest[i] >> 4], kDigits[digest[i] & 15]};
  }
  return hex;
}

}  // namespace temper::http
