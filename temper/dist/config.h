// The axes along which the ranks of a run share its work, which its groups of ranks and the plan of
// memory and traffic know too, and the `mesh` section of its config.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "temper/base/config/config.h"

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

// The sizes of the axes as they are written: `data` may be -1, what is left.
struct MeshSection : AxisSizes {
  MeshSection() { data = -1; }
  double timeout_minutes = 60;
  // longest time without a heartbeat of a rank: its process or its host is then lost or frozen
  double heartbeat_timeout_seconds = 45;
  int64_t check_weights_every = 0;  // steps between comparisons of ranks' weights; 0: at the start
  void fields(Fields& f);

  // Those of so many ranks that train. `where` begins the message of the ConfigError where the axes
  // do not multiply to them, or two are above 1 of which one stands in the other's place. all:
  // ranks of the run, those with roles of their own included; 0: there are no others.
  AxisSizes sizes(int64_t ranks, const std::string& where, int64_t all = 0) const;
  // Whether these axes have one rank each.
  bool is_whole(Which which) const { return product(which) == 1; }
};

}  // namespace temper::dist
