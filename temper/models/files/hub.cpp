// Model ids of the Hugging Face hub, found in the cache that its own tools fill.
#include <filesystem>

#include "temper/base/error.h"
#include "temper/base/hub_cache.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/load.h"

namespace temper::models {
namespace fs = std::filesystem;

std::string resolve_model_path(const std::string& path, const std::string& revision) {
  std::error_code ignored;
  // HfConfig::load() takes a config.json too, whose model would then lack its weights.
  check<ConfigError>(!path.ends_with(".json") || !fs::is_regular_file(path, ignored), path,
                     ": found a file, expected a model directory", no_model_hint(path));
  check<ConfigError>(!path.ends_with(".gguf") || fs::exists(path, ignored), path, ": no such file");
  if (fs::exists(path, ignored) || !is_hub_id(path))
    return path;  // what reads it says what is wrong with it
  const std::string snapshot = hub_snapshot(HubKind::kModel, path, revision);
  check<ConfigError>(fs::exists(snapshot + "/config.json", ignored), path, ": its snapshot ",
                     snapshot, " has no config.json; fetch it again with `",
                     hub_fetch_command(HubKind::kModel, path, revision), "`");
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
  if (!is_hub_id(id)) return {path, ""};
  std::string main = commit;  // where the cache does not say
  try {
    main = hub_main_commit(repository.string());
  } catch (const Error&) {
  }
  return {id, main == commit ? "" : commit};
}

}  // namespace temper::models
