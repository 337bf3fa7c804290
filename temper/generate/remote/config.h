// The config section `rollout.server`: servers that sample for a training run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/generate/config.h"

namespace temper::generate {

struct ServerSection {
  enum class Sync { kDisk, kNone };
  std::string kind = "openai";    // of remote::server_kinds()
  std::vector<std::string> urls;  // empty: this process samples
  Sync sync = Sync::kDisk;
  std::optional<std::string> weights_dir;
  std::optional<std::string> api_key_env;
  double timeout_seconds = 120;
  double wait_minutes = 0;
  void fields(Fields& f);

  bool used() const { return !urls.empty(); }
  // What api_key_env names; empty: no key. Throws ConfigError where the environment lacks it.
  std::string api_key() const;

  // A key of `rollout` that servers of this kind cannot obey, or whose value they refuse.
  struct Unsupported {
    std::string key, message;  // "rollout.logit_bias"
  };
  // The first one; none: they obey all that the section asks for.
  std::optional<Unsupported> find_unsupported(const RolloutSection& rollout) const;
};

}  // namespace temper::generate
