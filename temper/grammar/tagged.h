// Grammars of JSON values between fixed texts, such as the tool calls that models write.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/grammar/spec.h"

namespace temper::grammar {

struct Tag {
  std::string begin;
  Json schema;  // schema of the JSON between `begin` and `end`
  std::string end;
};

// A grammar of one tag or, unless `once`, of several with the separator between them. `where` names
// the tags' source in errors. Throws ConfigError as Compiler::compile does, and where
// the tags have more than 1 MiB.
Spec tagged(const std::vector<Tag>& tags, const std::string& separator, bool once,
            const std::string& where);

}  // namespace temper::grammar
