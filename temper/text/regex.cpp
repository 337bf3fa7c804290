#include "temper/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "temper/base/error.h"
#include "temper/text/unicode.h"

namespace temper {
namespace {
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr size_t kMaxPattern = 1 << 16;

constexpr std::string_view kSpace =
    "\\t-\\r "
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";

// Walks over a pattern and writes it anew.
class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    while (i_ < in_.size()) {
      const char c = in_[i_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_char(c);
      } else if (c == '[') {
        open_class();
      } else if (c == '(') {
        open_group();
      } else {
        out_ += c;
        ++i_;
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(str(where_, ": regular expression \"", in_, "\": ", what, " at offset ", i_));
  }

  // A set of characters, given as the inside of a class.
  void set(std::string_view inside, bool negated, std::string_view negated_in_class) {
    if (!in_class_) {
      out_ += negated ? "[^" : "[";
      out_ += inside;
      out_ += ']';
    } else if (!negated) {
      out_ += inside;
    } else {
      out_ += negated_in_class;  // PCRE2's own idea of it: a class cannot hold a complement
    }
  }

  void escape() {
    if (i_ + 1 == in_.size()) fail("nothing after the backslash");
    const char c = in_[i_ + 1];
    i_ += 2;
    switch (c) {
      case 's':
      case 'S':
        return set(kSpace, c == 'S', "\\S");
      case 'd':
      case 'D':
        return set("\\p{Nd}" + std::string(new_class_ranges("Nd")), c == 'D', "\\D");
      case 'w':
      case 'W':
        return set(word_class(), c == 'W', "\\W");
      case 'b':
      case 'B':
        if (in_class_) break;
        return word_boundary(c == 'B');
      case 'h':
      case 'H':
        return set("0-9a-fA-F", c == 'H', "\\x{0}-/:-@G-`g-\\x{10ffff}");
      case 'p':
      case 'P':
        return property(c == 'P');
      case 'u': {
        const std::string_view hex = in_.substr(i_, 4);
        if (hex.size() < 4 || hex.find_first_not_of("0123456789abcdefABCDEF") != hex.npos)
          fail("four hexadecimal digits expected after \\u");
        out_.append("\\x{").append(hex).append("}");
        i_ += 4;
        return;
      }
    }
    out_ += '\\';
    out_ += c;
  }

  static std::string word_class() {
    return "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}" + std::string(new_class_ranges("Word"));
  }

  void word_boundary(bool negated) {
    const std::string word = "[" + word_class() + "]";
    const std::string ahead_of_word = negated ? "=" : "!", ahead_of_other = negated ? "!" : "=";
    out_ += "(?:(?<=" + word + ")(?" + ahead_of_word + word + ")|(?<!" + word + ")(?" +
            ahead_of_other + word + "))";
  }

  void property(bool negated) {
    std::string name;
    if (i_ < in_.size() && in_[i_] == '{') {
      const size_t close = in_.find('}', i_);
      if (close == in_.npos) fail("no } after \\p{");
      name = in_.substr(i_ + 1, close - i_ - 1);
      i_ = close + 1;
    } else if (i_ < in_.size()) {
      name = in_[i_++];
    }
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.erase(0, 1);
    }
    if (name.empty() || name.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz"
                                               "ABCDEFGHIJKLMNOPQRSTUVWXYZ_ &") != name.npos)
      fail("\\p{NAME} expected");
    // Oniguruma goes by Script, PCRE2 without "sc" by Script_Extensions.
    const std::string spelled = name == "Han" ? "sc:Han" : name;
    set("\\p{" + spelled + "}" + std::string(new_class_ranges(name)), negated,
        "\\P{" + spelled + "}");
  }

  void open_class() {
    in_class_ = true;
    out_ += '[';
    ++i_;
    if (i_ < in_.size() && in_[i_] == '^') out_ += in_[i_++];
    if (i_ < in_.size() && in_[i_] == ']') {  // a literal, first in a class
      out_ += "\\]";
      ++i_;
    }
  }

  void class_char(char c) {
    if (c == '[') {
      if (in_.substr(i_, 2) != "[:") fail("a class inside a class is not supported");
      const size_t close = in_.find(":]", i_);
      if (close == in_.npos) fail("no :] after [:");
      out_ += in_.substr(i_, close + 2 - i_);
      i_ = close + 2;
      return;
    }
    if (c == '&' && in_.substr(i_, 2) == "&&") fail("&& in a class is not supported");
    if (c == ']') in_class_ = false;
    out_ += c;
    ++i_;
  }

  // "(", "(?:", "(?i:" ...; Ruby's flag m is what others call s.
  void open_group() {
    if (in_.substr(i_, 2) == "(*") fail("(* is not supported");
    out_ += '(';
    ++i_;
    if (i_ >= in_.size() || in_[i_] != '?') return;
    const size_t flags_end = in_.find_first_not_of("imx-", i_ + 1);
    const bool flags = flags_end != in_.npos && flags_end > i_ + 1 &&
                       (in_[flags_end] == ':' || in_[flags_end] == ')');
    if (!flags) return;
    for (const char c : in_.substr(i_, flags_end - i_)) out_ += c == 'm' ? 's' : c;
    i_ = flags_end;
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  size_t i_ = 0;
  bool in_class_ = false;
};

std::string error_text(int code) {
  unsigned char buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof buffer) < 0) return str("PCRE2 error ", code);
  return reinterpret_cast<const char*>(buffer);
}

// The PCRE2 state of one thread; its JIT stack serves patterns with nested repeats.
struct Scratch {
  pcre2_match_data* data = pcre2_match_data_create(2, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 4 << 20, nullptr);
  Scratch() {
    check(data && context && stack, "no memory for a regular expression");
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Scratch() {
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
    pcre2_match_data_free(data);
  }
};
}  // namespace

std::string pcre2_pattern(std::string_view oniguruma, const std::string& where) {
  return Translator(oniguruma, where).run();
}

struct Regex::Code {
  std::string where;
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, const std::string& where) : code_(std::make_unique<Code>()) {
  check<DataError>(pattern.size() <= kMaxPattern, where, ": regular expression of ", pattern.size(),
                   " bytes; at most ", kMaxPattern, " are supported");
  code_->where = where;
  const std::string translated = pcre2_pattern(pattern, where);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                              &error, &offset, context.get());
  check<DataError>(code_->code != nullptr, where, ": regular expression \"", pattern,
                   "\": ", error_text(error));
  // Without a JIT compiler for this machine the interpreter gives the same matches.
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

bool Regex::find(std::string_view text, size_t from, Match& match, Match* group) const {
  thread_local Scratch scratch;
  const int rc = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                             from, PCRE2_NO_UTF_CHECK, scratch.data, scratch.context);
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0) throw DataError(str(code_->where, ": regular expression failed: ", error_text(rc)));
  const size_t* ends = pcre2_get_ovector_pointer(scratch.data);
  match = {ends[0], ends[1]};
  // \K in a lookahead can report an end before the start, or a match before `from`.
  check<DataError>(match.begin >= from && match.end >= match.begin, code_->where,
                   ": regular expression with an unusable \\K");
  if (!group) return true;
  // rc is 0 where there are more groups than these two pairs hold, else one more than the last set.
  const bool set = (rc == 0 || rc > 1) && ends[2] != PCRE2_UNSET && ends[3] >= ends[2];
  *group = set ? Match{ends[2], ends[3]} : Match{std::string::npos, std::string::npos};
  return true;
}

}  // namespace temper
