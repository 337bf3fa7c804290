// Requests to an environment's program, and its answers.
#pragma once

#include <set>
#include <string>
#include <variant>

#include "temper/env/host.h"

namespace temper::env {

std::string reset_request(int64_t episode, const Json& row);
std::string step_request(int64_t episode, const Turn& turn);
std::string close_request(int64_t episode);

// Whether a line answers one of the episodes in `late`, which is then removed from `late`: its
// answer is no longer awaited.
bool answers_late(const std::string& line, std::set<int64_t>& late);

// {"messages": [..], "tools": [..]} of a reset; {"messages": [..], "reward": number, "done": true
// or false} of a step; `episode` may stand in both. A malformed answer, or another episode's, is a
// failure that quotes it, beginning with `program`.
std::variant<Observation, Failure> read_answer(const std::string& line, int64_t episode, bool reset,
                                               const std::string& program);

// A list of {type: function, function: {name, description, parameters}}. A server's tools are one
// that is named as its program.
Json tool_definitions(const std::vector<struct ToolSection>& tools);

}  // namespace temper::env
