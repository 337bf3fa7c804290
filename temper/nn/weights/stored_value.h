// A tensor in one of the formats in which weights are kept, and its packed form.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "temper/ops/weight.h"

namespace temper::nn {

class StoredValue {
 public:
  ops::WeightFormat format() const { return format_; }
  // Of the next set(); what is there is not converted.
  void set_format(ops::WeightFormat format) { format_ = format; }
  // Of products in bfloat16 and quantized formats.
  ops::Arithmetic arithmetic() const { return arithmetic_; }
  void set_arithmetic(ops::Arithmetic arithmetic) { arithmetic_ = arithmetic; }
  // Of the next set(); what is there stays where it is.
  at::Device device() const { return device_; }
  void set_device(at::Device device) { device_ = device; }

  bool defined() const { return tensor_.defined() || codes_; }
  // Float32 (float64 in gradient checks) or bfloat16; undefined where the value is quantized.
  const at::Tensor& tensor() const { return tensor_; }

  // Takes a value of any floating-point dtype on any device, converted to format() on device().
  // Throws DataError where a value to be quantized is not finite.
  void set(const at::Tensor& value);
  // The format is then that of the codes.
  void set_codes(std::shared_ptr<const ops::QuantizedWeight> codes);
  // Takes a tensor as it is, whose values may come later.
  void set_tensor(at::Tensor tensor) { tensor_ = std::move(tensor); }

  // What products multiply by, without panels.
  ops::Weight weight() const;
  // Float32 (or float64), unrounded where it is kept so.
  at::Tensor float_value() const;

 private:
  at::Tensor tensor_;
  std::shared_ptr<const ops::QuantizedWeight> codes_;
  at::Device device_ = at::kCPU;
  ops::WeightFormat format_ = ops::WeightFormat::kFloat32;
  ops::Arithmetic arithmetic_ = ops::Arithmetic::kExact;
};

// The packed form of a weight: its blocks in the order in which products read them. Made on first
// use and kept until the weight changes. Of any thread; two that come first pack once.
class PanelCache {
 public:
  // Of the weight after so many updates. Undefined, and then nothing is kept, while gradients are
  // recorded (training packs into scratch), while a TransientPanels lives, and for float64.
  at::Tensor of(const ops::Weight& weight, uint64_t updates);
  void drop();

 private:
  std::mutex mutex_;
  at::Tensor panels_;
  uint64_t updates_ = 0;  // of the weight when they were made
};

// Whether this thread's packed forms of weights are kept: not while gradients are recorded, nor
// while a TransientPanels lives.
bool keeps_panels();

// While one lives, this thread's packed forms are not kept, though no gradient is recorded: a
// forward pass that will be run again for its gradient.
class TransientPanels {
 public:
  TransientPanels();
  ~TransientPanels();
  TransientPanels(const TransientPanels&) = delete;
  TransientPanels& operator=(const TransientPanels&) = delete;
};

}  // namespace temper::nn
