// JSON between texts, as the calls that models make.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/grammar/spec.h"

namespace temper::grammar {

struct Tag {
  std::string begin;
  Json schema;  // of the JSON after it
  std::string end;
};

// One of the tags, or several with the separator between them; once: one is all. Throws ConfigError
// as Compiler::compile does.
Spec tagged(const std::vector<Tag>& tags, const std::string& separator, bool once,
            const std::string& where);

}  // namespace temper::grammar
