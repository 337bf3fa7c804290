// Names and digests of a hub's files.
#pragma once

#include <cstddef>
#include <string>

namespace temper::http {

// Digits of lower case, so many.
bool is_hex(const std::string& text, size_t length);
// As a part of a URL's path.
std::string percent_encoded(const std::string& text, bool keep_slash);
// Whether a path stays within the directory that it is taken in, and its parts are names.
bool is_inner_path(const std::string& path);
// The digest of a file, as an etag has it: SHA-256 of its bytes, or SHA-1 as git takes it of a
// blob. Throws RunError.
std::string digest_of(const std::string& path, bool sha256);

}  // namespace temper::http
