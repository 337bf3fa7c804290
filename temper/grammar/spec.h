// The specification of a whole completion: a JSON schema, a regular expression or a grammar.
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
  std::string where;  // source of `text`, for errors: "--regex", "schema.json"
};

// Any JSON object.
Spec json_object(std::string where);

}  // namespace temper::grammar
