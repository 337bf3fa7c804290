// What a completion has to be, from its first token to its last.
#pragma once

#include <string>

namespace temper::grammar {

struct Spec {
  enum class Kind {
    kJsonSchema,  // JSON that the schema describes (JSON Schema, draft 2020-12 in part)
    kRegex,       // a text that the whole of the regular expression matches
    kGrammar      // a text that the rule `root` of an EBNF grammar derives (GBNF's notation)
  };
  Kind kind;
  std::string text;   // the schema, expression or grammar
  std::string where;  // what errors name: "--regex", "schema.json"
};

// Any JSON object.
Spec json_object(std::string where);

}  // namespace temper::grammar
