#include "temper/data/parquet.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/data/parquet/plugin.h"

namespace temper::data {
namespace {

struct Plugin {
  decltype(&temper_parquet_to_jsonl) to_jsonl = nullptr;
  decltype(&temper_parquet_arrow_version) arrow_version = nullptr;
  std::string problem;  // why it is there and does not load
};

Plugin load_plugin() {
  Plugin plugin;
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&load_plugin), &self) == 0) return plugin;
  const auto path = std::filesystem::path(self.dli_fname).parent_path() / "libtemper_parquet.so";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return plugin;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    plugin.problem = dlerror();
    return plugin;
  }
  plugin.to_jsonl =
      reinterpret_cast<decltype(plugin.to_jsonl)>(dlsym(library, "temper_parquet_to_jsonl"));
  plugin.arrow_version = reinterpret_cast<decltype(plugin.arrow_version)>(
      dlsym(library, "temper_parquet_arrow_version"));
  if (!plugin.to_jsonl || !plugin.arrow_version)
    plugin = {.problem = path.string() + ": of another version"};
  return plugin;
}

const Plugin& plugin() {
  static const Plugin loaded = load_plugin();
  return loaded;
}

}  // namespace

int open_parquet(const std::string& path) {
  std::error_code ignored;
  check<DataError>(!std::filesystem::is_directory(path, ignored), path,
                   ": is a directory, expected a file of rows");
  check<DataError>(std::ifstream(path).good(), path, ": cannot open: ", std::strerror(errno));
  check<DataError>(plugin().problem.empty(), path, ": the reader of Parquet does not load (",
                   plugin().problem,
                   "); run tools/setup.sh and build again, or convert the file to JSONL");
  check<DataError>(plugin().to_jsonl != nullptr, path,
                   ": Parquet is not in this build; convert it to JSONL (pandas: df.to_json(path, "
                   "orient='records', lines=True))");
  const int fd = open_temporary("temper-rows");
  char error[2048] = "";
  const int status = plugin().to_jsonl(path.c_str(), fd, error, sizeof error);
  if (status != 0) ::close(fd);
  check<DataError>(status != 1, path, error);
  check(status == 0, path, ": cannot write its rows to a temporary file: ", error, "; set TMPDIR");
  check(::lseek(fd, 0, SEEK_SET) == 0, path, ": cannot read its rows: ", std::strerror(errno));
  return fd;
}

const char* arrow_version() {
  return plugin().arrow_version != nullptr ? plugin().arrow_version() : nullptr;
}

}  // namespace temper::data
