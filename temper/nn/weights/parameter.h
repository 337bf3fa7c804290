// A tensor of a model: its value in the format in which it is kept, what of it lies on this rank,
// and the packed form that products read.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/nn/weights/placement.h"
#include "temper/nn/weights/stored_value.h"
#include "temper/ops/weight.h"

namespace temper::nn {

class Module;
class ShardUnit;

// How a parameter begins, as transformers initializes it.
struct Init {
  // kLogUniform: the logarithm of an even draw from [0.01, 16) (Mamba's decays).
  enum class Kind { kNormal, kZeros, kOnes, kLogUniform } kind = Kind::kNormal;
  double init_std = 0.02;  // kNormal, around 0
};

// A tensor of a model. Its value is the only truth; packed forms of it are derived and dropped when
// it changes.
class Parameter {
 public:
  Parameter(Module& owner, std::string name, std::vector<int64_t> shape, Init init);
  // The module whose attribute it is.
  Module& owner() const { return owner_; }
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  // Of value(): under tensor parallelism, of this rank's part.
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& whole_shape() const {
    return part_.placement ? part_.placement->whole_shape : shape_;
  }
  const Init& init() const { return init_; }

  // How the value is kept. Set before it; a value that is there already is converted.
  ops::WeightFormat format() const { return stored_.format(); }
  void set_format(ops::WeightFormat format);
  // Where the value lies. A value that is there already moves.
  at::Device device() const { return stored_.device(); }
  void set_device(at::Device device);
  // Of products in bfloat16 and quantized formats.
  void set_arithmetic(ops::Arithmetic arithmetic) { stored_.set_arithmetic(arithmetic); }
  ops::Arithmetic arithmetic() const { return stored_.arithmetic(); }

  // Undefined until it is set, of this shape: float32 (float64 in gradient checks), or bfloat16 as
  // format() says; of a quantized parameter undefined: stored() has its codes. A value that was
  // mapped from a file is read-only: own() copies it into memory of its own before training writes
  // to it.
  const at::Tensor& value() const {
    check_gathered();
    return stored_.tensor();
  }
  // Takes a value of any floating-point dtype, converted to format(). Throws DataError where a
  // value to be quantized is not finite.
  void set_value(at::Tensor value);
  // The value in float32 (or float64), unrounded where it is kept so; of a quantized one what its
  // codes stand for, and of bfloat16, a copy.
  at::Tensor float_value() const;
  void set_codes(std::shared_ptr<const ops::QuantizedWeight> codes);
  // Whether its value may be codes that a file holds: what products multiply by and rows are looked
  // up in.
  bool takes_codes() const { return takes_codes_; }
  void set_takes_codes(bool takes) { takes_codes_ = takes; }
  bool has_value() const { return stored_.defined(); }
  void own();

  // A constant never trains, whoever asks for it: what transformers keeps as a buffer.
  void set_constant() { constant_ = true; }
  // Whether weight decay applies: to what has two or more dimensions, and to what set_decays() says
  // is a part of such a tensor in transformers.
  bool decays() const { return decays_ || whole_shape().size() >= 2; }
  void set_decays() { decays_ = true; }
  bool trainable() const { return trainable_; }
  void set_trainable(bool trainable);

  // What of it is kept on this rank; null: all of it.
  const Placement* placement() const { return part_.placement.get(); }
  // The dimension along which ranks that compute the same rows may divide it, as its module says;
  // none: it is whole on each of them.
  std::optional<int64_t> divides() const { return divides_; }
  void set_divides(int64_t dim) { divides_ = dim; }
  // Before it has a value: it is divided so, evenly among the ranks of the group, or each of
  // several that are joined along the dimension is (Placement::joined). Throws ConfigError where
  // they do not divide it.
  void split(std::shared_ptr<dist::Group> tensor, std::vector<int64_t> joined = {});
  // Before it has a value: that rank of the group has all of it. On the others it is empty, [0,
  // ..], and is not quantized.
  void give_to(int owner, std::shared_ptr<dist::Group> tensor);
  // Whether another rank has it: nothing is computed with it here.
  bool is_elsewhere() const { return part_.placement && part_.placement->elsewhere(); }
  // FSDP (unit.h): `kept` is this rank's part of the value, flat, and `value` a tensor whose memory
  // the unit gives it while it is gathered. Of a quantized parameter `kept` is undefined.
  void shard(const ShardUnit& unit, Placement placement, at::Tensor kept, at::Tensor value);
  void shard(const ShardUnit& unit, std::shared_ptr<const ops::QuantizedWeight> codes);
  // The unit has given its memory back.
  void release();

  // The leaf that gradients are of and that an optimizer updates: value(), or what is kept here.
  const at::Tensor& trained() const { return part_.kept.defined() ? part_.kept : stored_.tensor(); }
  // The whole value in float32, from all ranks that share it, which all call this.
  at::Tensor whole_value() const;
  // Takes its part of a whole value.
  void set_whole_value(const at::Tensor& whole);

  // The gradient of a parameter that is whole on the ranks of a tensor group, but of which each of
  // them uses a part, or uses it for a part: the sum over the ranks is its gradient.
  bool gradient_is_partial() const { return part_.gradient_is_partial; }
  void set_gradient_is_partial() { part_.gradient_is_partial = true; }

  // Rows of this matrix that train in its place, [ids, width], ascending; null: none do. stored()
  // then says so. They outlive this or are taken away.
  void set_trained_rows(const Parameter* rows, std::vector<int64_t> ids = {});
  // Called after each update of the value, set_value() among them.
  void set_on_update(std::function<void()> then) { on_update_ = std::move(then); }

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
  // What of it this rank has.
  struct RankPart {
    std::shared_ptr<const Placement> placement;  // null: all of it
    const ShardUnit* unit = nullptr;             // which gathers it, under FSDP
    at::Tensor kept;                             // under FSDP: this rank's range, flat
    bool gradient_is_partial = false;
  };
  void check_gathered() const {
    if (part_.unit && !is_gathered()) fail_released();
  }
  bool is_gathered() const;
  [[noreturn]] static void fail_released();

  Module& owner_;
  std::vector<int64_t> shape_;
  Init init_;
  std::optional<int64_t> divides_;
  StoredValue stored_;
  RankPart part_;
  bool trainable_ = false, constant_ = false, decays_ = false, takes_codes_ = false;
  std::atomic<uint64_t> updates_{0};
  mutable PanelCache panels_;
  const Parameter* rows_ = nullptr;
  std::vector<int64_t> row_ids_;
  std::function<void()> on_update_;
};

}  // namespace temper::nn
