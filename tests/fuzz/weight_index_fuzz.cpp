// Any bytes as model.safetensors.index.json beside one good shard: read, or a DataError. Seed:
// tests/fuzz/seeds/weight_index.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "temper/base/error.h"
#include "temper/io/weight_files.h"

namespace {
struct Directory {
  std::string path =
      std::filesystem::temp_directory_path() / ("temper-fuzz-index-" + std::to_string(::getpid()));
  Directory() {
    static const std::byte zeros[16]{};
    std::filesystem::create_directories(path);
    temper::write_safetensors(path + "/a.safetensors",
                              {{"x", {temper::DType::kFloat32, {4}, zeros, 16, nullptr}},
                               {"y", {temper::DType::kInt8, {2}, zeros, 2, nullptr}}});
  }
  ~Directory() { std::filesystem::remove_all(path); }
};
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Directory directory;
  std::ofstream(directory.path + "/model.safetensors.index.json", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    for (const auto& [name, view] : temper::read_weights(directory.path))
      if (name != "x" && name != "y") std::abort();  // nothing else is in the shard
  } catch (const temper::DataError&) {
  }
  return 0;
}
