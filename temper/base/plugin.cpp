#include "temper/base/plugin.h"

#include <dlfcn.h>

#include <filesystem>

namespace temper {
namespace {
const char kInThisLibrary = 0;  // its address tells where this library lies
}

std::string file_beside_library(const std::string& file) {
  Dl_info self{};
  if (dladdr(&kInThisLibrary, &self) == 0) return {};
  const auto path = std::filesystem::path(self.dli_fname).parent_path() / file;
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? path.string() : "";
}

Plugin::Plugin(const std::string& file) : path_(file_beside_library(file)) {
  if (path_.empty()) return;
  handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) problem_ = dlerror();
}

void* Plugin::symbol(const char* name) {
  void* found = handle_ != nullptr ? dlsym(handle_, name) : nullptr;
  if (handle_ != nullptr && found == nullptr)
    problem_ = path_ + " belongs to another version of Temper: it has no " + name;
  return found;
}

}  // namespace temper
