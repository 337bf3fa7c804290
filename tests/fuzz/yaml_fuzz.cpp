// Any bytes as a config file: they load, or are a ConfigError; what loads is dumped and loads to
// the same. The first line is an argument KEY=VALUE, too.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/base/config/yaml.h"
#include "temper/base/error.h"
#include "temper/data/config.h"

namespace {
using namespace temper;

// The sections of a run that read rows: text, numbers, maps, lists of sections.
struct Run {
  data::DataSection data;

  void fields(Fields& f) { f.add("data", data, "rows"); }
};

std::string dump(Run& run) { return dump_yaml(write_fields(Fields::of(run))); }

template <class Read>
void loads_or_is_refused(Read read) {
  try {
    read();
  } catch (const ConfigError& e) {
    if (std::string_view(e.what()).empty()) std::abort();
  }
}

void round_trip(const YamlNode& node) {
  Run run, again;
  read_fields(node, "", Fields::of(run));
  const std::string text = dump(run);
  read_fields(parse_yaml(text, "dump"), "", Fields::of(again));
  if (dump(again) != text) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  loads_or_is_refused([&] {
    const YamlNode node = parse_yaml(text, "fuzz.yaml");
    if (dump_yaml(parse_yaml(dump_yaml(node), "dump")) != dump_yaml(node)) std::abort();
    round_trip(node);
  });
  const std::vector<std::string> arguments = {std::string(text.substr(0, text.find('\n')))};
  if (arguments.front().find('=') == std::string::npos) return 0;   // else a file is meant
  if (arguments.front().find('\0') != std::string::npos) return 0;  // no command line has one
  loads_or_is_refused([&] {
    Run schema;
    round_trip(read_config_arguments(arguments, Fields::of(schema)));
  });
  return 0;
}
