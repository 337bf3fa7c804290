// Goldens: tests/golden/make_image_goldens.py.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/base/random.h"
#include "temper/base/sha256.h"
#include "temper/image/image.h"
#include "tests/golden.h"

namespace temper {
namespace {

std::string golden_file(const std::string& name) {
  return read_file(golden_path("images/files/" + name));
}

std::string error_of(const std::string& bytes, const ImageLimits& limits = {}) {
  try {
    decode_image(image_bytes(bytes), limits);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("image files have the pixels that Pillow and transformers read") {
  const Json files = read_json_file(golden_path("images/files.json"));
  for (const auto& [name, want] : files.items()) {
    CAPTURE(name);
    const std::string bytes = golden_file(name);
    if (want.is_null()) {
      CHECK(!error_of(bytes).empty());
      continue;
    }
    const Picture picture = decode_image(image_bytes(bytes));
    CHECK(picture.width == want["width"].get<int64_t>());
    CHECK(picture.height == want["height"].get<int64_t>());
    CHECK(sha256_hex({reinterpret_cast<const char*>(picture.rgb.data()), picture.rgb.size()}) ==
          want["sha256"].get<std::string>());
    const ImageSize size = read_image_size(image_bytes(bytes));
    CHECK(size.width == picture.width);
    CHECK(size.height == picture.height);
  }
}

TEST_CASE("errors of image files say what is wrong") {
  CHECK(error_of(golden_file("bad_text.png")).starts_with("not a JPEG, PNG or WebP image"));
  CHECK(error_of(golden_file("bad_empty.png")).starts_with("not a JPEG, PNG or WebP image"));
  const auto other = [](const std::string& bytes, const char* want) {
    CHECK(error_of(bytes) == "not a JPEG, PNG or WebP image (" + std::string(want) + ")");
  };
  other("GIF89a..", "a GIF; convert it to PNG");
  other(std::string("II*\0", 4), "a TIFF; convert it to PNG");
  other(std::string("\0\0\0 ftypavif", 12),
        "AVIF, HEIC or a video; convert an image to PNG or JPEG");
  other("version https://git-lfs.github.com/spec/v1\n",
        "a Git LFS pointer; `git lfs pull` gets the file");
  other("GIF", "by its first bytes");
  CHECK(error_of(golden_file("bad_cut.jpg")).find("truncated") != std::string::npos);
  CHECK(error_of(golden_file("bad_cut_progressive.jpg")).find("truncated") != std::string::npos);
  CHECK(error_of(golden_file("bad_cut.png")).find("truncated") != std::string::npos);
  CHECK(error_of(golden_file("bad_cut.webp")).find("truncated") != std::string::npos);
}

TEST_CASE("image files beyond the limits are refused before they are decoded") {
  for (const char* name : {"sampling0.jpg", "rgb.png", "lossy.webp", "deep6_interlaced.png"}) {
    CAPTURE(name);
    const std::string bytes = golden_file(name);
    const ImageSize size = read_image_size(image_bytes(bytes));
    CHECK(error_of(bytes, {.max_bytes = bytes.size(), .max_pixels = size.width * size.height}) ==
          "");
    CHECK(error_of(bytes, {.max_bytes = bytes.size() - 1}).find(" bytes; at most ") !=
          std::string::npos);
    const ImageLimits few{.max_pixels = size.width * size.height - 1};
    CHECK(error_of(bytes, few).find(" pixels; at most ") != std::string::npos);
    CHECK_THROWS_AS(read_image_size(image_bytes(bytes), few), DataError);
  }
  // A header that claims 2^31 - 1 pixels a side; nothing of that size is allocated.
  std::string bomb = golden_file("rgb.png");
  bomb.replace(16, 8, "\x7f\xff\xff\xff\x7f\xff\xff\xff");
  CHECK(error_of(bomb).find(" pixels; at most ") != std::string::npos);
}

// One scan of a progressive JPEG once more and once more: each costs a pass over the picture.
TEST_CASE("a progressive JPEG of many scans is refused") {
  const std::string bytes = golden_file("progressive.jpg");
  const size_t first = bytes.find("\xff\xda");
  const size_t scan = bytes.find("\xff\xda", first + 2);
  size_t end = scan + 2;
  while (bytes[end] != '\xff' || bytes[end + 1] == '\0') ++end;
  REQUIRE(end < bytes.size());
  std::string many = bytes.substr(0, end);
  for (int i = 0; i < 200; ++i) many += bytes.substr(scan, end - scan);
  many += bytes.substr(end);
  CHECK(error_of(many).find("more than 100 scans") != std::string::npos);
}

TEST_CASE("chunks of a PNG that pixels do not need are not unpacked") {
  std::string bytes = golden_file("grey.png");
  const Picture picture = decode_image(image_bytes(bytes));
  // A chunk of text whose compressed part is damaged, and whose check sum is wrong as well.
  std::string text =
      std::string("\0\0\0\x0c", 4) + "zTXt" + std::string("Comment\0\0xxx", 12) + "abcd";
  bytes.insert(33, text);
  CHECK(decode_image(image_bytes(bytes)).rgb == picture.rgb);
}

TEST_CASE("cut and changed image files are read or refused, never more") {
  const Json files = read_json_file(golden_path("images/files.json"));
  const ImageLimits limits{.max_pixels = 100'000};
  for (const auto& [name, want] : files.items()) {
    CAPTURE(name);
    const std::string bytes = golden_file(name);
    for (size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 60)
      error_of(bytes.substr(0, size), limits);
    for (uint32_t trial = 0; trial < 60 && !bytes.empty(); ++trial) {
      std::string changed = bytes;
      for (uint32_t k = 0; k < 3; ++k) {
        const auto random = philox({trial, k}, {});
        changed[random[0] % changed.size()] = static_cast<char>(random[1]);
      }
      error_of(changed, limits);
    }
  }
  CHECK(files.size() > 50);
}

}  // namespace
}  // namespace temper
