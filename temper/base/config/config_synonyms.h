// Names that other trainers use for the keys of a config.
#pragma once

#include <span>
#include <string_view>

namespace temper {

// A key of another program and what it is here.
struct KeySynonym {
  // The last part of the other program's key, or as many of its last parts as say what is meant
  // where the last one alone may mean several things: "lr" for torchtune's optimizer.lr,
  // "rollout.n" for verl. "profiler.*" is every key of sections of that name, "comet_*" every key
  // that begins so. Lower case.
  std::string_view name;
  std::string_view key;   // key of this program, "optimizer.learning_rate"; empty: there is none
  std::string_view note;  // a sentence that hints add; empty: none
  // The sentence for the value `false`; empty: `note`, or, where that says what to write, that
  // false is the default here.
  std::string_view off = {};
};

// The synonyms that hints name from now on, sorted by name; they outlive all reading. Who knows the
// whole config gives them before it reads one: fields know no key but their own.
void use_key_synonyms(std::span<const KeySynonym> sorted);

// The synonym of a key, "lr", or of a path, "actor.optim.lr", whatever its case and its dashes; the
// first that there is of: the longest of its ends of two parts or more; its innermost section; its
// last part; the beginning of its last part, or of its last two. nullptr where it is unknown.
const KeySynonym* find_key_synonym(std::string_view path);

}  // namespace temper
