// The config section `environment`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/config/config.h"
#include "temper/process/limits.h"

namespace temper::env {

// A JSON object, written in YAML or as its JSON text.
struct JsonObject {
  std::string json = "{}";
};

// A tool: what the chat template shows of it, and the program that answers its calls. Or all tools
// of a server (mcp_server.h), which says their names, descriptions and parameters.
struct ToolSection {
  std::string name, description;
  JsonObject parameters;  // JSON schema of the arguments, an object
  std::vector<std::string> command;
  std::vector<std::string> mcp;  // the server's program and its arguments; empty: none
  void fields(Fields& f);
};

// How calls of tools are written; kAuto: as the chat template shows (text/chat/tool_calls.h).
enum class CallFormat { kAuto, kHermes, kLlama, kGemma, kMistral };

// An agent: a program that is started for each episode and asks the policy by OpenAI's API.
struct OpenAiSection {
  std::vector<std::string> command;  // empty: none
  void fields(Fields& f);
};

struct EnvironmentSection {
  enum class OnFailure { kZero, kDrop, kStop };
  std::string name;                  // a built-in environment; empty: none
  std::vector<std::string> command;  // a program that speaks the protocol; empty: none
  OpenAiSection openai;
  std::vector<ToolSection> tools;
  CallFormat tool_call_format = CallFormat::kAuto;
  int64_t max_turns = 8;
  double timeout_seconds = 30, start_timeout_seconds = 10;
  std::optional<double> episode_seconds;
  int64_t workers = 4;
  process::Limits limits;  // resource limits of a process
  OnFailure on_failure = OnFailure::kZero;
  void fields(Fields& f);

  // Whether completions are episodes of several turns.
  bool any() const {
    return !name.empty() || !command.empty() || !openai.command.empty() || !tools.empty();
  }
};

// The problem with the section: an unknown name, a program that is not there, two of one name,
// parameters that are not a schema. Empty: none.
std::string find_problem(const EnvironmentSection& section);

}  // namespace temper::env

namespace temper::config_detail {

template <>
struct Traits<env::JsonObject> {
  static std::string type(const Rule&) { return "map, or JSON text"; }
  static void read(const YamlNode& node, const std::string& path, const Rule&,
                   env::JsonObject& value);
  static YamlNode write(env::JsonObject& value);
  static std::vector<Field> children() { return {}; }
};

}  // namespace temper::config_detail
