// The losses of all training verbs: terms that are summed, and means that are only logged.
//
// A loss never divides by what it sees. Each term names its denominator over the whole step, which
// is known from the batch before the first forward pass; so any split of the step into passes and
// ranks gives the same gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "temper/dist/group.h"

namespace temper::train {

// A part of the loss: coefficient / denominator * Σ weight * value.
struct Term {
  std::string name;  // logged as loss/NAME where a loss has several terms
  double coefficient = 1;
  at::Tensor value;        // float32 [K], differentiable: one number a token, a pair, ...
  at::Tensor weight = {};  // float32 [K], constant; undefined: 1 each
  double denominator = 1;  // over all passes and ranks of the step; above 0
  // The loss of another trainable, which shares no parameter with the others: differentiated with
  // them, logged as NAME and no part of the step's `loss`.
  bool separate = false;
};

// A metric of the step: sum / count, both summed over passes and ranks; 0 where nothing counted.
struct Mean {
  std::string name;
  double sum = 0, count = 0;
  bool exponential = false;  // logged as e to the power of the mean
};

struct Loss {
  std::vector<Term> terms;
  std::vector<Mean> means;
};

// Sums over a step's passes and ranks.
class LossSums {
 public:
  // Adds a pass's numbers and gives what to differentiate: the sum of its terms, undefined where it
  // has none.
  at::Tensor add(const Loss& loss);

  // Adds the other ranks' sums: the same on all ranks afterwards. Every rank must call it.
  void reduce(dist::Group& group);

  struct Sum {
    std::string name;
    double sum = 0;    // Σ weight * value; for a mean, its sum
    double scale = 1;  // coefficient
    double count = 0;  // denominator; for a mean, its count
    bool separate = false;
    bool exponential = false;
    double value() const;
  };
  std::vector<Sum> terms, means;
  double total() const;  // the step's loss, without separate terms
};

// The sum of the elements in their order, in double: the same bits on every processor.
double ordered_sum(const at::Tensor& x);
// The sum of weight * value, products in float32; weight undefined: 1 each.
double ordered_sum(const at::Tensor& value, const at::Tensor& weight);

}  // namespace temper::train
