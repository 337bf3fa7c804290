#include "temper/base/plugin.h"

#include <dlfcn.h>

#include <filesystem>

namespace temper {
namespace {
const char kInThisLibrary = 0;  // its address tells where this library lies
}

Plugin::Plugin(const std::string& file) {
  Dl_info self{};
  if (dladdr(&kInThisLibrary, &self) == 0) return;
  const auto path = std::filesystem::path(self.dli_fname).parent_path() / file;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  path_ = path.string();
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
