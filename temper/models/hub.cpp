// Model ids of the Hugging Face hub, found in the cache that its own tools fill.
#include <cstdlib>
#include <filesystem>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/models/load.h"

namespace temper::models {
namespace {
namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string hub_cache_directory() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string path = variable(name); !path.empty()) return path;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return home + "/hub";
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/huggingface/hub";
  return variable("HOME") + "/.cache/huggingface/hub";
}

bool is_word(std::string_view text) {  // as the hub allows them
  if (text.empty() || text.size() > 96 || text[0] == '.' || text[0] == '-') return false;
  for (const char c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.')
      return false;
  return true;
}

// The commit that refs/main names.
std::string main_commit(const std::string& repository) {
  std::string commit = read_file(repository + "/refs/main", 4096);
  while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())))
    commit.pop_back();
  check<ConfigError>(is_word(commit), repository, "/refs/main: expected the name of a snapshot");
  return commit;
}

}  // namespace

std::string resolve_model_path(const std::string& path) {
  std::error_code ignored;
  const size_t slash = path.find('/');
  if (fs::exists(path, ignored) || slash == std::string::npos ||
      !is_word(std::string_view(path).substr(0, slash)) ||
      !is_word(std::string_view(path).substr(slash + 1)))
    return path;  // what reads it says what is wrong with it
  const std::string cache = hub_cache_directory();
  const std::string repository =
      cache + "/models--" + path.substr(0, slash) + "--" + path.substr(slash + 1);
  check<ConfigError>(fs::exists(repository + "/refs/main", ignored), path,
                     ": neither a directory nor a model in the Hugging Face cache ", cache,
                     "; fetch it with `hf download ", path,
                     "`, or set HF_HOME to where it is cached");
  const std::string snapshot = repository + "/snapshots/" + main_commit(repository);
  check<ConfigError>(fs::exists(snapshot + "/config.json", ignored), path, ": its snapshot ",
                     snapshot, " has no config.json; fetch it again with `hf download ", path, "`");
  return snapshot;
}

}  // namespace temper::models
