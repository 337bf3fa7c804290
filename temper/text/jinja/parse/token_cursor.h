// A place in a template's tokens, and what a parser asks there.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "temper/base/error.h"
#include "temper/text/jinja/parse/lexer.h"

namespace temper::jinja {

class TokenCursor {
 protected:
  using Kind = Token::Kind;
  using Names = std::initializer_list<std::string_view>;

  explicit TokenCursor(std::string_view source) : tokens_(tokenize(source)) {}

  const Token& token() const { return tokens_[pos_]; }
  const Token& look() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  Token next() { return token().kind == Kind::kEnd ? token() : std::move(tokens_[pos_++]); }
  // SyntaxFailure at the current token's line.
  [[noreturn]] void fail(const std::string& message) const {
    throw SyntaxFailure(token().line, message);
  }
  static bool is(const Token& t, Kind kind, std::string_view text) {
    return t.kind == kind && t.text == text;
  }
  bool at_op(std::string_view op) const { return is(token(), Kind::kOperator, op); }
  bool at_name(std::string_view name) const { return is(token(), Kind::kName, name); }
  bool at_any_name(Names names) const {
    return std::any_of(names.begin(), names.end(), [&](std::string_view n) { return at_name(n); });
  }
  bool skip_op(std::string_view op) { return at_op(op) && (next(), true); }
  bool skip_name(std::string_view name) { return at_name(name) && (next(), true); }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) fail(str("expected '", op, "', got ", describe()));
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) fail(str("expected '", name, "', got ", describe()));
  }
  std::string any_name() {
    if (token().kind != Kind::kName) fail(str("expected a name, got ", describe()));
    return next().text;
  }
  void expect(Kind kind, const char* what) {
    if (token().kind != kind) fail(str("expected ", what, ", got ", describe()));
    next();
  }
  // The current token, as an error names it.
  std::string describe() const;

  // Bounds the parser's recursion (brackets, unary operators, nested blocks) for as long as it
  // lives.
  struct Level {
    explicit Level(TokenCursor& cursor) : depth(cursor.depth_) {
      if (++depth > kMaxDepth) cursor.fail("nested too deeply");
    }
    ~Level() { --depth; }
    int& depth;
  };

 private:
  static constexpr int kMaxDepth = 120;

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  int depth_ = 0;
};

}  // namespace temper::jinja
