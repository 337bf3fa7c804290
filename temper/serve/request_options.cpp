#include "temper/serve/request_options.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <set>

#include "temper/base/error.h"
#include "temper/env/tool_check.h"
#include "temper/grammar/grammar.h"

namespace temper::serve {
namespace {

using Kind = grammar::Spec::Kind;
using SpecPointer = std::shared_ptr<const grammar::Spec>;

constexpr size_t kMostStops = 64;

void read_stop(Members& members, const std::string& name, std::vector<std::string>& out) {
  const Json* stop = members.find(name);
  if (!stop) return;
  const Json list = stop->is_string() ? Json::array({*stop}) : *stop;
  if (!list.is_array() || list.size() > kMostStops)
    wrong(name, *stop, temper::str("a text, or a list of at most ", kMostStops));
  for (const Json& text : list) {
    if (!text.is_string() || text.empty() || text == "")
      wrong(name, text, "a text that is not empty");
    out.push_back(text.get<std::string>());
  }
}

void read_ids(Members& members, const std::string& name, std::vector<int32_t>& out) {
  const Json* ids = members.find(name);
  if (!ids) return;
  if (!ids->is_array() || ids->size() > kMostStops)
    wrong(name, *ids, temper::str("a list of at most ", kMostStops, " token ids"));
  for (const Json& id : *ids) {
    if (!id.is_number_unsigned() || id > INT32_MAX) wrong(name, id, "a token id");
    out.push_back(id.get<int32_t>());
  }
}

// {"token id": what is added to its logit}
void read_bias(Members& members, const generate::SamplingOption::Offer& offer,
               generate::LogitBias& out) {
  const Json* bias = members.find(offer.name);
  if (!bias) return;
  if (!bias->is_object()) wrong(offer.name, *bias, "an object of token ids");
  for (const auto& [key, value] : bias->items()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0)
      wrong(offer.name, key, "a token id as the key");
    if (!value.is_number() || !generate::allows(offer.rule, value.get<double>()))
      wrong(offer.name, value, generate::allowed(offer.rule, false));
    out.emplace_back(id, value.get<float>());
  }
}

SpecPointer spec(Kind kind, std::string text, const std::string& key) {
  auto out = std::make_shared<const grammar::Spec>(kind, std::move(text), "`" + key + "`");
  grammar::check_size(*out);
  return out;
}

// A text for the regular expression or the grammar, an object or its text for the schema.
SpecPointer read_spec(Kind kind, const Json& value, const std::string& key) {
  if (value.is_string()) return spec(kind, value.get<std::string>(), key);
  if (kind != Kind::kJsonSchema || !value.is_object())
    wrong(key, value, kind == Kind::kJsonSchema ? "a JSON schema" : "a text");
  return spec(kind, dump_json(value), key);
}

// One of some texts.
SpecPointer read_choice(const Json& value, const std::string& key) {
  if (!value.is_array() || value.empty()) wrong(key, value, "a list of texts");
  std::string rule = "root ::= ";
  std::set<std::string> seen;
  for (const Json& text : value) {
    if (!text.is_string() || text == "") wrong(key, text, "a text that is not empty");
    if (!seen.insert(text.get<std::string>()).second) continue;
    rule += (&text == &value.front() ? "" : " | ") + dump_json(text);
  }
  auto out =
      std::make_shared<const grammar::Spec>(Kind::kGrammar, std::move(rule), "`" + key + "`");
  grammar::check_num_bytes(*out);  // braces in the texts repeat nothing
  return out;
}

SpecPointer read_response_format(Members& members) {
  const Json* format = members.find("response_format");
  if (!format) return nullptr;
  constexpr const char* kExpected =
      R"({"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "json_schema": ..})";
  if (!format->is_object()) wrong("response_format", *format, kExpected);
  const Json type = format->value("type", Json());
  if (type == "text") return nullptr;
  if (type == "json_object")
    return std::make_shared<const grammar::Spec>(grammar::json_object("`response_format`"));
  if (type != "json_schema") wrong("response_format", *format, kExpected);
  const Json named = format->value("json_schema", Json());
  if (!named.is_object() || !named.contains("schema"))
    wrong("response_format", *format, R"({"json_schema": {"name": .., "schema": ..}})");
  return read_spec(Kind::kJsonSchema, named["schema"], "response_format");
}

// The members of vLLM's: name of the key -> kind.
SpecPointer read_structured(Members& members, const std::string& prefix, const std::string& where) {
  SpecPointer found;
  const auto take = [&](const char* name, const auto& read) {
    const std::string key = prefix + name;
    const Json* value = members.find(key);
    if (!value) return;
    check<DataError>(!found, "`", where, key, "`: found two forms of the completion, expected one");
    found = read(*value, where + key);
  };
  const auto of = [](Kind kind) {
    return
        [kind](const Json& value, const std::string& key) { return read_spec(kind, value, key); };
  };
  take("json", of(Kind::kJsonSchema));
  take("regex", of(Kind::kRegex));
  take("grammar", of(Kind::kGrammar));
  take("choice", read_choice);
  return found;
}

SpecPointer read_structured_outputs(Members& members) {
  const Json* outputs = members.find("structured_outputs");
  if (!outputs) return nullptr;
  if (!outputs->is_object())
    wrong("structured_outputs", *outputs, "an object: json, regex, choice, grammar or json_object");
  Members inner(*outputs);
  SpecPointer found = read_structured(inner, "", "structured_outputs.");
  if (inner.flag("json_object")) {
    check<DataError>(!found, "`structured_outputs`: found two forms of the completion");
    found = std::make_shared<const grammar::Spec>(grammar::json_object("`structured_outputs`"));
  }
  inner.check_no_rest();
  return found;
}

bool is_function(const Json& tool) {
  return tool.is_object() && tool.contains("function") && tool["function"].is_object() &&
         tool["function"].contains("name") && tool["function"]["name"].is_string();
}

// Longest name of a function that a grammar spells, OpenAI's.
constexpr size_t kLongestName = 64;

size_t num_characters(const std::string& utf8) {
  return static_cast<size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

void check_name(const Json& tool) {
  const Json& name = tool["function"]["name"];
  const size_t length = num_characters(name.get<std::string>());
  check<DataError>(length <= kLongestName, "`tools`: the function ", quoted(name),
                   " has a name of ", length, " characters, expected at most ", kLongestName,
                   " where `tool_choice` demands a call");
}

void check_tool(const Json& tool) {
  if (!is_function(tool)) wrong("tools", tool, R"({"type": "function", "function": {"name": ..}})");
  const Json parameters = tool["function"].value("parameters", Json());
  if (parameters.is_null()) return;
  const std::string problem = env::find_parameters_problem(parameters, "parameters");
  check<DataError>(problem.empty(), "`tools`: the function ", quoted(tool["function"]["name"]),
                   ": ", problem);
}

}  // namespace

void read_sampling(Members& members, generate::Api api, generate::GenerationOptions& options) {
  for (const generate::SamplingOption& option : generate::sampling_options()) {
    const auto offer = option.at(api);
    if (!offer) continue;
    const std::string& name = offer->name;
    const Rule& rule = offer->rule;
    visit(option, options,
          generate::Overloaded{
              [&](double& value) { members.number(name, value, rule); },
              [&](int64_t& value) {
                if (&value == &options.max_new_tokens) return;
                const auto found =
                    members.integer(name, static_cast<int64_t>(rule.min.value()),
                                    rule.max ? static_cast<int64_t>(*rule.max) : kUnbounded);
                // Clients write the largest number of their type for "all".
                constexpr auto kMost = static_cast<int64_t>(generate::kLargestNumber);
                if (found) value = option.from_api(std::min(*found, kMost));
              },
              [&](bool& value) { value = members.flag(name); },
              [&](generate::LogitBias& bias) { read_bias(members, *offer, bias); },
              [&](std::vector<std::string>& texts) { read_stop(members, name, texts); },
              [&](std::vector<int32_t>& ids) { read_ids(members, name, ids); },
              [](generate::GrammarMember) {}});  // read_structure()
  }
}

void read_tools(Members& members, CompletionRequest& out) {
  const Json* parallel = members.find("parallel_tool_calls");
  if (parallel) out.parallel_tool_calls = members.flag("parallel_tool_calls");
  const Json* tools = members.find("tools");
  if (tools && !tools->is_array()) wrong("tools", *tools, "a list of functions");
  const bool any = tools && !tools->empty();
  if (any)
    for (const Json& tool : *tools) check_tool(tool);
  const Json* choice = members.find("tool_choice");
  if (any && !(choice && *choice == "none")) out.tools = *tools;
  if (!choice || *choice == "none" || *choice == "auto") return;
  const bool named = is_function(*choice);
  if (!named && *choice != "required")
    wrong("tool_choice", *choice,
          R"("none", "auto", "required" or {"type": "function", "function": {"name": ..}})");
  if (!any) wrong("tool_choice", *choice, "`tools` to choose from");
  for (const Json& tool : *tools) check_name(tool);
  out.tool_choice = named ? ToolChoice::kNamed : ToolChoice::kRequired;
  if (!named) return;
  out.tool_name = (*choice)["function"]["name"].get<std::string>();
  if (std::none_of(tools->begin(), tools->end(),
                   [&](const Json& tool) { return tool["function"]["name"] == out.tool_name; }))
    wrong("tool_choice", *choice, "the name of one of `tools`");
}

void read_structure(Members& members, CompletionRequest& out) {
  SpecPointer found[] = {read_response_format(members), read_structured_outputs(members),
                         read_structured(members, "guided_", "")};
  for (SpecPointer& one : found) {
    if (!one) continue;
    check<DataError>(!out.options.grammar, out.options.grammar ? out.options.grammar->where : "",
                     " and ", one->where, ": found two forms of the completion, expected one");
    out.options.grammar = std::move(one);
  }
  check<DataError>(!out.options.grammar || out.tool_choice == ToolChoice::kAuto,
                   "`tool_choice` and ", out.options.grammar ? out.options.grammar->where : "",
                   ": found two forms of the completion, expected one");
}

}  // namespace temper::serve
