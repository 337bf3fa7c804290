// Modules, the tree that a model's parameters are named by. A module's attributes are named as the
// checkpoint names them, so that loading and saving need no map: a parameter's name is the path of
// attribute names to it
// ("model.layers.0.self_attn.q_proj.weight").
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "temper/nn/role.h"
#include "temper/nn/weights/parameter.h"

namespace temper::nn {

class Attention;
class Embedding;
class Experts;
class Linear;
class LmHead;
class Router;
class StateLayer;
class TiedHead;

// What asks a model for its layers by kind, without knowing how its blocks are made of them:
//
//   model.visit({.linear = [&](const std::string& path, nn::Linear& layer) { ... }});
//
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

class ShardUnit;

class Module {
 public:
  Module() = default;  // a root
  Module(Module& parent, std::string name);
  // One that `parent` does not list, but whose changes count as those of its model.
  struct Unlisted {};
  Module(Module& parent, Unlisted) : parent_(&parent) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Every parameter below, in order of declaration, with its full name.
  void each_parameter(const std::function<void(const std::string&, Parameter&)>& visit);
  // Every module below, itself first ("" at the root).
  void each_module(const std::function<void(const std::string&, Module&)>& visit);

  // Every layer below of a kind that the visitor asks for, this one included, in the same order.
  void visit(const LayerVisitor& visitor);

  // Its own, or that of the nearest module around it that has one. A parameter's is its owner's.
  Role role() const;
  // The same of what it is a part of: kAttention of the norm of queries, whose own is kNorm.
  Role role_around() const { return parent_ ? parent_->role() : Role::kNone; }
  void set_role(Role role) { role_ = role; }

  // The number of updates to any parameter of this module's model: what was computed with its
  // weights stays valid while this does not change. Any thread may ask.
  uint64_t changes() const { return root().changes_.load(std::memory_order_relaxed); }

  // Whether everything that reads the parameters below runs through run_unit (unit.h) with this
  // module, so that they may be shared out among ranks.
  bool runs_as_unit() const { return runs_as_unit_; }
  void set_runs_as_unit(bool does = true) { runs_as_unit_ = does; }
  // The FSDP unit that shards these parameters; null: they are not sharded.
  ShardUnit* unit() const { return unit_.get(); }
  void set_unit(std::shared_ptr<ShardUnit> unit) { unit_ = std::move(unit); }

 protected:
  // Calls the visitor's function for this kind of module, where it has one.
  virtual void accept(const std::string& /*path*/, const LayerVisitor& /*visitor*/) {}

  // Makes a root a child of this module, which keeps it alive by other means.
  void adopt(std::string name, Module& child);
  // Removes a child that is about to be destroyed.
  void forget(const Module& child);

 private:
  friend class Parameter;
  friend class TokenRows;  // it leaves its owner before that one ends
  void visit_parameters(const std::string& prefix,
                        const std::function<void(const std::string&, Parameter&)>& visit);
  void visit_modules(const std::string& path,
                     const std::function<void(const std::string&, Module&)>& visit);

  struct Child {
    std::string name;
    Module* module;  // one of the two
    Parameter* parameter;
  };
  const Module& root() const;
  void count_change() const;

  std::vector<Child> children_;
  Module* parent_ = nullptr;                  // null: a root
  mutable std::atomic<uint64_t> changes_{0};  // of a root
  Role role_ = Role::kNone;
  bool runs_as_unit_ = false;
  std::shared_ptr<ShardUnit> unit_;
};

// A list of modules named by their index: "layers.0", "layers.1", ...
template <class T>
class ModuleList : public Module {
 public:
  ModuleList(Module& parent, std::string name) : Module(parent, std::move(name)) {}
  template <class... Args>
  void emplace(Args&&... args) {
    items_.push_back(
        std::make_unique<T>(*this, std::to_string(items_.size()), std::forward<Args>(args)...));
  }
  size_t size() const { return items_.size(); }
  T& operator[](size_t i) { return *items_[i]; }
  const T& operator[](size_t i) const { return *items_[i]; }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }

 private:
  std::vector<std::unique_ptr<T>> items_;
};

}  // namespace temper::nn
