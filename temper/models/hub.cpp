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

std::string resolve_model_path(const std::string& path, const std::string& revision) {
  std::error_code ignored;
  const size_t slash = path.find('/');
  if (fs::exists(path, ignored) || slash == std::string::npos ||
      !is_word(std::string_view(path).substr(0, slash)) ||
      !is_word(std::string_view(path).substr(slash + 1)))
    return path;  // what reads it says what is wrong with it
  const std::string cache = hub_cache_directory();
  const std::string repository =
      cache + "/models--" + path.substr(0, slash) + "--" + path.substr(slash + 1);
  const bool by_commit = is_word(revision);
  const std::string fetch =
      str("`hf download ", path, by_commit ? " --revision " + revision : "", "`");
  check<ConfigError>(fs::exists(repository + (by_commit ? "/snapshots" : "/refs/main"), ignored),
                     path, ": neither a directory nor a model in the Hugging Face cache ", cache,
                     "; fetch it with ", fetch, ", or set HF_HOME to where it is cached");
  const std::string snapshot =
      repository + "/snapshots/" + (by_commit ? revision : main_commit(repository));
  check<ConfigError>(fs::exists(snapshot + "/config.json", ignored), path, ": its snapshot ",
                     snapshot, " has no config.json; fetch it again with ", fetch);
  return snapshot;
}

PublicName public_name(const std::string& path) {
  constexpr std::string_view kRepository = "models--", kBetween = "--";
  const fs::path snapshot = fs::path(path + "/").lexically_normal().parent_path();
  const fs::path repository = snapshot.parent_path().parent_path();
  const std::string folder = repository.filename().string(), commit = snapshot.filename().string();
  if (snapshot.parent_path().filename() != "snapshots" || !folder.starts_with(kRepository))
    return {path, ""};
  std::string id = folder.substr(kRepository.size());
  // Where an organization's name has the separator too, the hub's tools split at the first one.
  const size_t between = id.find(kBetween);
  if (between == id.npos) return {path, ""};
  id.replace(between, kBetween.size(), "/");
  if (!is_word(std::string_view(id).substr(0, between)) ||
      !is_word(std::string_view(id).substr(between + 1)))
    return {path, ""};
  std::string main = commit;  // where the cache does not say
  try {
    main = main_commit(repository.string());
  } catch (const Error&) {
  }
  return {id, main == commit ? "" : commit};
}

}  // namespace temper::models
