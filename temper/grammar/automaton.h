// What libtemper_xgrammar.so gives to libtemper_grammar: grammars compiled to automata over tokens.
// The plugin holds XGrammar (Dong et al., arXiv 2411.15100), which takes minutes to compile and is
// loaded at the first grammar. Both sides are built together, by one compiler.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "temper/grammar/spec.h"

namespace temper::grammar {

// Between two tokens of JSON: enough for a line's end and a little indentation. A model that likes
// blanks would go on with them for ever.
inline constexpr int kMostBlanks = 4;

// Where one text stands in its grammar.
class AutomatonState {
 public:
  virtual ~AutomatonState() = default;
  // Bit t % 32 of word t / 32: whether token t may come next. `words` holds a bit for each token.
  virtual void next_tokens(std::span<uint32_t> words) = 0;
  // Goes on by a token; false, and nothing changes, where it may not come next.
  virtual bool accept(int32_t token) = 0;
  // Whether the text is whole as it is; more may follow it.
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
    std::string problem;                         // why the text is refused
    std::vector<std::string> warnings;           // what of the text is left out
  };
  virtual ~AutomatonCompiler() = default;
  // text: a JSON schema, a regular expression, or a grammar in EBNF whose first rule is `root`.
  // What was compiled before is kept, up to 256 MiB. From any thread; throws nothing.
  virtual Outcome compile(Spec::Kind kind, const std::string& text) = 0;
};

}  // namespace temper::grammar

extern "C" {
// token_bytes: of each of the model's tokens, empty where it adds nothing to a text. The caller
// owns what is returned; null where there is no memory.
__attribute__((visibility("default"))) temper::grammar::AutomatonCompiler* temper_xgrammar_compiler(
    const std::vector<std::string>& token_bytes);
// The grammar in EBNF of a "structural tag" of XGrammar's (JSON); where it is refused, empty, and
// `problem` says why.
__attribute__((visibility("default"))) std::string temper_xgrammar_tags(const std::string& tag,
                                                                        std::string& problem);
}
