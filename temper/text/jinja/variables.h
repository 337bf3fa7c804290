// The variables that a place in a template sees.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "temper/text/jinja/runtime.h"
#include "temper/text/jinja/value.h"

namespace temper::jinja {

// The variables of a block. A macro remembers the one it was defined in without keeping it alive.
struct Scope {
  Scope* parent = nullptr;
  std::unordered_map<std::string_view, Value> variables;
};

// Those of the scopes around the place, the context's and the global functions.
class Variables {
 public:
  // context: a dict.
  explicit Variables(Value context) : context_(std::move(context)) {}

  // The innermost one of that name; Undefined where there is none.
  Value find(const std::string& name) const {
    for (const Scope* scope = scope_.get(); scope; scope = scope->parent) {
      const auto found = scope->variables.find(name);
      if (found != scope->variables.end()) return found->second;
    }
    if (const Value* value = context_.get_if<Dict>()->data->find_text(name)) return *value;
    return global_value(name);
  }
  // In the innermost scope. The name's text outlives that.
  void set(std::string_view name, Value value) { scope_->variables[name] = std::move(value); }
  const std::shared_ptr<Scope>& scope() const { return scope_; }

 private:
  friend class NewScope;

  Value context_;
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
};

// A scope inside the current one (or inside a macro's), for as long as it lives.
class NewScope {
 public:
  explicit NewScope(Variables& variables) : NewScope(variables, variables.scope_) {}
  NewScope(Variables& variables, std::shared_ptr<Scope> parent)
      : variables_(variables), parent_(std::move(parent)), outer_(variables.scope_) {
    variables.scope_ = std::make_shared<Scope>();
    variables.scope_->parent = parent_.get();
  }
  ~NewScope() { variables_.scope_ = outer_; }
  NewScope(const NewScope&) = delete;
  NewScope& operator=(const NewScope&) = delete;

 private:
  Variables& variables_;
  std::shared_ptr<Scope> parent_, outer_;
};

}  // namespace temper::jinja
