// The keys of TRL, transformers, PEFT, axolotl, torchtune, Tunix and verl, and what they are here.
#pragma once

#include <span>
#include <string_view>

#include "temper/base/config/config_synonyms.h"

namespace temper::cli {

// All of them, sorted by name: for use_key_synonyms().
std::span<const KeySynonym> key_synonyms();

// Another trainer and all keys of its configs, one a line, sorted
// (tests/golden/make_peer_keys.py writes the lists): "actor_rollout_ref.actor.optim.lr".
struct Peer {
  std::string_view name;
  std::string_view keys;
};
std::span<const Peer> peers();

}  // namespace temper::cli
