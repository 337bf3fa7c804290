// Any bytes as a config file: they load, or are a ConfigError; what loads is dumped and loads to
// the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "temper/base/error.h"
#include "temper/base/run_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const YamlNode node = parse_yaml(text, "fuzz.yaml");
    if (dump_yaml(parse_yaml(dump_yaml(node), "dump")) != dump_yaml(node)) std::abort();
    RunConfig config;
    read_fields(node, "", Fields::of(config));
    const std::string dump = dump_run_config(config);
    RunConfig again;
    read_fields(parse_yaml(dump, "dump"), "", Fields::of(again));
    if (dump_run_config(again) != dump) std::abort();
  } catch (const ConfigError& e) {
    if (std::string_view(e.what()).find('\n') != std::string_view::npos) std::abort();  // one line
  }
  return 0;
}
