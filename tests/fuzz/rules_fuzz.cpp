// Any bytes as what a client gives to constrain a completion: a JSON schema, a regular expression
// for strings or a grammar by the first byte. What is passed on to the compiler of grammars is a
// text, everything else a ConfigError that begins with its source.
// Seeds: tests/fuzz/seeds/rules.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/grammar/gbnf.h"
#include "temper/grammar/json_pattern.h"
#include "temper/grammar/schema_check.h"
#include "temper/text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 3) {
      case 0: {
        const Json schema = parse_json(text, "schema");
        parse_json(grammar::checked_schema(schema, text, "schema"), "checked");
        break;
      }
      case 1:
        if (valid_utf8_prefix(text) == text.size()) grammar::json_pattern(text, "pattern");
        break;
      default:
        if (grammar::without_dots(text).size() < text.size()) std::abort();
    }
  } catch (const ConfigError& e) {
    const std::string_view message = e.what();
    if (!message.starts_with("schema: ") && !message.starts_with("pattern")) std::abort();
  } catch (const DataError& e) {  // no JSON, before it is a schema
    if (!std::string_view(e.what()).starts_with("schema: ")) std::abort();
  }
  return 0;
}
