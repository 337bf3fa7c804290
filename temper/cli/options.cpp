#include "temper/cli/options.h"

#include <algorithm>
#include <iostream>

#include "temper/base/error.h"

namespace temper::cli {

bool parse_flags(CLI::App& app, const Arguments& arguments) {
  Arguments reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError& e) {
    throw ConfigError(temper::str("temper ", app.get_name(), ": ", e.what(), "; see temper ", app.get_name(), " --help"));
  }
  return true;
}

void ModelFlags::add_to(CLI::App& app) {
  app.add_option("--model", model, "directory of a Hugging Face model")->required();
  app.add_option("--adapter", adapter, "directory of a PEFT LoRA adapter");
  app.add_option("--device", device, "auto, cpu or cuda")->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--dtype", dtype, "of the weights in products: float32 or bfloat16; sums are float32")->check(CLI::IsMember({"float32", "bfloat16"}));
}

}  // namespace temper::cli
