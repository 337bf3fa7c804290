#include "temper/grammar/grammar.h"

#include "temper/base/error.h"
#include "temper/grammar/tagged.h"

namespace temper::grammar {

Spec json_object(std::string where) {
  return {Spec::Kind::kJsonSchema, R"({"type":"object"})", std::move(where)};
}

}  // namespace temper::grammar

#ifdef TEMPER_XGRAMMAR

#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <variant>

#include "temper/base/json.h"
#include "temper/grammar/gbnf.h"
#include "temper/grammar/schema_check.h"
#include "temper/grammar/token_bytes.h"
#include "temper/grammar/xgrammar_log.h"

namespace temper::grammar {
namespace {

constexpr int64_t kCacheBytes = int64_t{256} << 20;
constexpr size_t kLongestText = size_t{1} << 20;
// Between two tokens of JSON: enough for a line's end and a little indentation. A model that likes
// blanks would go on with them for ever.
constexpr int kMostBlanks = 4;

// Runs what XGrammar does. What it refuses, and what it says it would leave out, is an error: a
// completion that keeps to half of a schema is no use.
template <class Function>
auto obey(const std::string& where, const Function& function) {
  LogOfThread log;
  try {
    auto result = function();
    check<ConfigError>(log.warnings().empty(), where,
                       ": not supported: ", log.warnings().empty() ? "" : log.warnings().front());
    return result;
  } catch (const ConfigError&) {
    throw;
  } catch (const DataError& e) {  // it names the place
    throw ConfigError(e.what());
  } catch (const std::exception& e) {
    throw ConfigError(temper::str(where, ": ", e.what()));
  }
}

using Mask = std::vector<uint32_t>;

bool is_set(const Mask& mask, int32_t token) {
  return mask[static_cast<size_t>(token / 32)] >> (token % 32) & 1;
}

// XGrammar lets strings with a length have control characters, which JSON does not. Outside of
// strings nobody needs any but the end of a line.
std::shared_ptr<const Mask> tokens_of_json(const TokenBytes& tokens) {
  auto mask = std::make_shared<Mask>((tokens.bytes.size() + 31) / 32);
  for (size_t id = 0; id < tokens.bytes.size(); ++id) {
    const std::string& bytes = tokens.bytes[id];
    const bool fits = std::none_of(bytes.begin(), bytes.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r';
    });
    if (fits) (*mask)[id / 32] |= uint32_t{1} << (id % 32);
  }
  return mask;
}

}  // namespace

bool available() { return true; }

Spec tagged(const std::vector<Tag>& tags, const std::string& separator, bool once,
            const std::string& where) {
  return obey(where, [&] {
    Json list = Json::array();
    for (const Tag& tag : tags) {
      const std::string schema = checked_schema(tag.schema, dump_json(tag.schema), where);
      list.push_back({{"type", "tag"},
                      {"begin", tag.begin},
                      {"content",
                       {{"type", "json_schema"},
                        {"json_schema", parse_json(schema, where)},
                        {"max_whitespace_cnt", kMostBlanks}}},
                      {"end", tag.end}});
    }
    const Json all{{"type", "structural_tag"},
                   {"format",
                    {{"type", "tags_with_separator"},
                     {"tags", std::move(list)},
                     {"separator", separator},
                     {"at_least_one", true},
                     {"stop_after_first", once}}}};
    const auto made = xgrammar::Grammar::FromStructuralTag(dump_json(all));
    const auto* const grammar = std::get_if<xgrammar::Grammar>(&made);
    check<ConfigError>(grammar != nullptr, where, ": not supported");
    return Spec{Spec::Kind::kGrammar, grammar->ToString(), where};
  });
}

class Grammar {
 public:
  Grammar(xgrammar::CompiledGrammar c, std::shared_ptr<const TokenBytes> t, int64_t v,
          std::shared_ptr<const Mask> a)
      : compiled(std::move(c)), tokens(std::move(t)), vocabulary(v), allowed(std::move(a)) {}
  xgrammar::CompiledGrammar compiled;
  std::shared_ptr<const TokenBytes> tokens;
  int64_t vocabulary;
  std::shared_ptr<const Mask> allowed;  // tokens that it can ever have; null: all
};

struct Compiler::Impl {
  Impl(std::shared_ptr<const TokenBytes> t, int64_t v)
      : tokens(std::move(t)),
        vocabulary(v),
        // End tokens are this program's business: none is known to XGrammar.
        xgrammar(xgrammar::TokenizerInfo(tokens->bytes, xgrammar::VocabType::RAW,
                                         static_cast<int>(v), std::vector<int32_t>()),
                 static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u)), true,
                 kCacheBytes),
        json(tokens_of_json(*tokens)) {}
  xgrammar::CompiledGrammar compile(const Spec& spec) {
    switch (spec.kind) {
      case Spec::Kind::kRegex:
        return xgrammar.CompileRegex(spec.text);
      case Spec::Kind::kGrammar:
        return xgrammar.CompileGrammar(without_dots(spec.text), "root");
      case Spec::Kind::kJsonSchema:
        break;
    }
    const Json schema = parse_json(spec.text, spec.where);
    const std::string text = checked_schema(schema, spec.text, spec.where);
    // Strict: objects have the properties that the schema names and no others, unless it says so.
    return xgrammar.CompileJSONSchema(text, true, std::nullopt, std::nullopt,
                                      /*strict_mode=*/true, kMostBlanks);
  }

  std::shared_ptr<const TokenBytes> tokens;
  int64_t vocabulary;
  xgrammar::GrammarCompiler xgrammar;
  std::shared_ptr<const Mask> json;
};

Compiler::Compiler(std::shared_ptr<const Tokenizer> tokenizer, int64_t vocabulary) {
  check<ConfigError>(tokenizer != nullptr, "a grammar needs a tokenizer, but the model has none");
  auto tokens = std::make_shared<const TokenBytes>(token_bytes(*tokenizer, vocabulary));
  impl_ = std::make_unique<Impl>(std::move(tokens), vocabulary);
}
Compiler::~Compiler() = default;

std::shared_ptr<const Grammar> Compiler::compile(const Spec& spec) {
  check<ConfigError>(spec.text.size() <= kLongestText, spec.where, ": more than ", kLongestText,
                     " bytes");
  auto grammar = std::make_shared<const Grammar>(
      obey(spec.where, [&] { return impl_->compile(spec); }), impl_->tokens, impl_->vocabulary,
      spec.kind == Spec::Kind::kJsonSchema ? impl_->json : nullptr);
  check<ConfigError>(!Matcher(grammar, {}).ended() || !Matcher(grammar, {0}).ended(), spec.where,
                     ": no sequence of this tokenizer's tokens matches");
  return grammar;
}

struct Matcher::Impl {
  Impl(std::shared_ptr<const Grammar> g, std::vector<int32_t> e)
      : grammar(std::move(g)),
        ends(std::move(e)),
        matcher(grammar->compiled),
        words(
            static_cast<size_t>(xgrammar::GetBitmaskSize(static_cast<int>(grammar->vocabulary)))) {
    std::erase_if(ends, [this](int32_t id) { return id < 0 || id >= grammar->vocabulary; });
  }

  bool has(int32_t token) const { return is_set(words, token); }
  void set(int32_t token, bool allowed) {
    const uint32_t bit = uint32_t{1} << (token % 32);
    uint32_t& word = words[static_cast<size_t>(token / 32)];
    word = allowed ? word | bit : word & ~bit;
  }
  void fill() {
    int64_t size = static_cast<int64_t>(words.size());
    DLTensor tensor{
        words.data(), DLDevice{kDLCPU, 0}, 1, xgrammar::GetBitmaskDLType(), &size, nullptr, 0};
    matcher.FillNextTokenBitmask(&tensor);
    if (const int tail = static_cast<int>(grammar->vocabulary % 32))
      words.back() &= (uint32_t{1} << tail) - 1;
    if (at_start) restrict_first();
    if (grammar->allowed)
      for (size_t i = 0; i < words.size(); ++i) words[i] &= (*grammar->allowed)[i];
    const bool may_end = matcher.IsCompleted();
    closing.clear();
    for (const int32_t end : ends) {
      if (has(end) && !grammar->tokens->bytes[static_cast<size_t>(end)].empty()) continue;
      set(end, may_end);
      if (may_end) closing.push_back(end);
    }
    ended = std::all_of(words.begin(), words.end(), [](uint32_t word) { return word == 0; });
  }
  // A first token that loses its leading space is allowed where what is left of it is.
  void restrict_first() {
    const std::vector<int32_t>& as = grammar->tokens->first_as;
    if (as.empty()) return;
    const std::vector<uint32_t> later = words;
    for (int32_t id = 0; id < grammar->vocabulary; ++id) {
      const int32_t other = as[static_cast<size_t>(id)];
      if (other != id)
        set(id, other == TokenBytes::kNothing || (other >= 0 && is_set(later, other)));
    }
  }
  void accept(int32_t token) {
    check(has(token), "token ", token, " is not allowed by the grammar");
    if (std::find(closing.begin(), closing.end(), token) != closing.end()) {
      ended = true;
      return;
    }
    const std::vector<int32_t>& as = grammar->tokens->first_as;
    const int32_t counts_as = at_start && !as.empty() ? as[static_cast<size_t>(token)] : token;
    at_start = false;
    // A mask that allows what is refused is a defect of the library: the completion ends here.
    ended = counts_as != TokenBytes::kNothing && !matcher.AcceptToken(counts_as);
    if (ended) return;
    fill();
    const bool is_end = std::find(ends.begin(), ends.end(), token) != ends.end();
    ended = ended || (is_end && matcher.IsCompleted());
  }

  std::shared_ptr<const Grammar> grammar;
  std::vector<int32_t> ends;
  std::vector<int32_t> closing;  // those that would only end the text here
  xgrammar::GrammarMatcher matcher;
  std::vector<uint32_t> words;
  bool at_start = true, ended = false;
};

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, std::vector<int32_t> ends)
    : impl_(std::make_unique<Impl>(std::move(grammar), std::move(ends))) {
  impl_->fill();
}
Matcher::Matcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Matcher::~Matcher() = default;

std::span<const uint32_t> Matcher::mask() const { return impl_->words; }
bool Matcher::allows(int32_t token) const {
  return token >= 0 && token < impl_->grammar->vocabulary && impl_->has(token);
}
void Matcher::accept(int32_t token) { impl_->accept(token); }
bool Matcher::ended() const { return impl_->ended; }
std::unique_ptr<Matcher> Matcher::fork() const {
  auto copy = std::make_unique<Impl>(*impl_);
  copy->matcher = impl_->matcher.Fork();
  return std::unique_ptr<Matcher>(new Matcher(std::move(copy)));
}

}  // namespace temper::grammar

#else

namespace temper::grammar {

bool available() { return false; }

// Nothing compiles it.
Spec tagged(const std::vector<Tag>&, const std::string&, bool, const std::string& where) {
  return {Spec::Kind::kGrammar, "", where};
}

class Grammar {};
struct Compiler::Impl {};
struct Matcher::Impl {};

Compiler::Compiler(std::shared_ptr<const Tokenizer>, int64_t) {
  throw ConfigError(
      "this build does not support grammars: it was built without XGrammar; tools/setup.sh fetches "
      "its sources");
}
Compiler::~Compiler() = default;
std::shared_ptr<const Grammar> Compiler::compile(const Spec&) { return nullptr; }

Matcher::Matcher(std::shared_ptr<const Grammar>, std::vector<int32_t>) {}
Matcher::Matcher(std::unique_ptr<Impl>) {}
Matcher::~Matcher() = default;
std::span<const uint32_t> Matcher::mask() const { return {}; }
bool Matcher::allows(int32_t) const { return true; }
void Matcher::accept(int32_t) {}
bool Matcher::ended() const { return false; }
std::unique_ptr<Matcher> Matcher::fork() const { return nullptr; }

}  // namespace temper::grammar

#endif
