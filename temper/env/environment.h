// Environments: what a policy interacts with turn by turn. One in C++ is a class in its own file,
// which ends with its `Registered<MakeEnvironment>`; programs that link Temper add theirs to it,
// and any program can be one through its command (command_host.h).
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/base/registry.h"
#include "temper/text/chat/tool_calls.h"

namespace temper::env {

// A turn of the policy.
struct Turn {
  std::string completion;             // without special tokens
  std::vector<ToolCall> calls;        // tool calls parsed from it
  std::vector<std::string> problems;  // why other tool calls could not be parsed
};

// The environment's answer to a reset or a turn.
struct Observation {
  Json messages = Json::array();  // [{role, content}] that are added to the conversation
  // tools of the episode, in a reset's answer: a list of {type: function, function}; null: none
  Json tools;
  double reward = 0;
  bool done = false;      // the episode has ended
  bool rewarded = false;  // a program's answer contained a reward
};

// One episode. An exception is a failure of the episode, except for a DataError of reset(), which
// reports what is wrong with the row.
class Environment {
 public:
  virtual ~Environment() = default;
  // Called first, with all fields of the prompt's row.
  virtual Observation reset(const Json& row) = 0;
  virtual Observation step(const Turn& turn) = 0;
};

using MakeEnvironment = std::unique_ptr<Environment> (*)();
// Each file of an environment, and whoever adds one, registers it here; `temper list environments`
// prints them.
Registry<MakeEnvironment>& environments();

template <class E>
std::unique_ptr<Environment> make_environment() {
  return std::make_unique<E>();
}

}  // namespace temper::env
