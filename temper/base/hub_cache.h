// The Hugging Face cache on this machine, which `temper fetch` (http/hub_fetch.h) and Hugging
// Face's libraries fill. Nothing is downloaded here.
#pragma once

#include <string>
#include <string_view>

namespace temper {

enum class HubKind { kModel, kDataset };

// A part of a hub id: 1 to 96 letters, digits, '-', '_' and '.', beginning with none of the last
// three but '_'.
bool is_hub_name(std::string_view text);
// "org/name".
bool is_hub_id(std::string_view text);

// $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
// ~/.cache/huggingface/hub: the first whose variable is set.
std::string hub_cache_directory();

// The commit that refs/main of a cached repository names. Throws ConfigError.
std::string hub_main_commit(const std::string& repository);

// The directory of the cached snapshot of `id` (org/name): of the commit `revision`, or, where that
// is no commit, of `main`. Throws ConfigError with the command that downloads it, where it is not
// in the cache.
std::string hub_snapshot(HubKind kind, const std::string& id, const std::string& revision = "");

// Where the cache has the repository of `id`.
std::string hub_repository(HubKind kind, const std::string& id);

// The command that downloads it: "temper fetch org/name --dataset".
std::string hub_fetch_command(HubKind kind, const std::string& id,
                              const std::string& revision = "");

}  // namespace temper
