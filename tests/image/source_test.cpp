#include "temper/image/source.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/sha256.h"
#include "temper/image/decoded.h"
#include "tests/golden.h"

namespace temper {
namespace {

std::string refusal(const ImageSource& source, const std::string& directory = "/nonexistent",
                    const ImageLimits& limits = {}) {
  try {
    Image::open(source, directory, limits);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::string kFiles = golden_path("images/files");
// A PNG of one grey pixel.
const std::string kPixel =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg==";

TEST_CASE("an image is a path, a data: URI or bytes") {
  const std::string bytes = read_file(kFiles + "/turn6.jpg");
  const auto by_path = Image::open({.text = "turn6.jpg"}, kFiles);
  CHECK(by_path->path() == kFiles + "/turn6.jpg");
  CHECK(by_path->size().width == 5);
  CHECK(by_path->size().height == 7);
  CHECK(by_path->digest() == sha256_hex(bytes));
  CHECK(by_path->bytes() == bytes);
  CHECK(Image::open({.text = kFiles + "/turn6.jpg"}, "/nonexistent")->digest() ==
        by_path->digest());
  const auto by_bytes = Image::open({.text = "unread.jpg", .bytes = bytes}, "/nonexistent");
  CHECK(by_bytes->path().empty());
  CHECK(by_bytes->digest() == by_path->digest());
  CHECK(by_bytes->decode().rgb == by_path->decode().rgb);
  const auto by_uri = Image::open({.text = "data:image/png;base64," + kPixel}, "");
  CHECK(by_uri->size().width == 1);
  CHECK(by_uri->decode().rgb == std::vector<uint8_t>(3, 128));
  std::string spaced = kPixel;
  spaced.insert(20, "\n ");
  CHECK(Image::open({.text = "data:;base64," + spaced}, "")->digest() == by_uri->digest());
}

TEST_CASE("a file in base64 is decoded as it is, without a URI around it") {
  const auto image = Image::open({.text = kPixel, .is_base64 = true}, "/nonexistent");
  CHECK(image->path().empty());
  CHECK(image->digest() == Image::open({.text = "data:;base64," + kPixel}, "")->digest());
  CHECK(image->file_bytes() == 67);
  CHECK(says(refusal({.text = "a*bc", .is_base64 = true}), "base64 text: no base64"));
  CHECK(says(refusal({.text = "", .is_base64 = true}), "no bytes"));
  CHECK(says(refusal({.text = kPixel, .is_base64 = true}, "", {.max_bytes = 66}), "at most 66"));
}

TEST_CASE("a broken image is named with its row when its pixels are read") {
  for (const char* name : {"bad_cut.png", "bad_cut.jpg", "bad_cut.webp"}) {
    const auto image = Image::open({.text = name}, kFiles, {}, "rows.jsonl:7: image 1");
    const std::string begin = "rows.jsonl:7: image 1: " + kFiles + "/" + name + ": ";
    CHECK_THROWS_WITH_AS(image->decode(), doctest::Contains(begin.c_str()), DataError);
  }
}

TEST_CASE("sources of images that are refused") {
  CHECK(says(refusal({.text = "http://a.b/c.png"}), "http addresses are not read"));
  CHECK(says(refusal({.text = "https://a.b/c.png"}), "https addresses are not read"));
  CHECK(says(refusal({.text = "file:///etc/passwd"}), "file addresses are not read"));
  CHECK(says(refusal({.text = "none.png"}, kFiles), "none.png: no such file"));
  CHECK(says(refusal({.text = "."}, kFiles), "no such file"));
  CHECK(says(refusal({}), "without path and bytes"));
  CHECK(says(refusal({.text = std::string("a\0b", 3)}), "zero byte"));
  CHECK(says(refusal({.text = "data:image/png,abc"}), "without base64"));
  CHECK(says(refusal({.text = "data:image/png;base64,a*bc"}), "no base64"));
  CHECK(says(refusal({.text = "data:image/png;base64,abcde"}), "truncated"));
  CHECK(says(refusal({.text = "data:image/png;base64,ab=c"}), "no base64"));
  CHECK(says(refusal({.text = "data:text/plain;base64,aGVsbG8="}), "not a JPEG, PNG or WebP"));
  CHECK(says(refusal({.text = "bad_text.png"}, kFiles), "bad_text.png: not a JPEG"));
}

TEST_CASE("images are no larger than the limit, however they come") {
  const std::string bytes = read_file(kFiles + "/turn6.jpg");
  const ImageLimits limits{.max_bytes = bytes.size() - 1};
  CHECK(says(refusal({.text = "turn6.jpg"}, kFiles, limits), "bytes; at most"));
  CHECK(says(refusal({.bytes = bytes}, "", limits), "bytes; at most"));
  CHECK(says(refusal({.text = "data:;base64," + kPixel}, "", {.max_bytes = 66}), "bytes; at most"));
  CHECK(refusal({.text = "data:;base64," + kPixel}, "", {.max_bytes = 67}) == "");
  const std::string long_uri = "data:;base64," + std::string(1000, 'A');
  CHECK(says(refusal({.text = long_uri}, "", {.max_bytes = 67}), "characters"));
}

TEST_CASE("a file that changed after its header was read is an error") {
  const std::string path = temporary_directory() + "/changed_image_" + std::to_string(::getpid());
  std::filesystem::copy_file(kFiles + "/turn6.jpg", path,
                             std::filesystem::copy_options::overwrite_existing);
  const auto image = Image::open({.text = path}, "");
  CHECK(image->decode().width == 5);
  std::filesystem::copy_file(kFiles + "/turn1.jpg", path,
                             std::filesystem::copy_options::overwrite_existing);
  CHECK_THROWS_WITH_AS(image->decode(), doctest::Contains("has changed"), DataError);
  std::filesystem::remove(path);
}

}  // namespace
TEST_CASE("bytes as a data: URI read back, and images are decoded once") {
  const auto image = Image::open({.text = "data:image/png;base64," + kPixel}, "");
  const std::string uri = data_uri(image->bytes());
  CHECK(uri.starts_with("data:image/png;base64,"));
  CHECK(Image::open({.text = uri}, "")->bytes() == image->bytes());
  for (size_t cut = 1; cut < 4; ++cut) {
    const std::string part = image->bytes().substr(cut);
    CHECK(read_image_bytes({.text = data_uri(part)}, "") == part);
  }
  DecodedImages decoded;
  decoded.check({{.begin = 0, .count = 1, .image = image}}, "here");
  // The header is whole, and the pixels are not.
  std::string broken = image->bytes();
  broken.resize(broken.size() - 20);
  const auto half = Image::open({.text = data_uri(broken)}, "");
  for (int again = 0; again < 2; ++again) {
    std::string why;
    try {
      decoded.check(
          {{.begin = 0, .count = 1, .image = image}, {.begin = 1, .count = 1, .image = half}},
          "here");
    } catch (const DataError& e) {
      why = e.what();
    }
    CHECK(why.starts_with("here: image 2: "));
  }
}

}  // namespace temper
