#include "temper/env/config.h"

#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/config/yaml_json.h"
#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/env/environment.h"
#include "temper/env/tool_check.h"
#include "temper/process/process.h"

namespace temper {

template <>
inline constexpr std::array enum_names<env::EnvironmentSection::OnFailure> = {"zero", "drop",
                                                                              "stop"};
template <>
inline constexpr std::array enum_names<env::CallFormat> = {"auto", "hermes", "llama", "gemma",
                                                           "mistral"};

void config_detail::Traits<env::JsonObject>::read(const YamlNode& node, const std::string& path,
                                                  const Rule&, env::JsonObject& value) {
  Json json = Json::object();
  if (node.kind == YamlNode::Kind::kScalar) {
    try {
      json = parse_json(node.text, path);
    } catch (const DataError&) {
      fail(node, path, "a map, or the JSON text of an object");
    }
  } else if (node.kind != YamlNode::Kind::kNull) {
    json = json_of(node);
  }
  if (!json.is_object()) fail(node, path, "a map, or the JSON text of an object");
  value.json = dump_json(json);
}

YamlNode config_detail::Traits<env::JsonObject>::write(env::JsonObject& value) {
  return yaml_of(parse_json(value.json, "parameters"));
}

}  // namespace temper

namespace temper::env {

void ToolSection::fields(Fields& f) {
  f.add("name", name, "name of the tool, used in calls");
  f.add("description", description, "description of the tool for the model");
  f.add("parameters", parameters,
        "JSON schema of its arguments, as in {type: object, properties: {..}, required: [..]}");
  f.add(
      "command", command,
      "a program and its arguments, started for each call: reads the call's arguments as a line of "
      "JSON, writes the tool's answer",
      reads(InputFiles::kProgram, one_or_list()));
  f.add("mcp", mcp,
        "in place of all others: an MCP server and its arguments, started once, which speaks over "
        "its standard streams and whose tools the model may call",
        reads(InputFiles::kProgram, one_or_list()));
}

void OpenAiSection::fields(Fields& f) {
  f.add("command", command,
        "an agent and its arguments, started for each episode: reads the row as a line of JSON and "
        "asks the policy for chat completions at OPENAI_BASE_URL with OPENAI_API_KEY "
        "(examples/agent.py)",
        reads(InputFiles::kProgram, one_or_list()));
}

void EnvironmentSection::fields(Fields& f) {
  f.add("name", name, "a built-in environment (temper list environments)");
  f.add("command", command,
        "an environment program and its arguments: one JSON object per line in, one per line out "
        "(examples/environment.py)",
        reads(InputFiles::kProgram, one_or_list()));
  f.add("openai", openai, "agents that ask the policy by OpenAI's API");
  f.add(
      "tools", tools,
      "tools that the model may call; without name or command, an episode ends with the first turn "
      "without a call");
  f.add("tool_call_format", tool_call_format,
        "format of tool calls; auto: detected from the chat template");
  f.add("max_turns", max_turns, "maximum number of turns of the policy per episode", at_least(1));
  f.add("timeout_seconds", timeout_seconds,
        "timeout of one answer of the environment or of a tool; time in which an agent sends its "
        "next request",
        above(0));
  f.add("start_timeout_seconds", start_timeout_seconds,
        "additional time for the first answer of each worker of the command, and for an agent's "
        "first request",
        above(0));
  f.add("episode_seconds", episode_seconds,
        "timeout of a whole episode, sampling included; null: none", above(0));
  f.add("workers", workers,
        "number of processes of the command, each serving several episodes; number of tools or "
        "agents "
        "that run at once",
        at_least(1));
  limits.fields(f);
  f.add("on_failure", on_failure,
        "on a timeout, crash or malformed answer: the environment's reward is 0 (zero), the "
        "episode is "
        "dropped (drop), or the run stops (stop)");
}

namespace {

std::string find_sandbox_problem(const EnvironmentSection& section) {
  const process::Sandbox& sandbox = section.limits.sandbox;
  if (sandbox.on && section.command.empty() && section.openai.command.empty() &&
      section.tools.empty())
    return "environment.sandbox: found, but no program would run in it; expected beside command, "
           "tools or "
           "openai";
  if (sandbox.on && !sandbox.network && !section.openai.command.empty())
    return "environment.sandbox: agents reach the policy over the network: write sandbox: "
           "{network: "
           "true}";
  const std::string problem = process::sandbox_problem(sandbox);
  return problem.empty() ? problem : "environment.sandbox: " + problem;
}

}  // namespace

std::string find_problem(const EnvironmentSection& section) {
  if (!section.name.empty() && !section.command.empty())
    return str("environment: has the name `", section.name,
               "` and a command; give one of them: name is a built-in environment");
  if (!section.name.empty()) environments().find(section.name, "environment.name");
  if (!section.openai.command.empty()) {
    if (!section.name.empty() || !section.command.empty() || !section.tools.empty())
      return "environment.openai: found together with name, command or tools; an agent brings its "
             "own tools and environment, expected it alone";
    if (const std::string p = process::program_problem(section.openai.command); !p.empty())
      return "environment.openai.command: " + p;
  }
  if (!section.command.empty())
    if (const std::string p = process::program_problem(section.command); !p.empty())
      return "environment.command: " + p;
  std::set<std::string> names;
  for (size_t i = 0; i < section.tools.size(); ++i) {
    const ToolSection& tool = section.tools[i];
    const std::string key = str("environment.tools[", i, "]");
    if (!tool.mcp.empty()) {
      if (!tool.name.empty() || !tool.command.empty() || !tool.description.empty() ||
          tool.parameters.json != JsonObject().json)
        return key +
               ".mcp: found beside other keys; a server says the names, descriptions and "
               "parameters of its tools, expected it alone";
      if (const std::string p = process::program_problem(tool.mcp); !p.empty())
        return key + ".mcp: " + p;
      continue;
    }
    if (std::string p = find_tool_problem(tool, key); !p.empty()) return p;
    if (!names.insert(tool.name).second)
      return str(key, ": two tools are called `", tool.name, "`");
    if (tool.command.empty())
      return str(key, ".command: missing; a list of the program that answers calls of `", tool.name,
                 "` and its arguments");
    if (const std::string p = process::program_problem(tool.command); !p.empty())
      return key + ".command: " + p;
  }
  return find_sandbox_problem(section);
}

}  // namespace temper::env
