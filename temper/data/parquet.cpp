#include "temper/data/parquet.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>

#include "temper/base/errno_text.h"
#include "temper/base/error.h"
#include "temper/data/parquet/plugin.h"

namespace temper::data {
namespace {

struct Plugin {
  decltype(&temper_parquet_rows) rows = nullptr;
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
  plugin.rows = reinterpret_cast<decltype(plugin.rows)>(dlsym(library, "temper_parquet_rows"));
  plugin.arrow_version = reinterpret_cast<decltype(plugin.arrow_version)>(
      dlsym(library, "temper_parquet_arrow_version"));
  if (!plugin.rows || !plugin.arrow_version)
    plugin = {.problem = path.string() + ": of another version"};
  return plugin;
}

const Plugin& plugin() {
  static const Plugin loaded = load_plugin();
  return loaded;
}

struct Conversion {
  UnpackedFile out;
  std::exception_ptr problem;
};

// No exception may cross the plugin, whose C++ library may be another.
int write_rows(void* context, const char* bytes, size_t size) {
  auto& conversion = *static_cast<Conversion*>(context);
  try {
    conversion.out.write(bytes, static_cast<int64_t>(size));
    return 0;
  } catch (...) {
    conversion.problem = std::current_exception();
    return 1;
  }
}

}  // namespace

FileDescriptor open_parquet(const std::string& path, const UnpackLimits& limits) {
  std::error_code ignored;
  check<DataError>(!std::filesystem::is_directory(path, ignored), path,
                   ": is a directory, expected a file of rows");
  check<DataError>(std::ifstream(path).good(), path, ": cannot open: ", errno_text);
  check<DataError>(plugin().problem.empty(), path, ": the reader of Parquet does not load (",
                   plugin().problem,
                   "); run tools/setup.sh and build again, or convert the file to JSONL");
  check<DataError>(plugin().rows != nullptr, path,
                   ": Parquet is not in this build; convert it to JSONL (pandas: df.to_json(path, "
                   "orient='records', lines=True))");
  Conversion conversion{UnpackedFile(path, limits), {}};
  char error[2048] = "";
  const int status = plugin().rows(path.c_str(), &write_rows, &conversion, error, sizeof error);
  if (conversion.problem) std::rethrow_exception(conversion.problem);
  check<DataError>(status == 0, path, error);
  return conversion.out.release();
}

const char* arrow_version() {
  return plugin().arrow_version != nullptr ? plugin().arrow_version() : nullptr;
}

}  // namespace temper::data
