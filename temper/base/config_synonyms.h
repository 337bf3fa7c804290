// Names that other trainers use for the keys of a config.
#pragma once

#include <span>
#include <string_view>

namespace temper {

// A key of TRL, transformers, PEFT, axolotl, torchtune, Tunix or verl and what it is here.
struct KeySynonym {
  // Their last part, or the last two where the last one alone may mean several things: "lr" of
  // torchtune's optimizer.lr, "rollout.n" of verl. Lower case.
  std::string_view name;
  std::string_view key;   // "optimizer.learning_rate", or empty: there is no such key
  std::string_view note;  // a sentence to add; empty: the key says it
};

// The synonym of a key's last part, whatever its case and its dashes; nullptr where it is unknown.
const KeySynonym* find_key_synonym(std::string_view name);

// All of them, sorted by name.
std::span<const KeySynonym> key_synonyms();

}  // namespace temper
