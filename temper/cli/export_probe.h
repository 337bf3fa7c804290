// Numbers by which a model that was written is compared with the one that it was made of.
#pragma once

#include <vector>

#include "temper/models/model.h"

namespace temper::cli {

struct Probe {
  std::vector<float> numbers;  // of a row of tokens: log-probabilities, or a reward model's scalars
  // Of a mixture of experts: the log-probability of one token after one other, many times. Where
  // two experts are almost equally likely rounding chooses another one, and one choice changes what
  // all later tokens of a row see, but not these.
  std::vector<float> apart;
  float unit = 1;  // what differences are compared with: of scalars the largest, if it is above 1
};
Probe probe_of(models::CausalLM& model);
Probe probe_of(models::ScalarModel& model);

float largest_difference(const Probe& a, const Probe& b);

// How far two ways of computing one model in float32 are apart at most.
inline constexpr float kSameModel = 1e-3f;
// Whether they are no farther apart: all numbers, or, of a mixture, three of four apart.
bool are_of_one_model(const Probe& a, const Probe& b);

}  // namespace temper::cli
