#include "temper/image/source.h"

#include <array>
#include <filesystem>
#include <string_view>

#include "temper/base/ascii.h"
#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/sha256.h"

namespace temper {
namespace {

// Space between the digits is skipped, as MIME has it; "=" ends them.
std::string decode_base64(std::string_view text) {
  std::array<int, 256> values;
  values.fill(-1);
  for (size_t i = 0; i < kBase64Digits.size(); ++i)
    values[static_cast<unsigned char>(kBase64Digits[i])] = static_cast<int>(i);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int count = 0;
  size_t digits = 0, padding = 0;
  for (const char c : text) {
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
    if (c == '=') {
      ++padding;
      continue;
    }
    const int value = values[static_cast<unsigned char>(c)];
    check<DataError>(value >= 0 && padding == 0, "no base64 (a digit that is none)");
    bits = bits << 6 | static_cast<uint32_t>(value);
    ++digits;
    if ((count += 6) < 8) continue;
    bytes += static_cast<char>(bits >> (count -= 8) & 0xff);
  }
  check<DataError>(digits % 4 != 1 && (padding == 0 || (digits + padding) % 4 == 0),
                   "no base64 (it is truncated)");
  return bytes;
}

std::string read_base64(std::string_view text, const ImageLimits& limits, const char* what) {
  // Twice what the digits need: they may have space between them.
  check<DataError>(text.size() / 8 * 3 <= limits.max_bytes, "a ", what, " of ", text.size(),
                   " characters; images of at most ", limits.max_bytes, " bytes are read");
  try {
    return decode_base64(text);
  } catch (const DataError& e) {
    throw DataError(str(what, ": ", e.what()));
  }
}

std::string read_data_uri(std::string_view uri, const ImageLimits& limits) {
  const size_t comma = uri.find(',');
  check<DataError>(comma != uri.npos && uri.substr(0, comma).ends_with(";base64"),
                   "a data: URI without base64; expected \"data:image/png;base64,..\"");
  const std::string_view text = uri.substr(comma + 1);
  return read_base64(text, limits, "data: URI");
}

// The scheme of a URI, without which a text is a path.
std::string_view scheme_of(std::string_view text) {
  const size_t end = text.find("://");
  return end == text.npos || text.substr(0, end).find('/') != text.npos ? "" : text.substr(0, end);
}

std::string path_of(const std::string& text, const std::string& directory) {
  const std::string_view scheme = scheme_of(text);
  check<DataError>(scheme.empty(), "image ", text.substr(0, 200), ": ", scheme,
                   " addresses are not read; expected a path or a data: URI");
  check<DataError>(!text.empty(), "an image without path and bytes");
  check<DataError>(text.find('\0') == text.npos, "an image's path with a zero byte");
  return (std::filesystem::path(directory) / text).string();
}

std::string read_file_of_image(const std::string& path, const ImageLimits& limits) {
  check<DataError>(is_file(path), path,
                   ": no such file (an image's; paths are relative to the file ",
                   "that names them)");
  return read_file(path, limits.max_bytes);
}

}  // namespace

bool is_data_uri(std::string_view text) { return text.starts_with("data:"); }

std::string image_kind(std::string_view bytes) {
  return bytes.starts_with("\x89") ? "png" : bytes.starts_with("\xff") ? "jpeg" : "webp";
}

std::string data_uri(std::string_view bytes) {
  std::string out = temper::str("data:image/", image_kind(bytes), ";base64,");
  append_base64(bytes, out);
  return out;
}

std::string read_image_bytes(const ImageSource& source, const std::string& directory,
                             const ImageLimits& limits) {
  std::string bytes = !source.bytes.empty() ? source.bytes
                      : source.is_base64    ? read_base64(source.text, limits, "base64 text")
                      : is_data_uri(source.text)
                          ? read_data_uri(source.text, limits)
                          : read_file_of_image(path_of(source.text, directory), limits);
  check<DataError>(bytes.size() <= limits.max_bytes, "an image of ", bytes.size(),
                   " bytes; at most ", limits.max_bytes, " are read");
  return bytes;
}

std::shared_ptr<const Image> Image::open(const ImageSource& source, const std::string& directory,
                                         const ImageLimits& limits, std::string row) {
  const auto image = std::make_shared<Image>();
  if (!row.empty()) image->row_ = std::move(row) + ": ";
  if (source.bytes.empty() && !source.is_base64 && !is_data_uri(source.text))
    image->path_ = path_of(source.text, directory);
  std::string bytes = read_image_bytes(source, directory, limits);
  const std::string where = image->path_.empty() ? "" : image->path_ + ": ";
  try {
    image->size_ = read_image_size(image_bytes(bytes), limits);
  } catch (const DataError& error) {
    throw DataError(where + error.what());
  }
  image->digest_ = sha256_hex(bytes);
  image->limits_ = limits;
  image->file_bytes_ = static_cast<int64_t>(bytes.size());
  if (image->path_.empty()) image->bytes_ = std::move(bytes);
  return image;
}

std::string Image::source() const {
  return path_.empty() ? data_uri(bytes_) : std::filesystem::absolute(path_).string();
}

std::string Image::bytes() const try {
  if (path_.empty()) return bytes_;
  std::string bytes = read_file_of_image(path_, limits_);
  check<DataError>(sha256_hex(bytes) == digest_, path_,
                   ": the image has changed since it was read");
  return bytes;
} catch (const DataError& error) {
  throw DataError(row_ + error.what());
}

Picture Image::decode() const {
  const std::string file = bytes();
  try {
    return decode_image(image_bytes(file), limits_);
  } catch (const DataError& error) {
    throw DataError(row_ + (path_.empty() ? "" : path_ + ": ") + error.what());
  }
}

}  // namespace temper
