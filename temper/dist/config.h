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
  // What the ranks of the axis divide among them: nothing (each holds the whole model); weights,
  // which are gathered before use (FSDP); the tokens of each row, with the whole model on each
  // (context parallelism); every layer (tensor parallelism); or the experts.
  enum class Divides { kNothing, kWeights, kTokens, kLayers, kExperts };

  const char* name;      // its key in the config section `mesh`
  bool same_rows;        // its ranks compute the same rows; otherwise each has rows of its own
  Divides divides;       // how its ranks hold the model
  const char* excludes;  // the axis that must have 1 rank if this one has more; null: none
  const char* help;      // of the key

  bool own_rows() const { return !same_rows; }
  bool divides_any() const { return divides != Divides::kNothing; }
  bool divides_model() const { return divides_any() && !divides_tokens(); }
  bool divides_work() const { return same_rows && divides_model(); }  // the work on each token
  bool divides_tokens() const { return divides == Divides::kTokens; }
  // Messages name it only where it has several ranks.
  bool unusual() const { return excludes || divides_tokens(); }
  bool shares_rows() const { return same_rows; }
  bool own_tokens() const {
    return own_rows() || divides_tokens();
  }  // gradients are sums over them
};
// A selection of axes: one of the predicates above.
using Which = bool (Axis::*)() const;

// In the order in which ranks are numbered: the last axis varies fastest, so its ranks have
// consecutive numbers and usually share a host.
std::span<const Axis> axes();

// One number per axis, in the order of axes().
template <class T, int kEach>
struct PerAxis {
  T data = kEach, fsdp = kEach, context = kEach, tensor = kEach, expert = kEach;

  static constexpr size_t kCount = 5;
  T& operator[](size_t axis) { return *std::array{&data, &fsdp, &context, &tensor, &expert}[axis]; }
  T operator[](size_t axis) const { return std::array{data, fsdp, context, tensor, expert}[axis]; }

  // The product over all axes, or over those that `which` selects.
  T product(Which which = nullptr) const {
    T all = 1;
    for (size_t i = 0; i < kCount; ++i)
      if (!which || (axes()[i].*which)()) all *= (*this)[i];
    return all;
  }
};
// The number of ranks of each axis.
using AxisSizes = PerAxis<int64_t, 1>;

// For messages: "mesh.tensor 1 and mesh.expert 1", the axes that `which` selects.
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
