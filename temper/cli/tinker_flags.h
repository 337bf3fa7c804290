// What `serve` takes for the Tinker API (docs/tinker.md).
#pragma once

#include <string>
#include <vector>

#include "temper/cli/parts/work.h"
#include "temper/tinker/service/service.h"

namespace temper::cli {

struct TinkerFlags {
  bool enabled = false;
  std::string state_directory;  // a default one is filled in by options()

  void add(Flags& f);
  // The service on the model of `model`, which clients may name by `served_names`, too. Throws
  // ConfigError where the model has adapters of its own.
  tinker::ServiceOptions options(const ModelFlags& model,
                                 const std::vector<std::string>& served_names);

 private:
  std::vector<std::string> names_;
  tinker::ServiceOptions options_;  // limits
  int64_t most_models_ = static_cast<int64_t>(options_.most_models);
};

}  // namespace temper::cli
