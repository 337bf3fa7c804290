// The GGUF format: bytes as its definition has them, files read back, and files made to harm.
#include "temper/io/gguf.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "tests/io/little_endian.h"

using namespace temper;

namespace {

std::string u32(uint64_t value) { return little_endian(value, 4); }
std::string u64(uint64_t value) { return little_endian(value, 8); }
std::string gguf_text(const std::string& value) { return u64(value.size()) + value; }

// Magic, version, number of tensors and of keys.
std::string head(uint64_t tensors, uint64_t keys) {
  return "GGUF" + u32(3) + u64(tensors) + u64(keys);
}
std::string tensor(const std::string& name, const std::vector<uint64_t>& extents, uint32_t type,
                   uint64_t offset) {
  std::string out = gguf_text(name) + u32(extents.size());
  for (const uint64_t extent : extents) out += u64(extent);
  return out + u32(type) + u64(offset);
}
std::string padded(std::string bytes) {
  bytes.resize((bytes.size() + 31) / 32 * 32, '\0');
  return bytes;
}

std::string problem(const std::string& bytes) {
  try {
    parse_gguf({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "file", nullptr);
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}
bool says(const std::string& bytes, const std::string& part) {
  const std::string found = problem(bytes);
  CAPTURE(found);
  CHECK(found.starts_with("file"));
  return found.find(part) != std::string::npos;
}

struct File {
  std::string path =
      str(std::filesystem::temp_directory_path().string(), "/gguf_test-", ::getpid(), ".gguf");
  ~File() { std::filesystem::remove(path); }
};

TensorView view(DType dtype, std::vector<int64_t> shape, std::string bytes) {
  TensorView out = bytes_view(std::move(bytes));
  out.dtype = dtype;
  out.shape = std::move(shape);
  return out;
}

std::string data_of(const TensorView& view) {
  return {reinterpret_cast<const char*>(view.data), view.num_bytes};
}

}  // namespace

TEST_CASE("a written file has the bytes of the format's definition") {
  const File file;
  TensorView later = view(DType::kFloat16, {3}, "abcdef");
  later.make = [made = later] { return made; };
  later.data = nullptr;
  write_gguf(file.path,
             {{"a.b", uint32_t{7}}, {"names", GgufArray(std::vector<std::string>{"x", "yz"})}},
             {{"w", view(DType::kFloat32, {2, 3}, std::string(24, 'w'))}, {"v", later}});
  // A tensor's innermost dimension comes first.
  const std::string header = head(2, 2) + gguf_text("a.b") + u32(4) + u32(7) + gguf_text("names") +
                             u32(9) + u32(8) + u64(2) + gguf_text("x") + gguf_text("yz") +
                             tensor("w", {3, 2}, 0, 0) + tensor("v", {3}, 1, 32);
  CHECK(read_file(file.path) == padded(header) + padded(std::string(24, 'w')) + padded("abcdef"));
}

TEST_CASE("keys of every type and tensors of every type read back equal") {
  const File file;
  const GgufKeys keys = {{"u8", uint8_t{200}},
                         {"i8", int8_t{-3}},
                         {"u16", uint16_t{60000}},
                         {"i16", int16_t{-300}},
                         {"u32", uint32_t{4000000000}},
                         {"i32", int32_t{-70000}},
                         {"f32", 0.1f},
                         {"no", false},
                         {"yes", true},
                         {"text", std::string("a\0b", 3)},
                         {"u64", uint64_t{1} << 63},
                         {"i64", int64_t{INT64_MIN}},
                         {"f64", 0.1},
                         {"flags", GgufArray(std::vector<bool>{true, false, true})},
                         {"ids", GgufArray(std::vector<int32_t>{1, -2, 3})},
                         {"scores", GgufArray(std::vector<float>{-1.5f, 0})},
                         {"empty", GgufArray(std::vector<std::string>{})},
                         {"words", GgufArray(std::vector<std::string>{"", "ü"})}};
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                            DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64})
    tensors.emplace_back("t." + std::string(dtype_name(dtype)),
                         view(dtype, {1, 3}, std::string(3 * dtype_size(dtype), 'a')));
  tensors.emplace_back("scalar", view(DType::kFloat32, {}, "1234"));
  tensors.emplace_back("empty", view(DType::kFloat32, {0, 5}, ""));
  write_gguf(file.path, keys, tensors);
  const GgufFile read = read_gguf(file.path);
  CHECK(read.keys == keys);
  CHECK(std::get<int32_t>(*read.find("i32")) == -70000);
  CHECK(read.find("absent") == nullptr);
  REQUIRE(read.tensors.size() == tensors.size());
  for (const auto& [name, written] : tensors) {
    CAPTURE(name);
    const TensorView& found = read.tensors.at(name);
    CHECK(found.dtype == written.dtype);
    CHECK(found.shape == written.shape);
    CHECK(data_of(found) == data_of(written));
    CHECK(reinterpret_cast<uintptr_t>(found.data) % 32 == 0);
  }
}

TEST_CASE("a file that another alignment was given is read by it") {
  const std::string header = head(2, 1) + gguf_text("general.alignment") + u32(4) + u32(8) +
                             tensor("a", {1}, 0, 0) + tensor("b", {1}, 0, 8);
  std::string bytes = header;
  bytes.resize((bytes.size() + 7) / 8 * 8, '\0');
  bytes += "aaaa" + std::string(4, '\0') + "bbbb";
  const GgufFile file =
      parse_gguf({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "file", nullptr);
  CHECK(data_of(file.tensors.at("b")) == "bbbb");
}

TEST_CASE("what is written stays within the format") {
  const File file;
  const TensorView one = view(DType::kFloat32, {1}, "aaaa");
  CHECK_THROWS_AS(write_gguf(file.path, {}, {{std::string(64, 'n'), one}}), RunError);
  CHECK_THROWS_AS(
      write_gguf(file.path, {}, {{"n", view(DType::kFloat32, {1, 1, 1, 1, 1}, "aaaa")}}), RunError);
  CHECK_THROWS_AS(write_gguf(file.path, {}, {{"n", view(DType::kBool, {1}, "a")}}), RunError);
  TensorView short_one = one;
  short_one.make = [] { return view(DType::kFloat32, {0}, ""); };
  CHECK_THROWS_AS(write_gguf(file.path, {}, {{"n", short_one}}), RunError);
  CHECK(!std::filesystem::exists(file.path));
}

TEST_CASE("a GGUF file that claims what is not there is refused") {
  const std::string good = padded(head(1, 1) + gguf_text("k") + u32(8) + gguf_text("value") +
                                  tensor("w", {2, 2}, 0, 0)) +
                           std::string(16, 'w');
  CHECK(problem(good) == "no error");
  for (size_t size = 0; size < good.size(); ++size) {
    CAPTURE(size);
    CHECK(problem(good.substr(0, size)).starts_with("file"));
  }
  CHECK(says("GGML", "does not begin with `GGUF`"));
  CHECK(says("GGUF" + u32(1) + u64(0) + u64(0), "version 1"));
  CHECK(says(head(UINT64_MAX, 0), "18446744073709551615 items in"));
  CHECK(says(head(0, UINT64_MAX / 2), "items in 0 bytes"));
  CHECK(says(head(0, 1) + u64(UINT64_MAX) + "12345", "18446744073709551615 bytes expected"));
  const auto key = [](const std::string& value) { return head(0, 1) + gguf_text("k") + value; };
  CHECK(says(key(u32(13) + u64(0)), "value type 13"));
  CHECK(says(key(u32(9) + u32(9) + u64(0)), "value type 9"));
  CHECK(says(key(u32(9) + u32(4) + u64(UINT64_MAX / 4) + u32(1)), "items in 4 bytes"));
  CHECK(says(key(u32(9) + u32(8) + u64(2) + u64(0)), "items in 8 bytes"));
  CHECK(says(key(u32(7) + "\x02"), "`k`: 2 where 0 or 1"));
  CHECK(says(head(0, 2) + gguf_text("k") + u32(4) + u32(1) + gguf_text("k") + u32(4) + u32(1),
             "`k`: is there twice"));
}

TEST_CASE("a GGUF tensor that lies outside its file, or on another, is refused") {
  const auto file = [](const std::string& tensors, uint64_t count, size_t data) {
    return padded(head(count, 0) + tensors) + std::string(data, 'w');
  };
  CHECK(problem(file(tensor("w", {4}, 0, 0), 1, 16)) == "no error");
  CHECK(says(file(tensor("w", {4}, 0, 0), 1, 15), "16 bytes lie outside"));
  CHECK(says(file(tensor("w", {4}, 0, 32), 1, 64), "lies at byte 32 of the data, expected 0"));
  CHECK(says(file(tensor("a", {4}, 0, 0) + tensor("b", {4}, 0, 0), 2, 64),
             "tensor `b`: lies at byte 0"));
  CHECK(says(file(tensor("a", {4}, 0, 0) + tensor("a", {4}, 0, 32), 2, 64),
             "tensor `a`: is there twice"));
  CHECK(says(file(tensor("w", {UINT64_MAX}, 0, 0), 1, 16), "a size below 0, or too large"));
  CHECK(says(file(tensor("w", {INT64_MAX, INT64_MAX}, 0, 0), 1, 16), "too large"));
  CHECK(says(file(tensor("w", {1, 1, 1, 1, 1}, 0, 0), 1, 16), "5 dimensions"));
  CHECK(says(file(tensor("w", {256}, 23, 0), 1, 136), "tensor `w`: type IQ4_XS is not supported"));
  CHECK(says(file(tensor("w", {32}, 77, 0), 1, 18), "tensor `w`: type 77 is not supported"));
  CHECK(problem(file(tensor("w", {32, 2}, 2, 0), 1, 36)) == "no error");
  CHECK(says(file(tensor("w", {32, 2}, 2, 0), 1, 35), "36 bytes lie outside"));
  CHECK(says(file(tensor("w", {16, 2}, 2, 0), 1, 36), "rows of 16 values in Q4_0"));
  CHECK(says(file(tensor("w", {uint64_t{1} << 62, 1}, 8, 0), 1, 36), "lie outside"));
  CHECK(says(file(tensor("w", {uint64_t{1} << 62, 4}, 8, 0), 1, 36), "too large"));
  const auto aligned = [](uint32_t alignment) {
    return padded(head(0, 1) + gguf_text("general.alignment") + u32(4) + u32(alignment));
  };
  CHECK(problem(aligned(64)) == "no error");
  CHECK(says(aligned(0), "`general.alignment`"));
  CHECK(says(aligned(24), "`general.alignment`"));
}
