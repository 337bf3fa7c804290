// What asks a model for its layers by kind, without knowing how its blocks are made of them:
//
//   model.visit({.linear = [&](const std::string& path, nn::Linear& layer) { ... }});
#pragma once

#include <functional>
#include <string>

namespace temper::nn {

class Attention;
class Embedding;
class Experts;
class Linear;
class LmHead;
class Router;
class StateLayer;
class TiedHead;

// A function for each kind of layer; layers of a kind whose function is empty are passed over.
// `path` is the layer's full name ("model.layers.0.self_attn.q_proj").
struct LayerVisitor {
  std::function<void(const std::string& path, Linear&)> linear;
  // A vocabulary head with a weight of its own; where this is empty, `linear` is called.
  std::function<void(const std::string& path, LmHead&)> lm_head;
  // A vocabulary head that reads the embedding's weight.
  std::function<void(const std::string& path, TiedHead&)> tied_head;
  std::function<void(const std::string& path, Embedding&)> embedding;
  std::function<void(const std::string& path, Attention&)> attention;
  std::function<void(const std::string& path, StateLayer&)> state_layer;
  std::function<void(const std::string& path, Experts&)> experts;
  // Which is none of those that `linear` is called for.
  std::function<void(const std::string& path, Router&)> router;
};

}  // namespace temper::nn
