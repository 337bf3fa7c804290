// Any bytes as a chat template: parsing and rendering may throw DataError and nothing else, within
// small bounds. Seeds: tests/golden/templates/*.jinja.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/text/jinja/template.h"

namespace {
const temper::Json& context() {
  static const temper::Json value = temper::parse_json(
      R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Grüße\n 🙂"},
          {"role": "assistant", "content": [{"type": "text", "text": "a"}], "tool_calls": [{"id": "123456789",
           "function": {"name": "f", "arguments": {"x": [1, 2.5, null, true], "y": {"z": "q"}}}}]},
          {"role": "tool", "content": "</think>r", "tool_call_id": "123456789"}, {"role": "user", "content": ""}],
          "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object",
          "properties": {"x": {"type": "array", "items": {"type": ["string", "null"]}}}, "required": ["x"]}}}],
          "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "documents": null,
          "l": [3, 1, 2], "s": "text", "i": 7, "f": -0.5, "d": {"a": 1, "b": {"c": [1]}}})",
      "context");
  return value;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  temper::jinja::RenderOptions options;
  options.max_steps = 100'000;
  options.max_bytes = size_t{8} << 20;
  options.max_output = size_t{1} << 20;
  try {
    const std::string source(reinterpret_cast<const char*>(data), size);
    temper::jinja::JinjaTemplate::parse(source, "fuzz").render_with_spans(context(), options);
  } catch (const temper::DataError&) {
  }
  return 0;
}
