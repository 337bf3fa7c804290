// Weight files: what the reference libraries wrote (tests/fuzz/make_seeds.py), and files made to
// harm.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "temper/base/error.h"
#include "temper/io/safetensors.h"
#include "temper/io/torch_file.h"
#include "temper/io/weight_files.h"
#include "tests/golden.h"
#include "tests/io/little_endian.h"

using namespace temper;

namespace {

std::string seed(const std::string& name) { return source_path("tests/fuzz/seeds/" + name); }

std::vector<float> floats(const TensorView& view) {
  std::vector<float> out(view.num_bytes / sizeof(float));
  std::memcpy(out.data(), view.data, view.num_bytes);
  return out;
}

template <class Parse>
std::string problem_of(Parse parse, const std::string& bytes) {
  try {
    parse({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "file", nullptr);
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

// A safetensors file of this header and so many bytes of data.
std::string safetensors(const std::string& header, size_t data) {
  return little_endian(header.size()) + header + std::string(data, '\0');
}

// Pickles as torch.save wrote them before its zip form: `object` is a pickle's opcodes, `keys`
// those of the list of storages.
std::string legacy(const std::string& object, const std::string& keys = "]",
                   const std::string& storages = "") {
  const std::string protocol("\x80\x02", 2);
  return protocol + std::string("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 13) +
         protocol + "K\x01." + protocol + "}." + protocol + object + "." + protocol + keys + "." +
         storages;
}
std::string text(const std::string& value) { return "X" + little_endian(value.size(), 4) + value; }
const std::string kKeep0("q\x00", 2), kGet0("h\x00", 2), kKeep1("q\x01", 2), kGet1("h\x01", 2);
// A storage of so many floats under `key`.
std::string storage(const std::string& key, uint64_t count) {
  return "(" + text("storage") + "ctorch\nFloatStorage\n" + text(key) + text("cpu") + "J" +
         little_endian(count, 4) + "tQ";
}
// One more item of the dict on the stack: a tensor over the storage in memo entry 0, called by the
// global in memo entry 1.
std::string tensor_item(const std::string& name, uint64_t rows, uint64_t stride) {
  const std::string zero("K\x00", 2);
  return text(name) + kGet1 + "(" + kGet0 + zero + "(J" + little_endian(rows, 4) + "t(J" +
         little_endian(stride, 4) + "tt" + "Rs";
}
const std::string kRebuild = "ctorch._utils\n_rebuild_tensor\n";

int64_t peak_megabytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss >> 10;
}

}  // namespace

TEST_CASE("safetensors and both forms of torch.save give the tensors that the references wrote") {
  const TensorMap stored = read_safetensors(seed("safetensors/small"));
  CHECK(stored.size() == 2);
  CHECK(floats(stored.at("a")) == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(stored.at("a").shape == std::vector<int64_t>{2, 3});
  CHECK(stored.at("b").dtype == DType::kBFloat16);
  for (const char* name : {"pickle/zip", "pickle/legacy"}) {
    CAPTURE(name);
    const TensorMap saved = read_torch_file(seed(name));
    CHECK(saved.size() == 5);
    CHECK(floats(saved.at("a")) == floats(stored.at("a")));
    CHECK(std::memcmp(saved.at("b").data, stored.at("b").data, 4) == 0);
    CHECK(floats(saved.at("t")) == std::vector<float>{0, 3, 1, 4, 2, 5});
    CHECK(saved.at("t").shape == std::vector<int64_t>{3, 2});
    CHECK(floats(saved.at("e")) == std::vector<float>{0, 0, 0, 0});
    CHECK(floats(saved.at("p")) == std::vector<float>{1});
  }
}

TEST_CASE("a safetensors header that claims what is not there is refused") {
  const auto problem = [](const std::string& bytes) {
    return problem_of(parse_safetensors, bytes);
  };
  const auto entry = [](const std::string& shape, const std::string& offsets) {
    return R"({"w": {"dtype": "F32", "shape": )" + shape + R"(, "data_offsets": )" + offsets + "}}";
  };
  CHECK(problem(safetensors(entry("[2]", "[0, 8]"), 8)) == "no error");
  CHECK(problem("\x08") == "file: 1 bytes; a safetensors file has at least 8");
  CHECK(problem(little_endian(UINT64_MAX) + "{}")
            .find("the header claims 18446744073709551615 bytes") != std::string::npos);
  CHECK(problem(safetensors(entry("[2]", "[0, 8]"), 7))
            .find("tensor `w`: bytes 0 to 8 lie outside") != std::string::npos);
  CHECK(problem(safetensors(entry("[2]", "[8, 0]"), 8)).find("lie outside") != std::string::npos);
  CHECK(problem(safetensors(entry("[3]", "[0, 8]"), 8)).find("do not hold shape [3]") !=
        std::string::npos);
  CHECK(problem(safetensors(entry("[4294967296, 4294967296]", "[0, 0]"), 0))
            .find("do not hold shape") != std::string::npos);
  CHECK(problem(safetensors(entry("[-1]", "[0, 8]"), 8)).find("size -1 in `shape`") !=
        std::string::npos);
  CHECK(problem(safetensors(entry("[2]", "[0, 8]"), 9)) == "file: 1 bytes after the last tensor");
  CHECK(problem(safetensors("[" + std::string(100000, '['), 0)).find("nested deeper") !=
        std::string::npos);
}

TEST_CASE("a safetensors header that lists a name twice is refused, however it spells the name") {
  const std::string entry = R"({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})";
  const auto problem = [](const std::string& header) {
    return problem_of(parse_safetensors, safetensors(header, 8));
  };
  CHECK(problem(R"({"w\\\"{:": )" + entry + "}") == "no error");
  CHECK(problem(R"({"w": )" + entry + R"(, "w": )" + entry + "}") ==
        "file: tensor `w` is listed twice in the header");
  CHECK(problem(R"({"w": )" + entry + R"(, "\u0077": )" + entry + "}").find("listed twice") !=
        std::string::npos);
  CHECK(problem(R"({"__metadata__": {"a": "b:"}, "w": )" + entry + "}") == "no error");
}

TEST_CASE("a pickle may nest to any depth and hold itself") {
  const auto problem = [](const std::string& bytes) { return problem_of(parse_torch_file, bytes); };
  // ((((...)))): freed by recursion it would overflow the stack.
  CHECK(problem(legacy(")" + std::string(1'000'000, '\x85'))) ==
        "file: expected a dict of tensors");
  CHECK(problem(legacy("]" + kKeep0 + kGet0 + "a")) ==
        "file: expected a dict of tensors");  // a leak if lists shared ownership
}

TEST_CASE("a small pickle cannot ask for much memory") {
  const auto problem = [](const std::string& bytes) { return problem_of(parse_torch_file, bytes); };
  const std::string keys = "]" + text("k") + "a",
                    data = little_endian(1024) + std::string(4096, '\0');
  const std::string begin = storage("k", 1024) + kKeep0 + "0" + kRebuild + kKeep1 + "0}";
  CHECK(problem(legacy(begin + tensor_item("w", 1024, 1), keys, data)) == "no error");
  CHECK(problem(legacy(begin + tensor_item("w", 1024, 0), keys, data)) == "no error");
  CHECK(problem(legacy(begin + tensor_item("w", 1025, 1), keys, data))
            .find("reaches past its storage") != std::string::npos);
  CHECK(problem(legacy(begin + tensor_item("w", 1u << 28, 0), keys, data))
            .find("an expanded tensor") != std::string::npos);
  // Each of these is within what one may take.
  std::string many = begin;
  for (int i = 0; i < 100; ++i) many += tensor_item("w" + std::to_string(i), 16384, 0);
  CHECK(problem(legacy(many, keys, data)).find("an expanded tensor") != std::string::npos);
  // One long key in many tensors.
  const std::string long_key(1 << 18, 'k');
  std::string named = storage(long_key, 1024) + kKeep0 + "0" + kRebuild + kKeep1 + "0}";
  for (int i = 0; i < 4000; ++i) named += tensor_item("w" + std::to_string(i), 1024, 1);
  const int64_t before = peak_megabytes();
  CHECK(problem(legacy(named, "]" + text(long_key) + "a", data)) == "no error");
  CHECK(peak_megabytes() - before < 300);
}

TEST_CASE("a pickle that asks for code is refused by name") {
  CHECK(problem_of(parse_torch_file, legacy("cos\nsystem\n" + text("true") + "\x85R"))
            .find("asks for `os.system`") != std::string::npos);
}

TEST_CASE("an index names shards of its own directory") {
  namespace fs = std::filesystem;
  const std::string directory =
      fs::temp_directory_path() / ("temper-index-" + std::to_string(::getpid()));
  fs::create_directories(directory);
  fs::copy_file(seed("safetensors/small"), directory + "/s", fs::copy_options::overwrite_existing);
  const auto problem = [&](const std::string& index) -> std::string {
    std::ofstream(directory + "/model.safetensors.index.json") << index;
    try {
      return std::to_string(read_weights(directory).size());
    } catch (const DataError& e) {
      return e.what();
    }
  };
  CHECK(problem(R"({"weight_map": {"a": "s", "b": "s"}})") == "2");
  CHECK(problem(R"({"weight_map": {"a": "../s"}})")
            .find("is not the name of a file in this directory") != std::string::npos);
  CHECK(problem(R"({"weight_map": {"c": "s"}})").find("tensor `c` is not in `s`") !=
        std::string::npos);
  CHECK(problem(R"({"weight_map": {"a": "t"}})").find("shard `t` is missing") != std::string::npos);
  CHECK(problem(R"({"weight_map": 3})").find("`weight_map` is missing") != std::string::npos);
  CHECK(problem(R"({"weight_map": {"a": "."}})").find("is a directory") != std::string::npos);
  fs::remove_all(directory);
}

TEST_CASE(
    "a weight file that is written to while it is mapped is noticed; another in its place is not") {
  namespace fs = std::filesystem;
  const fs::path directory = fs::temp_directory_path() / "temper_mapped_test";
  fs::remove_all(directory);
  fs::create_directories(directory);
  const fs::path path = directory / "model.safetensors";
  const auto write = [](const fs::path& to, const std::string& bytes) {
    std::ofstream(to, std::ios::binary) << bytes;
  };
  const std::string good =
      safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  write(path, good);
  {
    MappedFiles files;
    const TensorMap tensors = read_weights(directory.string(), &files);
    CHECK(!files.changed());
    files.check_unchanged();
    write(directory / "new", good);
    fs::rename(directory / "new", path);
    CHECK(!files.changed());
  }
  MappedFiles files;
  TensorMap tensors = read_weights(directory.string(), &files);
  write(path, good + "more");
  CHECK(files.changed());
  CHECK_THROWS_WITH_AS(files.check_unchanged(), doctest::Contains("model.safetensors"), RunError);
  tensors.clear();  // nothing is mapped any more
  CHECK(!files.changed());
  fs::remove_all(directory);
}
