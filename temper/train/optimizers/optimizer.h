// An optimizer over a model's trainable parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "temper/dist/mesh.h"
#include "temper/io/safetensors.h"
#include "temper/train/config.h"
#include "temper/train/offload/disk_state.h"
#include "temper/train/optimizers/update_rule.h"
#include "temper/train/roles/parameters.h"

namespace temper::train {

class Optimizer {
 public:
  // `where` begins the message of a ConfigError about the section's groups.
  Optimizer(const OptimizerSection& config, std::vector<NamedParameter> parameters,
            const std::string& where = "optimizer.groups");

  // The next steps use these settings, of the same optimizer.name, without groups.
  void set(const OptimizerSection& config);

  // From the first step on the state is there instead of in memory: read and written around each
  // update, with the same bits. Call before there is a state.
  void store_state_in(std::unique_ptr<DiskState> disk);

  // The global L2 norm of all gradients, in double, over all ranks that share the model. A
  // parameter without a gradient counts as zero.
  double grad_norm(const dist::Mesh& mesh = {}) const;
  // One update from the parameters' gradients, scaled by grad_scale; the gradients are released.
  // `learning_rate` is the step's; parameters with a rate of their own use it times theirs.
  void step(double learning_rate, double grad_scale);
  void zero_grad();
  // The name of a parameter of which this rank holds a value that is not finite; "": there is none.
  std::string not_finite() const;

  // The state by name, as PARAMETER.first, and its number of steps; load() takes what save() gave,
  // on any mesh. Of parameters that ranks share out, it is gathered when it is written
  // (TensorView::make).
  // Throws DataError, and has then changed nothing; check_moments() throws the same. save() throws
  // RunError where a disk's error has ended an update half-way.
  TensorMap save();
  // The state that this rank keeps, by the same names; nothing before the first step.
  void each_own_state(
      const std::function<void(const std::string& name, const at::Tensor& part)>& visit) const;
  void check_moments(const TensorMap& tensors, const std::string& where) const;
  void load(const TensorMap& tensors, int64_t steps, const std::string& where);
  int64_t steps() const { return steps_; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }

 private:
  // The state of one parameter.
  struct Slot {
    std::vector<StateTensor> layout;  // state tensors as files have them
    std::vector<at::Tensor>
        state;                 // this rank's state tensors; empty where another rank keeps them
    DiskState::Piece on_disk;  // instead of `state`
    bool by_parts = false;     // ranks share out the parameter, and each updates its part
    int keeper = 0;            // rank of the FSDP group that updates a parameter whole
  };
  // Called when the state is first needed: by then it is known which parameters ranks share out.
  void make_state();
  bool keeps(size_t i) const;
  void step_whole(size_t i, const Update& update, std::span<const at::Tensor> state);
  void step_on_disk(const std::function<Update(size_t i)>& update_of);
  size_t states(size_t i) const {
    return disk_ ? slots_[i].on_disk.size() : slots_[i].state.size();
  }
  at::Tensor own_state(size_t i, size_t s) const {
    return disk_ ? disk_->read(slots_[i].on_disk[s]) : slots_[i].state[s];
  }
  at::Tensor gradient(size_t i) const;
  at::Tensor whole_state(size_t i, size_t s) const;
  void put_own_state(size_t i, size_t s, const TensorView::Put& put) const;

  OptimizerSection config_;
  std::unique_ptr<UpdateRule> rule_;
  std::vector<NamedParameter> parameters_;
  std::vector<Slot> slots_;  // [parameters]
  bool has_state_ = false;
  std::unique_ptr<DiskState> disk_;  // null: the state is in memory
  bool torn_ = false;                // an update ended half-way
  int64_t steps_ = 0;
};

}  // namespace temper::train
