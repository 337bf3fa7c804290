// What a layer is for. The layer's constructor or the module that creates it sets the role, so that
// no code has to guess it from the layer's name.
#pragma once

namespace temper::nn {

// The role of a module and of all modules inside it that set none themselves (Module::set_role).
enum class Role {
  kNone,       // a body, a block, and modules of a block that have no other role
  kAttention,  // queries, keys, values, outputs
  kMlp,        // transforms each token by itself
  kExpert,     // an MLP in a mixture of experts: transforms the tokens that are routed to it
  kRouter,
  kNorm,
  kState,  // carries a recurrent state from token to token
  kEmbedding,
  kHead,  // maps the hidden states to logits over the vocabulary, or to one number
};

}  // namespace temper::nn
