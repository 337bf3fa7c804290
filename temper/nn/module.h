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

#include "temper/nn/placement.h"
#include "temper/ops/weight.h"

namespace temper::nn {

class Module;
class Unit;

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

  // Of value(): under tensor parallelism, of this rank's part.
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& whole_shape() const {
    return placement_ ? placement_->whole_shape : shape_;
  }
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
  const at::Tensor& value() const {
    if (unit_ && !value_is_here()) fail_released();
    return value_;
  }
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

  // What of it is kept on this rank; null: all of it.
  const Placement* placement() const { return placement_.get(); }
  // Before it has a value: its dimension `dim` is divided evenly among the ranks of the group.
  void split(int64_t dim, std::shared_ptr<dist::Group> tensor);
  // FSDP (unit.h): `kept` is this rank's part of the value, flat, and `value` a tensor whose memory
  // the unit gives it while it is gathered. Of a quantized parameter `kept` is undefined.
  void shard(const Unit& unit, Placement placement, at::Tensor kept, at::Tensor value);
  void shard(const Unit& unit, std::shared_ptr<const ops::QuantizedWeight> codes);
  // The unit has given its memory back.
  void release();

  // The leaf that gradients are of and that an optimizer updates: value(), or what is kept here.
  const at::Tensor& trained() const { return kept_.defined() ? kept_ : value_; }
  // The whole value in float32, from all ranks that share it, which all call this.
  at::Tensor whole_value() const;
  // Takes its part of a whole value.
  void set_whole_value(const at::Tensor& whole);

  // The gradient of a parameter that is whole on the ranks of a tensor group, but of which each of
  // them uses a part, or uses it for a part: the sum over the ranks is its gradient.
  bool gradient_is_partial() const { return gradient_is_partial_; }
  void set_gradient_is_partial() { gradient_is_partial_ = true; }

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
  bool value_is_here() const;
  [[noreturn]] static void fail_released();

  std::vector<int64_t> shape_;
  Init init_;
  at::Tensor value_;
  at::Tensor kept_;  // under FSDP
  std::shared_ptr<const Placement> placement_;
  const Unit* unit_ = nullptr;
  bool gradient_is_partial_ = false;
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

  // Whether everything that reads the parameters below runs through run_unit (unit.h) with this
  // module, so that they may be shared out among ranks.
  bool runs_as_unit() const { return runs_as_unit_; }
  void set_runs_as_unit(bool does = true) { runs_as_unit_ = does; }
  // What shares them out; null: nothing does.
  Unit* unit() const { return unit_.get(); }
  void set_unit(std::shared_ptr<Unit> unit) { unit_ = std::move(unit); }

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
  bool runs_as_unit_ = false;
  std::shared_ptr<Unit> unit_;
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
