// Plugins: shared libraries that lie beside this one and are loaded at their first use. Who does
// not use one need not build it, and nobody else waits for what it links.
#pragma once

#include <string>

namespace temper {

// The path of a file in the directory that holds this library; empty where there is none.
std::string file_beside_library(const std::string& file);

class Plugin {
 public:
  // Loads `file` ("libtemper_parquet.so") from the directory that holds this library. It is never
  // unloaded.
  explicit Plugin(const std::string& file);

  // True where the file exists, loadable or not.
  bool is_built() const { return !path_.empty(); }
  // Why the file exists and cannot be used; empty where there is no problem.
  const std::string& problem() const { return problem_; }
  // The function of that name; null, and a problem(), where the plugin does not have it.
  template <class Function>
  Function* function(const char* name) {
    return reinterpret_cast<Function*>(symbol(name));
  }

 private:
  void* symbol(const char* name);

  std::string path_, problem_;
  void* handle_ = nullptr;
};

}  // namespace temper
