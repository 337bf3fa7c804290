// SHA-256 (FIPS 180-4).
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace temper {

// In lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

// Of a whole file, which is read piece by piece. "" where `*cancelled` became true meanwhile.
// Throws DataError.
std::string sha256_of_file(const std::string& path, const std::atomic<bool>* cancelled = nullptr);

}  // namespace temper
