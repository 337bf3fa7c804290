// Completions that keep to a grammar: at every position, which tokens may come next. The automata
// are XGrammar's (Dong et al., arXiv 2411.15100), on the bytes that a token adds to the text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "temper/grammar/spec.h"
#include "temper/text/tokenizer/tokenizer.h"

namespace temper::grammar {

// Whether this build has grammars.
bool available();

// Throws ConfigError ("WHERE: ..") for a regular expression above 16 KiB, a grammar above 64 KiB or
// a schema above 1 MiB, or of more large repetitions than kMostRepeats, as users write them:
// compiling takes time that grows with the square of the length, and cannot be interrupted. Schemas
// have limits of their own beside this one (SchemaLimits).
void check_size(const Spec& spec);
// The same of the length alone: for a grammar that repeats nothing.
void check_num_bytes(const Spec& spec);

// A compiled grammar: immutable, for any number of completions at once.
class Grammar;

class Compiler {
 public:
  // vocabulary: number of the model's tokens; those that the tokenizer lacks are never allowed.
  // Throws ConfigError where the build has no grammars, and for a tokenizer whose tokens add no
  // bytes of their own to a text.
  Compiler(std::shared_ptr<const Tokenizer> tokenizer, int64_t vocabulary);
  ~Compiler();

  // Compiled grammars are cached, up to 256 MiB. From any thread. Throws ConfigError that begins
  // with the spec's `where` if the spec is malformed, not supported, or matches no text.
  std::shared_ptr<const Grammar> compile(const Spec& spec);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The position of one completion in its grammar.
class Matcher {
 public:
  // ends: tokens that end a completion. They are allowed where the grammar may end. One that stands
  // in the text that the grammar describes is part of it there, and ends it where it is whole.
  Matcher(std::shared_ptr<const Grammar> grammar, std::vector<int32_t> ends);
  ~Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;

  // Bit t % 32 of word t / 32: whether token t may come next. Some token may, unless ended().
  std::span<const uint32_t> mask() const;
  bool allows(int32_t token) const;
  // Advances by a token that the mask allows.
  void accept(int32_t token);
  // Nothing may follow: an end token was accepted, or the grammar is through and there are none.
  bool ended() const;
  // A copy at the same position.
  std::unique_ptr<Matcher> fork() const;

 private:
  struct Impl;
  explicit Matcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace temper::grammar
