#include "temper/text/chat/python_calls.h"

#include <cctype>

#include "temper/base/error.h"

namespace temper {
namespace {

constexpr int kDeepest = 64;

bool is_name(char c, bool first) {
  const auto byte = static_cast<unsigned char>(c);
  return std::isalpha(byte) || c == '_' || (!first && (std::isdigit(byte) || c == '.'));
}

class PythonCallReader {
 public:
  explicit PythonCallReader(std::string_view text) : text_(text) {}

  std::vector<ToolCall> calls() {
    const bool list = take('[');
    std::vector<ToolCall> calls;
    while (true) {
      while (take(',') || take(';')) {
      }
      if (at_end() || (list && peek() == ']')) break;
      calls.push_back(call(0));
    }
    if (list) expect(']');
    if (!at_end()) fail("found more after the calls");
    return calls;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw NotPython{str(why, " at byte ", at_)};
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(str("expected `", c, "`"));
  }

  std::string name() {
    skip_space();
    const size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_], at_ == begin)) ++at_;
    if (at_ == begin) fail("expected a name");
    return std::string(text_.substr(begin, at_ - begin));
  }

  ToolCall call(int depth) {
    if (depth > kDeepest) fail("nested too deeply");
    constexpr std::string_view kMethod = ".call";
    ToolCall call{name()};
    expect('(');
    if (call.name == "print") {
      call = this->call(depth + 1);
      expect(')');
      return call;
    }
    if (call.name.ends_with(kMethod)) call.name.resize(call.name.size() - kMethod.size());
    while (!take(')')) {
      const std::string key = name();
      if (!take('=')) fail("expected arguments by name, as in f(x=1)");
      call.arguments[key] = value(0);
      if (!take(',') && peek() != ')') fail("expected `,` or `)`");
    }
    return call;
  }

  Json value(int depth) {
    if (depth > kDeepest) fail("nested too deeply");
    const char c = peek();
    if (c == '"' || c == '\'') return quoted();
    if (c == '[' || c == '(') return list(depth);
    if (c == '{') return map(depth);
    if (is_name(c, true)) {
      const std::string word = name();
      if (word == "True" || word == "true") return true;
      if (word == "False" || word == "false") return false;
      if (word == "None" || word == "null") return nullptr;
      fail("expected a literal, found `" + word + "`");
    }
    return number();
  }

  Json list(int depth) {
    const char end = text_[at_++] == '[' ? ']' : ')';
    Json items = Json::array();
    while (!take(end)) {
      items.push_back(value(depth + 1));
      if (!take(',') && peek() != end) fail("expected `,` or the list's end");
    }
    return items;
  }

  Json map(int depth) {
    ++at_;
    Json entries = Json::object();
    while (!take('}')) {
      const Json key = value(depth + 1);
      if (!key.is_string()) fail("expected a text as key");
      expect(':');
      entries[key.get<std::string>()] = value(depth + 1);
      if (!take(',') && peek() != '}') fail("expected `,` or `}`");
    }
    return entries;
  }

  Json number() {
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
                                  text_[at_] == '+' || text_[at_] == '-' || text_[at_] == '.'))
      ++at_;
    try {
      const Json found = parse_json(text_.substr(begin, at_ - begin), "number");
      if (found.is_number()) return found;
    } catch (const DataError&) {
    }
    at_ = begin;
    fail("expected a literal");
  }

  Json quoted() {
    const std::string_view triple = text_.substr(at_, 3);
    const bool three = triple == "\"\"\"" || triple == "'''";
    const std::string_view end = three ? triple : text_.substr(at_, 1);
    at_ += end.size();
    std::string out;
    while (!text_.substr(at_).starts_with(end)) {
      if (at_ >= text_.size()) fail("expected the text's end");
      char c = text_[at_++];
      if (c == '\\' && at_ < text_.size()) {
        c = text_[at_++];
        if (c == '\n') continue;
        c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
      }
      out += c;
    }
    at_ += end.size();
    return out;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

bool begins_python_call(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && is_name(text[at], at == 0)) ++at;
  return at > 0 && at < text.size() && text[at] == '(';
}

std::vector<ToolCall> parse_python_calls(std::string_view text) {
  return PythonCallReader(text).calls();
}

}  // namespace temper
