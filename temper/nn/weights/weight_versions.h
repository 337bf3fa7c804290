// A weight that an adapter brings in place of the base model's own: an embedding or a head that
// trains beside low-rank matrices, whole (PEFT's modules_to_save) or some rows of it (its
// trainable_token_indices).
#pragma once

#include <memory>
#include <vector>

#include "temper/nn/module.h"
#include "temper/nn/weights/token_rows.h"

namespace temper::nn {

// What a parameter is under each value of Context::adapter. The parameter itself is the weight of
// adapter 0; where no adapter brought one, it is the weight of all.
class WeightVersions {
 public:
  // The base model keeps the parameter's present value; the parameter gets a float32 copy that
  // trains. `own` is the parameter of all calls, and outlives this.
  void replace(Parameter& own);
  // The base model keeps the parameter's present value; of the parameter, which does not train,
  // these rows do (ids ascending), as a module of `owner`. A quantized one becomes float32.
  void train_rows(Parameter& own, Module& owner, std::vector<int64_t> ids);
  // Whether an adapter brought the parameter, or rows of it.
  bool replaced() const { return base_ != nullptr; }
  TokenRows* rows() const { return rows_.get(); }  // null: it brought all of it, or nothing
  // The parameter is the base model's again, and does not train.
  void restore(Parameter& own);
  // The base model is what the parameter is now: nothing of it is kept.
  void merge() {
    rows_.reset();
    base_.reset();
  }
  // The present value of an adapter's weight as that of the next copy, as Linear::add_frozen_copy.
  void add_frozen_copy(const Parameter& own, int from = 0);
  void remove_frozen_copy(int index);

  const Parameter& at(const Parameter& own, int adapter) const;

 private:
  struct Version {
    explicit Version(const Parameter& like, at::Tensor value);
    Module root;  // which the model does not list
    Parameter weight;
  };
  struct Copy {
    std::unique_ptr<Version> version;  // null: the base model's
    bool removed = false;
  };
  std::unique_ptr<Version> base_;
  std::unique_ptr<TokenRows> rows_;
  std::vector<Copy> copies_;
};

}  // namespace temper::nn
