// The axes along which the ranks of a run share its work: what the config, the groups of ranks and
// the plan of memory and traffic know of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace temper::dist {

struct Axis {
  // What of the model its ranks share out among them: nothing, weights that are whole where they
  // are used, a part of every layer, or some of the experts.
  enum class Divides { kNothing, kWeights, kLayers, kExperts };

  const char* name;        // its key in the section `mesh`
  bool same_rows;          // its ranks compute the same rows; else each has rows of its own
  Divides divides;         // how they hold the model
  const char* instead_of;  // the axis that has one rank where this one has more; null: none
  const char* help;        // of the key

  bool own_rows() const { return !same_rows; }
  bool divides_model() const { return divides != Divides::kNothing; }
  bool divides_work() const { return same_rows && divides_model(); }  // of each row
};
using Which = bool (Axis::*)() const;

// Ranks are numbered along the first axis slowest, along the last one fastest: those of the last
// are neighbours, and where a host has several they share it.
std::span<const Axis> axes();

// A number of each axis, in the order of axes().
template <class T, int kEach>
struct PerAxis {
  T data = kEach, fsdp = kEach, tensor = kEach, expert = kEach;

  static constexpr size_t kCount = 4;
  T& operator[](size_t axis) { return *std::array{&data, &fsdp, &tensor, &expert}[axis]; }
  T operator[](size_t axis) const { return std::array{data, fsdp, tensor, expert}[axis]; }

  // The product over the axes, or over some.
  T product(Which which = nullptr) const {
    T all = 1;
    for (size_t i = 0; i < kCount; ++i)
      if (!which || (axes()[i].*which)()) all *= (*this)[i];
    return all;
  }
};
// How many ranks each axis has.
using AxisSizes = PerAxis<int64_t, 1>;

// What a message expects of the axes: "mesh.tensor 1 and mesh.expert 1".
std::string one_rank_each(Which which);

}  // namespace temper::dist
