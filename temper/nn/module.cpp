#include "temper/nn/module.h"

namespace temper::nn {

Module::Module(Module& parent, std::string name) : parent_(&parent) {
  parent.children_.push_back({std::move(name), this, nullptr});
}

void Module::adopt(std::string name, Module& child) {
  child.parent_ = this;
  children_.push_back({std::move(name), &child, nullptr});
}

Role Module::role() const {
  const Module* module = this;
  while (module->role_ == Role::kNone && module->parent_) module = module->parent_;
  return module->role_;
}

const Module& Module::root() const {
  const Module* module = this;
  while (module->parent_) module = module->parent_;
  return *module;
}

void Module::count_change() const { root().changes_.fetch_add(1, std::memory_order_relaxed); }

void Module::forget(const Module& child) {
  std::erase_if(children_, [&](const Child& c) { return c.module == &child; });
}

void Module::each_parameter(const std::function<void(const std::string&, Parameter&)>& visit) {
  visit_parameters("", visit);
}

void Module::visit_parameters(const std::string& prefix,
                              const std::function<void(const std::string&, Parameter&)>& visit) {
  for (const Child& child : children_) {
    if (child.parameter)
      visit(prefix + child.name, *child.parameter);
    else
      child.module->visit_parameters(prefix + child.name + ".", visit);
  }
}

void Module::each_module(const std::function<void(const std::string&, Module&)>& visit) {
  visit_modules("", visit);
}

void Module::visit(const LayerVisitor& visitor) {
  each_module([&](const std::string& path, Module& module) { module.accept(path, visitor); });
}

void Module::visit_modules(const std::string& path,
                           const std::function<void(const std::string&, Module&)>& visit) {
  visit(path, *this);
  for (const Child& child : children_)
    if (child.module)
      child.module->visit_modules(path.empty() ? child.name : path + "." + child.name, visit);
}

}  // namespace temper::nn
