#include <ATen/ATen.h>

#include <filesystem>
#include <iostream>

#include "temper/base/error.h"
#include "temper/cli/parts/work.h"
#include "temper/io/safetensors.h"
#include "temper/models/files/save.h"
#include "temper/models/files/stream.h"

namespace temper::cli {

namespace {

class Init : public Command {
 public:
  void declare(Flags& f) override;
  int run() override;

 private:
  std::string config_path, tokenizer, output, dtype = "float32";
  int64_t seed = 0;
};

void Init::declare(Flags& f) {
  f.about(
      "A model of random weights, initialized as transformers does.\n"
      "example: temper init --config config.json --tokenizer DIR --seed 1 --output models/tiny");
  f.add("--config", config_path, "config.json, or a directory that holds it", required());
  f.add("--tokenizer", tokenizer, "directory whose tokenizer files are copied");
  add_written_dtype(f, dtype);
  f.add("--seed", seed, "the same seed gives the same weights", at_least(0));
  f.add("--output", output, "the new model directory", required());
}

int Init::run() {
  namespace fs = std::filesystem;
  const models::HfConfig config = models::HfConfig::load(config_path);
  check<ConfigError>(tokenizer.empty() || fs::is_directory(tokenizer), "--tokenizer ", tokenizer,
                     ": no such directory");
  check<ConfigError>(tokenizer.empty() || fs::is_regular_file(tokenizer + "/tokenizer.json") ||
                         fs::is_regular_file(tokenizer + "/tokenizer.model"),
                     "--tokenizer ", tokenizer,
                     ": found no tokenizer.json, nor a tokenizer.model; expected one of them, not "
                     "compressed");
  std::error_code ignored;
  check<ConfigError>(!fs::exists(output, ignored) || fs::is_directory(output, ignored), "--output ",
                     output, ": is a file");
  for (const char* weights : {"/model.safetensors", "/model.safetensors.index.json"})
    check<ConfigError>(!fs::exists(output + weights, ignored), "--output ", output,
                       ": holds a model already; remove it or choose another");
  const at::ScalarType type = scalar_type_of(dtype);
  const auto model = models::make_model(config);
  const auto tensors = models::init_tensors(*model, config, static_cast<uint64_t>(seed), type);
  int64_t parameters = 0, bytes = 0;
  for (const auto& [name, view] : tensors) {
    const auto size = static_cast<int64_t>(view.num_bytes);
    parameters += size / static_cast<int64_t>(dtype_size(view.dtype));
    bytes += size;
  }
  fs::create_directories(output);
  const int64_t free = static_cast<int64_t>(fs::space(output).available);
  check<ConfigError>(bytes <= free, config.where(), ": a model of these sizes takes ",
                     bytes / 1000000, " MB, and ", free / 1000000, " MB are free at ", output);
  write_safetensors_model(output, tensors);
  // config.json is written last: a directory whose writing was interrupted is no model.
  models::write_model_files({.config = config_path, .others = tokenizer}, output, type);
  std::cout << output << ": " << config.model_type() << ", " << parameters << " parameters\n";
  return 0;
}

}  // namespace

std::unique_ptr<Command> init_command() { return std::make_unique<Init>(); }

}  // namespace temper::cli
