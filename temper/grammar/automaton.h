// The interface of libtemper_xgrammar.so: grammars compiled to automata over tokens. The plugin
// holds XGrammar (Dong et al., arXiv 2411.15100), which takes minutes to compile, and is loaded by
// libtemper_grammar at the first grammar. Both are built together, by one compiler.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "temper/grammar/spec.h"

namespace temper::grammar {

// Most spaces and line ends between two tokens of JSON: enough for a line's end and a little
// indentation. Without a limit a model could go on with them for ever.
inline constexpr int kMostBlanks = 4;

// The position of one text in its grammar.
class AutomatonState {
 public:
  virtual ~AutomatonState() = default;
  // Bit t % 32 of word t / 32: whether token t may come next. `words` holds a bit for each token.
  virtual void next_tokens(std::span<uint32_t> words) = 0;
  // Advances by a token. Returns false, and changes nothing, where that token may not come next.
  virtual bool accept(int32_t token) = 0;
  // True where the text so far matches the grammar; more may follow it.
  virtual bool is_complete() const = 0;
  virtual std::unique_ptr<AutomatonState> fork() const = 0;
};

// A compiled grammar: immutable, for any number of texts at once.
class Automaton {
 public:
  virtual ~Automaton() = default;
  virtual std::unique_ptr<AutomatonState> start() const = 0;
};

class AutomatonCompiler {
 public:
  struct Outcome {
    std::shared_ptr<const Automaton> automaton;  // null where there is a problem
    std::string problem;                         // why `text` is refused
    std::vector<std::string> warnings;           // parts of `text` that are not enforced
  };
  virtual ~AutomatonCompiler() = default;
  // text: a JSON schema, a regular expression, or a grammar in EBNF whose first rule is `root`.
  // Compiled grammars are cached, up to 256 MiB. May be called from any thread; throws nothing.
  virtual Outcome compile(Spec::Kind kind, const std::string& text) = 0;
};

}  // namespace temper::grammar

extern "C" {
// token_bytes: for each of the model's tokens the bytes that it adds to a text, empty where it adds
// none. The caller owns the result; null where memory runs out.
__attribute__((visibility("default"))) temper::grammar::AutomatonCompiler* temper_xgrammar_compiler(
    const std::vector<std::string>& token_bytes);
// The EBNF grammar of one of XGrammar's "structural tags" (JSON). Empty where it is refused, and
// `problem` says why.
__attribute__((visibility("default"))) std::string temper_xgrammar_tags(const std::string& tag,
                                                                        std::string& problem);
}
