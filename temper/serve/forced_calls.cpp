#include "temper/serve/forced_calls.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"

namespace temper::serve {
namespace {

// How a format writes one call, and the text between two. once: a turn has one call.
struct CallForm {
  const char *begin, *arguments, *end, *separator;
  bool once;
};

CallForm form_of(ToolCallFormat format) {
  switch (format) {
    case ToolCallFormat::kLlama:
      return {"", "parameters", "", "; ", true};
    case ToolCallFormat::kGemma:
      return {"", "parameters", "", "\n", false};
    case ToolCallFormat::kMistral:
      return {"[", "arguments", "]", "", true};
    case ToolCallFormat::kAuto:
    case ToolCallFormat::kHermes:
      break;
  }
  return {"<tool_call>\n", "arguments", "\n</tool_call>", "\n", false};
}

// The schema of a function's arguments, which are an object; none are allowed where it has no
// `parameters`.
Json parameters_of(const Json& function) {
  Json given = function.value("parameters", Json());
  if (given.is_object() && given.empty()) given["type"] = "object";
  if (!given.is_null()) return given;
  return {{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
}

grammar::Tag tag_of(const CallForm& form, const Json& function) {
  return {form.begin + std::string("{\"name\": ") + dump_json(function.at("name")) + ", \"" +
              form.arguments + "\": ",
          parameters_of(function), std::string("}") + form.end};
}

}  // namespace

ForcedCalls forced_calls(const CompletionRequest& request, ToolCallFormat format) {
  const bool named = request.tool_choice == ToolChoice::kNamed;
  const CallForm form = form_of(format);
  ForcedCalls out{{}, form.separator, form.once || named || !request.parallel_tool_calls};
  for (const Json& tool : request.tools) {
    const Json& function = tool.at("function");
    if (!named || function.at("name") == request.tool_name)
      out.tags.push_back(tag_of(form, function));
  }
  return out;
}

std::shared_ptr<const grammar::Spec> spec_of(const ForcedCalls& calls) {
  return std::make_shared<const grammar::Spec>(
      grammar::tagged(calls.tags, calls.separator, calls.once, "tools"));
}

const char* forced_beginning(const CompletionRequest& request, ToolCallFormat format) {
  const bool forced = request.tool_choice != ToolChoice::kAuto;
  return forced && format == ToolCallFormat::kMistral ? "[TOOL_CALLS]" : "";
}

}  // namespace temper::serve
