// Modules and their parameters. A module's attributes are named as the checkpoint names them, so
// that loading and saving need no map: a parameter's name is the path of attribute names to it
// ("model.layers.0.self_attn.q_proj.weight").
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "temper/ops/weight.h"

namespace temper::nn {

class Module;

// How a parameter begins, as transformers initialises it.
struct Init {
  enum class Kind { kNormal, kZeros, kOnes } kind = Kind::kNormal;
  double init_std = 0.02;  // kNormal, around 0
};

// A tensor of a model. Its value is the only truth; packed forms of it are derived and dropped when
// it changes.
class Parameter {
 public:
  Parameter(Module& owner, std::string name, std::vector<int64_t> shape, Init init);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  const std::vector<int64_t>& shape() const { return shape_; }
  const Init& init() const { return init_; }

  // How the value is kept. Set before it; a value that is there already is converted.
  ops::WeightFormat format() const { return format_; }
  void set_format(ops::WeightFormat format);
  // Of products in bfloat16 formats.
  void set_arithmetic(ops::Arithmetic arithmetic) { arithmetic_ = arithmetic; }
  ops::Arithmetic arithmetic() const { return arithmetic_; }

  // Undefined until it is set, of this shape: float32 (float64 in gradient checks), or bfloat16 as
  // format() says; of a quantized parameter undefined: stored() has its codes. A value that was
  // mapped from a file is read-only: own() copies it into memory of its own before training writes
  // to it.
  const at::Tensor& value() const { return value_; }
  // Takes a value of any floating-point dtype, converted to format(). Throws DataError where a
  // value to be quantized is not finite.
  void set_value(at::Tensor value);
  // The value in float32 (or float64), unrounded where it is kept so; of a quantized one what its
  // codes stand for, and of bfloat16, a copy.
  at::Tensor float_value() const;
  void set_codes(std::shared_ptr<const ops::QuantizedWeight> codes);
  bool has_value() const { return value_.defined() || codes_; }
  void own();

  bool trainable() const { return trainable_; }
  void set_trainable(bool trainable);

  // Every write to value()'s memory is followed by this: it counts the update, and packed forms of
  // earlier counts are not used again. Nobody else may use the value while it is written.
  void mark_updated();
  uint64_t updates() const { return updates_.load(); }

  // What products multiply by, as it is kept.
  ops::Weight stored() const;
  // The same with its packed form (the blocks in the order in which the product reads them), made
  // on first use and kept until the next update. Only while no gradient is recorded: training packs
  // into scratch. Several threads may call this at once; what they get never changes and lives for
  // as long as they hold it.
  ops::Weight weight() const;

 private:
  at::Tensor panels() const;  // undefined where none are kept

  std::vector<int64_t> shape_;
  Init init_;
  at::Tensor value_;
  std::shared_ptr<const ops::QuantizedWeight> codes_;
  ops::WeightFormat format_ = ops::WeightFormat::kFloat32;
  ops::Arithmetic arithmetic_ = ops::Arithmetic::kExact;
  bool trainable_ = false;
  std::atomic<uint64_t> updates_{0};
  mutable std::mutex panels_mutex_;
  mutable at::Tensor panels_;  // of the value after `panels_of_` updates, or undefined
  mutable uint64_t panels_of_ = 0;
};

// How often any parameter of the process was changed: what was computed with a model's weights is
// as good as new while this stays the same. Of any thread.
uint64_t parameter_changes();

// While one lives, this thread's packed forms are not kept, though no gradient is recorded: a
// forward pass that will be run again for its gradient.
class TransientPanels {
 public:
  TransientPanels();
  ~TransientPanels();
  TransientPanels(const TransientPanels&) = delete;
  TransientPanels& operator=(const TransientPanels&) = delete;
};

class Module {
 public:
  Module() = default;  // a root
  Module(Module& parent, std::string name);
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // Every parameter below, in order of declaration, with its full name.
  void each_parameter(const std::function<void(const std::string&, Parameter&)>& visit);
  // Every module below, itself first ("" at the root).
  void each_module(const std::function<void(const std::string&, Module&)>& visit);

 protected:
  // Makes a root a child of this module, which keeps it alive by other means.
  void adopt(std::string name, Module& child);
  // A child that is about to end is none any more.
  void forget(const Module& child);

 private:
  friend class Parameter;
  void visit_parameters(const std::string& prefix,
                        const std::function<void(const std::string&, Parameter&)>& visit);
  void visit_modules(const std::string& path,
                     const std::function<void(const std::string&, Module&)>& visit);

  struct Child {
    std::string name;
    Module* module;  // one of the two
    Parameter* parameter;
  };
  std::vector<Child> children_;
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
