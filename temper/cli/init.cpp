#include <ATen/ATen.h>

#include <filesystem>
#include <iostream>

#include "temper/base/error.h"
#include "temper/cli/options.h"
#include "temper/models/load.h"

namespace temper::cli {

namespace {

class Init : public Command {
 public:
  void declare(CLI::App& app) override;
  int run() override;

 private:
  std::string config_path, tokenizer, output;
  uint64_t seed = 0;
};

void Init::declare(CLI::App& app) {
  app.description(
      "A model of random weights, initialised as transformers does.\n"
      "example: temper init --config config.json --tokenizer DIR --seed 1 --output models/tiny");
  app.add_option("--config", config_path, "config.json, or a directory that holds it")->required();
  app.add_option("--tokenizer", tokenizer, "directory whose tokenizer files are copied");
  app.add_option("--seed", seed, "the same seed gives the same weights");
  app.add_option("--output", output, "the new model directory")->required();
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
  check<ConfigError>(!fs::exists(output + "/model.safetensors", ignored), "--output ", output,
                     ": holds a model already; remove it or choose another");
  const auto model = models::init_model(config, seed);
  models::write_model_files({.config = config_path, .others = tokenizer}, output, at::kFloat);
  models::save_weights(*model, output, at::kFloat);
  int64_t parameters = 0;
  model->each_parameter(
      [&](const std::string&, nn::Parameter& p) { parameters += p.value().numel(); });
  std::cout << output << ": " << config.model_type() << ", " << parameters << " parameters\n";
  return 0;
}

}  // namespace

std::unique_ptr<Command> init_command() { return std::make_unique<Init>(); }

}  // namespace temper::cli
