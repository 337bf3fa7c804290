// What a layer is for. Its constructor says it, or the module that makes it, so that nobody guesses
// it from a name.
#pragma once

namespace temper::nn {

// Of a module and of its parts, but for those that have a role of their own (Module::set_role).
enum class Role {
  kNone,       // a body, a block, and what stands alone in one
  kAttention,  // queries, keys, values, outputs
  kMlp,        // transforms each token alone
  kExpert,     // the same in a mixture: the tokens that are sent to it
  kRouter,
  kNorm,
  kState,  // carries a state from token to token
  kEmbedding,
  kHead,  // reads the hidden states: for the vocabulary, or for a single number
};

}  // namespace temper::nn
