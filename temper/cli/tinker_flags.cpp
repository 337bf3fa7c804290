#include "temper/cli/tinker_flags.h"

#include <filesystem>

#include "temper/base/error.h"
#include "temper/models/files/load.h"

namespace temper::cli {

void TinkerFlags::add(Flags& f) {
  f.add("--tinker", enabled,
        "answer the Tinker API (training as a service) below /api/v1/ as well: clients train LoRA "
        "adapters on the model and sample from them (docs/tinker.md)");
  const auto add = [&](const char* name, auto& value, const char* help, const Rule& rule = {}) {
    f.add(name, value, str("with --tinker: ", help), rule);
    f.needs(name, "--tinker");
  };
  add("--model-name", names_,
      "a further name of the base model for Tinker clients, as in Qwen/Qwen3-8B; may be repeated");
  add("--state-dir", state_directory,
      "directory of what clients save; a server that is started on it again finds it all (default: "
      "~/.local/state/temper/tinker)");
  add("--max-adapters", most_models_, "maximum number of adapters in training", between(1, 65536));
  add("--adapter-bytes", options_.adapter_bytes,
      "maximum memory of the adapters in training, with gradients and moments; 0: a quarter of the "
      "usable memory",
      at_least(0));
  add("--max-rank", options_.most_rank, "maximum rank of an adapter", between(1, 65536));
  add("--session-seconds", options_.idle_seconds,
      "seconds without a request after which a client's session ends", between(1, 1e9));
}

tinker::ServiceOptions TinkerFlags::options(const ModelFlags& model,
                                            const std::vector<std::string>& served_names) {
  check<ConfigError>(model.adapter.empty() && model.named.empty(),
                     "--adapter: expected none with --tinker: adapters are those of clients");
  if (state_directory.empty()) state_directory = tinker::default_state_directory();
  tinker::ServiceOptions options = options_;
  options.most_models = static_cast<size_t>(most_models_);
  std::filesystem::path path = std::filesystem::absolute(model.model).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string known = models::public_name(model.model).name;
  options.model_directory = path;
  options.names = names_;
  options.names.insert(options.names.end(), served_names.begin(), served_names.end());
  options.names.push_back(known == model.model ? path.filename().string() : known);
  options.paths = {model.model, path, path.filename()};
  return options;
}

}  // namespace temper::cli
