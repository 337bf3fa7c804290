#include "temper/grammar/grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/base/plugin.h"
#include "temper/grammar/automaton.h"
#include "temper/grammar/gbnf.h"
#include "temper/grammar/json_pattern.h"
#include "temper/grammar/schema_check.h"
#include "temper/grammar/tagged.h"
#include "temper/grammar/token_bytes.h"

namespace temper::grammar {
namespace {

constexpr size_t kLongestText = size_t{1} << 20;  // of a schema, and of what is made from one
constexpr size_t kLongestRegex = size_t{16} << 10, kLongestGrammar = size_t{64} << 10;

struct XgrammarPlugin {
  Plugin plugin{"libtemper_xgrammar.so"};
  decltype(&temper_xgrammar_compiler) compiler =
      plugin.function<decltype(temper_xgrammar_compiler)>("temper_xgrammar_compiler");
  decltype(&temper_xgrammar_tags) tags =
      plugin.function<decltype(temper_xgrammar_tags)>("temper_xgrammar_tags");
};

const XgrammarPlugin& xgrammar_plugin() {
  static const XgrammarPlugin loaded;
  return loaded;
}

void require_xgrammar() {
  const XgrammarPlugin& xgrammar = xgrammar_plugin();
  check<ConfigError>(
      xgrammar.plugin.problem().empty(),
      "grammars are off, as their plugin does not load: ", xgrammar.plugin.problem());
  check<ConfigError>(xgrammar.compiler && xgrammar.tags,
                     "this build does not support grammars: it has no libtemper_xgrammar.so; run "
                     "`make` (tools/setup.sh fetches XGrammar's sources)");
}

// XGrammar says what it leaves out and goes on; here that is refused.
std::string as_refused(std::string warning) {
  for (const std::string_view said : {" and is ignored", " It is ignored.", " is ignored",
                                      " The character itself will be matched"})
    if (const size_t at = warning.find(said); at != std::string::npos)
      warning.erase(at, said.size());
  return warning;
}

// Anything that XGrammar refuses, or says that it would not enforce, is an error: a completion that
// follows half of a schema is of no use.
std::shared_ptr<const Automaton> checked_automaton(AutomatonCompiler::Outcome outcome,
                                                   const std::string& where) {
  check<ConfigError>(outcome.problem.empty(), where, ": ", outcome.problem);
  check<ConfigError>(outcome.warnings.empty(), where, ": not supported: ",
                     outcome.warnings.empty() ? "" : as_refused(outcome.warnings.front()));
  return std::move(outcome.automaton);
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

void check_num_bytes(const Spec& spec) {
  const size_t most = spec.kind == Spec::Kind::kRegex     ? kLongestRegex
                      : spec.kind == Spec::Kind::kGrammar ? kLongestGrammar
                                                          : kLongestText;
  check<ConfigError>(spec.text.size() <= most, spec.where, ": found ", spec.text.size(),
                     " bytes, expected at most ", most, "; longer ones take minutes to compile");
}

void check_size(const Spec& spec) {
  check_num_bytes(spec);
  if (spec.kind == Spec::Kind::kJsonSchema) return;
  const int64_t repeats = num_large_repeats(spec.text);
  check<ConfigError>(repeats <= kMostRepeats, spec.where, ": found ", repeats,
                     " repetitions with a bound of 32 or more, as in {32}; expected at most ",
                     kMostRepeats, "; more take minutes to compile");
}

bool available() { return xgrammar_plugin().compiler && xgrammar_plugin().tags; }

Spec json_object(std::string where) {
  return {Spec::Kind::kJsonSchema, R"({"type":"object"})", std::move(where)};
}

Spec tagged(const std::vector<Tag>& tags, const std::string& separator, bool once,
            const std::string& where) {
  Json list = Json::array();
  size_t size = 0;
  SchemaTotals totals;
  for (const Tag& tag : tags) {
    size += tag.begin.size() + dump_json(tag.schema).size() + tag.end.size();
    check<ConfigError>(size <= kLongestText, where, ": more than ", kLongestText, " bytes");
    const std::string schema = checked_schema(tag.schema, dump_json(tag.schema), where, &totals);
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
  require_xgrammar();
  std::string problem;
  std::string grammar = xgrammar_plugin().tags(dump_json(all), problem);
  check<ConfigError>(problem.empty(), where, ": not supported: ", problem);
  return {Spec::Kind::kGrammar, std::move(grammar), where};
}

class Grammar {
 public:
  std::shared_ptr<const Automaton> automaton;
  std::shared_ptr<const TokenBytes> tokens;
  int64_t vocabulary;
  std::shared_ptr<const Mask> allowed;  // tokens that it can ever have; null: all
};

struct Compiler::Impl {
  Impl(std::shared_ptr<const TokenBytes> t, int64_t v)
      : tokens(std::move(t)),
        vocabulary(v),
        automata(xgrammar_plugin().compiler(tokens->bytes)),
        json(tokens_of_json(*tokens)) {
    check(automata != nullptr, "no memory for the tokenizer of a grammar");
  }
  std::shared_ptr<const Automaton> compile(const Spec& spec) {
    return checked_automaton(automata->compile(spec.kind, text_of_spec(spec)), spec.where);
  }
  std::string text_of_spec(const Spec& spec) const {
    if (spec.kind == Spec::Kind::kRegex) return spec.text;
    if (spec.kind == Spec::Kind::kGrammar) return without_dots(spec.text);
    try {
      const Json schema = parse_json(spec.text, spec.where);
      return checked_schema(schema, spec.text, spec.where);
    } catch (const DataError& e) {  // it names the place
      throw ConfigError(e.what());
    }
  }

  std::shared_ptr<const TokenBytes> tokens;
  int64_t vocabulary;
  std::unique_ptr<AutomatonCompiler> automata;
  std::shared_ptr<const Mask> json;
};

Compiler::Compiler(std::shared_ptr<const Tokenizer> tokenizer, int64_t vocabulary) {
  require_xgrammar();
  check<ConfigError>(tokenizer != nullptr, "a grammar needs a tokenizer, but the model has none");
  auto tokens = std::make_shared<const TokenBytes>(token_bytes(*tokenizer, vocabulary));
  impl_ = std::make_unique<Impl>(std::move(tokens), vocabulary);
}
Compiler::~Compiler() = default;

std::shared_ptr<const Grammar> Compiler::compile(const Spec& spec) {
  check<ConfigError>(spec.text.size() <= kLongestText, spec.where, ": more than ", kLongestText,
                     " bytes");
  auto grammar = std::make_shared<const Grammar>(
      Grammar{impl_->compile(spec), impl_->tokens, impl_->vocabulary,
              spec.kind == Spec::Kind::kJsonSchema ? impl_->json : nullptr});
  check<ConfigError>(!Matcher(grammar, {}).ended() || !Matcher(grammar, {0}).ended(), spec.where,
                     ": no sequence of this tokenizer's tokens matches");
  return grammar;
}

struct Matcher::Impl {
  Impl(std::shared_ptr<const Grammar> g, std::vector<int32_t> e)
      : grammar(std::move(g)),
        ends(std::move(e)),
        state(grammar->automaton->start()),
        words(static_cast<size_t>((grammar->vocabulary + 31) / 32)) {
    std::erase_if(ends, [this](int32_t id) { return id < 0 || id >= grammar->vocabulary; });
  }

  // A copy at the same place of the text.
  Impl(const Impl& other)
      : grammar(other.grammar),
        ends(other.ends),
        closing(other.closing),
        state(other.state->fork()),
        words(other.words),
        at_start(other.at_start),
        ended(other.ended) {}

  bool has(int32_t token) const { return is_set(words, token); }
  void set(int32_t token, bool allowed) {
    const uint32_t bit = uint32_t{1} << (token % 32);
    uint32_t& word = words[static_cast<size_t>(token / 32)];
    word = allowed ? word | bit : word & ~bit;
  }
  void fill() {
    state->next_tokens(words);
    if (const int tail = static_cast<int>(grammar->vocabulary % 32))
      words.back() &= (uint32_t{1} << tail) - 1;
    if (at_start) restrict_first();
    if (grammar->allowed)
      for (size_t i = 0; i < words.size(); ++i) words[i] &= (*grammar->allowed)[i];
    const bool may_end = state->is_complete();
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
    ended = counts_as != TokenBytes::kNothing && !state->accept(counts_as);
    if (ended) return;
    fill();
    const bool is_end = std::find(ends.begin(), ends.end(), token) != ends.end();
    ended = ended || (is_end && state->is_complete());
  }

  std::shared_ptr<const Grammar> grammar;
  std::vector<int32_t> ends;
  std::vector<int32_t> closing;  // end tokens that would end the text here and are not part of it
  std::unique_ptr<AutomatonState> state;
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
  return std::unique_ptr<Matcher>(new Matcher(std::make_unique<Impl>(*impl_)));
}

}  // namespace temper::grammar
