#include "temper/base/hub_cache.h"

#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "temper/base/error.h"
#include "temper/base/file.h"

namespace temper {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

bool is_hub_name(std::string_view text) {
  if (text.empty() || text.size() > 96 || text[0] == '.' || text[0] == '-') return false;
  for (const char c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.')
      return false;
  return true;
}

bool is_hub_id(std::string_view text) {
  const size_t slash = text.find('/');
  return slash != text.npos && is_hub_name(text.substr(0, slash)) &&
         is_hub_name(text.substr(slash + 1));
}

std::string hub_cache_directory() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string path = variable(name); !path.empty()) return path;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return home + "/hub";
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/huggingface/hub";
  return variable("HOME") + "/.cache/huggingface/hub";
}

std::string hub_main_commit(const std::string& repository) {
  std::string commit = read_file(repository + "/refs/main", 4096);
  while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())))
    commit.pop_back();
  check<ConfigError>(is_hub_name(commit), repository,
                     "/refs/main: expected the name of a snapshot");
  return commit;
}

std::string hub_fetch_command(HubKind kind, const std::string& id, const std::string& revision) {
  return str("temper fetch ", id, kind == HubKind::kDataset ? " --dataset" : "",
             is_hub_name(revision) ? " --revision " + revision : "");
}

std::string hub_repository(HubKind kind, const std::string& id) {
  const size_t slash = id.find('/');
  return str(hub_cache_directory(), kind == HubKind::kDataset ? "/datasets--" : "/models--",
             id.substr(0, slash), "--", id.substr(slash + 1));
}

std::string hub_snapshot(HubKind kind, const std::string& id, const std::string& revision) {
  const bool dataset = kind == HubKind::kDataset;
  const std::string cache = hub_cache_directory();
  const std::string repository = hub_repository(kind, id);
  const bool by_commit = is_hub_name(revision);
  std::error_code ignored;
  check<ConfigError>(
      std::filesystem::exists(repository + (by_commit ? "/snapshots" : "/refs/main"), ignored), id,
      dataset ? ": no such file, and no data set" : ": neither a directory nor a model",
      " in the Hugging Face cache ", cache, "; fetch it with `",
      hub_fetch_command(kind, id, revision), "`, or set HF_HOME to where it is cached");
  return repository + "/snapshots/" + (by_commit ? revision : hub_main_commit(repository));
}

}  // namespace temper
