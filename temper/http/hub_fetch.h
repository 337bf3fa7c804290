// Downloads repositories of a hub into the local cache, laid out as huggingface_hub does:
//   models--ORG--NAME/refs/REVISION           the commit
//   models--ORG--NAME/blobs/ETAG              files by what they hold
//   models--ORG--NAME/snapshots/COMMIT/PATH   links to them
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "temper/base/hub_cache.h"

namespace temper::http {

struct HubFetch {
  HubKind kind = HubKind::kModel;
  std::string id, revision = "main";  // a branch, a tag or a commit
  std::vector<std::string> include;   // patterns of paths (base/glob.h); empty: all
  std::string endpoint = "https://huggingface.co";
  std::string token;            // sent to the endpoint's host alone; empty: none
  double timeout_seconds = 60;  // longest pause of a server
  // Called with what has come since the last call: bytes, and files that are whole.
  std::function<void(int64_t files, int64_t bytes)> progress = [](int64_t, int64_t) {};
  std::function<void(int64_t files)> begun = [](int64_t) {};  // how many there are
};

// Gives the snapshot's directory. A file that a call did not finish is continued by the next one.
// Throws ConfigError for an id, revision or pattern that names nothing and for what may not be
// read, RunError for what fails on the way, or does not have the size and digest (SHA-256, or
// git's SHA-1) that the hub says.
std::string fetch_from_hub(const HubFetch& what);

}  // namespace temper::http
