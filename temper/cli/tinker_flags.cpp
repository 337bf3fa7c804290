#include "temper/cli/tinker_flags.h"

#include <filesystem>

#include "temper/base/error.h"
#include "temper/models/files/load.h"

namespace temper::cli {

void TinkerFlags::add(CLI::App& app) {
  app.add_flag("--tinker", enabled,
               "answer the Tinker API (training as a service) below /api/v1/ as well: clients "
               "train LoRA adapters on the model and sample from them (docs/tinker.md)");
  const auto with_tinker = [](CLI::Option* option) { return option->needs("--tinker"); };
  with_tinker(app.add_option("--model-name", names_,
                             "with --tinker: a further name of the base model for Tinker "
                             "clients, as in Qwen/Qwen3-8B; may be repeated"))
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  with_tinker(app.add_option("--state-dir", state_directory,
                             "with --tinker: directory of what clients save; a server that is "
                             "started on it again finds it all (default: "
                             "~/.local/state/temper/tinker)"));
  with_tinker(app.add_option("--max-adapters", options_.most_models,
                             "with --tinker: maximum number of adapters in training"))
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  with_tinker(app.add_option("--adapter-bytes", options_.adapter_bytes,
                             "with --tinker: maximum memory of the adapters in training, with "
                             "gradients and moments; 0: a quarter of the usable memory"))
      ->check(non_negative());
  with_tinker(
      app.add_option("--max-rank", options_.most_rank, "with --tinker: maximum rank of an adapter"))
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  with_tinker(app.add_option("--session-seconds", options_.idle_seconds,
                             "with --tinker: seconds without a request after which a client's "
                             "session ends"))
      ->check(any_number())
      ->check(CLI::Range(1.0, 1e9));
}

tinker::ServiceOptions TinkerFlags::options(const ModelFlags& model,
                                            const std::vector<std::string>& served_names) {
  check<ConfigError>(model.adapter.empty() && model.named.empty(),
                     "--adapter: expected none with --tinker: adapters are those of clients");
  if (state_directory.empty()) state_directory = tinker::default_state_directory();
  tinker::ServiceOptions options = options_;
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
