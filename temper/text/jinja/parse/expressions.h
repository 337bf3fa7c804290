// Parses expressions, by recursive descent.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "temper/text/jinja/parse/syntax.h"
#include "temper/text/jinja/parse/token_cursor.h"

namespace temper::jinja {

class ExpressionParser : protected TokenCursor {
 protected:
  using TokenCursor::TokenCursor;

  // `conditional`: may be `a if b else c`.
  ExpressionPtr expression(bool conditional = true);
  // An expression, or several with commas between them. `parenthesized`: there may be none; `end`:
  // the name that ends the list.
  ExpressionPtr parse_tuple(bool conditional = true, bool parenthesized = false,
                            std::string_view end = {});
  // `name(...)`, a filter of `node`, which is null where the input is a block's text; and those
  // that follow it, each after a `|`.
  ExpressionPtr parse_filter(ExpressionPtr node);
  ExpressionPtr parse_filter_chain(ExpressionPtr node);

  // Which of caller, kwargs and varargs a macro's body reads before it assigns them.
  struct SpecialNames {
    std::set<std::string, std::less<>> open{"caller", "kwargs", "varargs"}, used;
  };
  void note_load(const std::string& name);

  std::vector<SpecialNames> macros_;  // enclosing macros, innermost last

 private:
  // Loosest first.
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filter = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_call(ExpressionPtr node);
  ExpressionPtr parse_test(ExpressionPtr node);
  CallArguments parse_arguments();
  std::string dotted_name();
  ExpressionPtr binary(int line, Arithmetic op, ExpressionPtr left, ExpressionPtr right) const;
  // Throws SyntaxFailure where the tree would be too high. `children`: the highest one's height.
  ExpressionPtr make(int line, int children, Expression::Node node) const;
};

}  // namespace temper::jinja
