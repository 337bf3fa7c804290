// Any bytes as JSON: what parse_json takes is what nlohmann's own builder takes, with the same
// values in the same order, and everything else is a DataError. Seeds: tests/fuzz/seeds/rows.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "temper/base/error.h"
#include "temper/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Json value;
  bool valid = true;
  try {
    value = parse_json(text, "text");
  } catch (const DataError& e) {
    if (!std::string_view(e.what()).starts_with("text: ")) std::abort();
    if (std::string_view(e.what()).find("nested deeper") != std::string_view::npos) return 0;
    valid = false;
  }
  const Json expected = Json::parse(text.begin(), text.end(), nullptr, false);
  if (valid == expected.is_discarded()) std::abort();
  if (valid && dump_json(value) != dump_json(expected)) std::abort();
  return 0;
}
