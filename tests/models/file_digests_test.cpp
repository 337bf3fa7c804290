// What tells the files of a model from those of another.
#include "temper/models/files/file_digests.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/train/tiny.h"

using namespace temper;

namespace {
void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}
}  // namespace

TEST_CASE("a hash of all that a file holds finds every bit, and does not depend on the threads") {
  const tiny::Folder folder;
  const std::string path = folder / "file";
  std::string bytes((size_t{33} << 20) + 5, 'x');
  for (const size_t size : {size_t{0}, size_t{7}, size_t{16} << 20, bytes.size()}) {
    CAPTURE(size);
    const std::string part = bytes.substr(0, size);
    write(path, part);
    const std::string hash = models::content_hash(path);
    CHECK(hash.size() == 32);
    CHECK(models::content_hash(path, 3) == hash);
    CHECK(models::content_hash_of(part) == hash);
  }
  const std::string whole = models::content_hash(path);
  for (const size_t place : {size_t{0}, size_t{16} << 20, bytes.size() - 1}) {
    std::string other = bytes;
    other[place] = static_cast<char>(other[place] ^ 4);
    write(path, other);
    CHECK(models::content_hash(path, 2) != whole);
  }
  const std::atomic<bool> cancelled = true;
  CHECK(models::content_hash(path, 2, &cancelled).empty());
  CHECK_THROWS_AS(models::content_hash(folder / "none"), DataError);
}

TEST_CASE("files of models are told apart by name, size and sampled bytes") {
  const tiny::Folder folder;
  std::filesystem::create_directories(folder / "a");
  const std::string weights = folder / "a/model.safetensors", config = folder / "a/config.json";
  const std::string large(size_t{3} << 20, 'x');
  write(weights, large);
  write(config, "{}");
  write(folder / "a/notes.log", "not read by a run");
  const std::string first = models::file_digests(folder / "a");
  CHECK(first.find("config.json of 2 bytes, hash ") == 0);
  CHECK(first.find("\nmodel.safetensors of 3145728 bytes, hash ") != std::string::npos);
  CHECK(first.find("notes") == std::string::npos);
  CHECK(models::file_digests(weights) == first.substr(first.find('\n') + 1));
  CHECK(models::file_digests(folder / "a") == first);

  // Small files are read whole; of large ones the beginning, the end and pieces between.
  for (const size_t place : {size_t{0}, large.size() - 1, (large.size() - 4096) / 63 * 20 + 5}) {
    CAPTURE(place);
    std::string other = large;
    other[place] = 'y';
    write(weights, other);
    CHECK(models::file_digests(folder / "a") != first);
  }
  write(weights, large + "x");
  CHECK(models::file_digests(folder / "a") != first);
  write(weights, large);
  CHECK(models::file_digests(folder / "a") == first);
  write(config, "[]");
  CHECK(models::file_digests(folder / "a") != first);
  std::filesystem::remove_all(folder / "a");
  std::filesystem::create_directories(folder / "a");
  CHECK(models::file_digests(folder / "a").find("no files in ") == 0);
}
