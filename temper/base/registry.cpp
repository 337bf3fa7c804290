#include "temper/base/registry.h"

#include "temper/base/config/config.h"
#include "temper/base/error.h"

namespace temper::registry_detail {

// characters of an unknown name in a message; the name may come from a file
constexpr size_t kLongestQuoted = 80;

void fail_taken(std::string_view kind, std::string_view name) {
  throw ConfigError(str(kind, " `", name, "` exists already"));
}

void fail_unknown(std::string_view kind, std::string_view name,
                  const std::vector<std::string>& known, std::string_view where) {
  const std::string_view quoted = name.substr(0, kLongestQuoted);
  std::string all;
  for (const std::string& k : known) all += (all.empty() ? "" : ", ") + k;
  std::string message = str(where, where.empty() ? "" : ": ", "unknown ", kind, " `", quoted, "`");
  if (known.empty()) throw ConfigError(message + "; there is none");
  throw ConfigError(str(message, "; expected one of ", all, did_you_mean(quoted, known)));
}

}  // namespace temper::registry_detail
