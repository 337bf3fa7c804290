// Names that other trainers use for the keys of a config.
#pragma once

#include <span>
#include <string_view>

namespace temper {

// A key of another program and what it is here.
struct KeySynonym {
  // The last part of the other program's key, or its last two where the last one alone may mean
  // several things: "lr" for torchtune's optimizer.lr, "rollout.n" for verl. Lower case.
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

// The synonym of a key's last part, whatever its case and its dashes; nullptr where it is unknown.
const KeySynonym* find_key_synonym(std::string_view name);

}  // namespace temper
