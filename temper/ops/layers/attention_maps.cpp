#include "temper/ops/layers/attention_maps.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "temper/base/error.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/pointwise.h"

namespace temper::ops {
namespace {

constexpr int64_t kTileNumbers = int64_t{1} << 22;  // of all heads' maps of one tile

template <class Body>
void each_map_tile(const Forest& forest, int64_t heads, const at::Tensor& like, Body body) {
  for (int64_t s = 0; s < forest.num_segments(); ++s) {
    std::vector<int64_t> path;
    for (int64_t a = forest.parent[static_cast<size_t>(s)]; a >= 0;
         a = forest.parent[static_cast<size_t>(a)]) {
      std::vector<int64_t> tokens(
          static_cast<size_t>(forest.segment_start[static_cast<size_t>(a) + 1] -
                              forest.segment_start[static_cast<size_t>(a)]));
      std::iota(tokens.begin(), tokens.end(), forest.segment_start[static_cast<size_t>(a)]);
      path.insert(path.begin(), tokens.begin(), tokens.end());
    }
    const int64_t begin = forest.segment_start[static_cast<size_t>(s)],
                  end = forest.segment_start[static_cast<size_t>(s) + 1];
    for (int64_t first = begin; first < end;) {
      const int64_t before = static_cast<int64_t>(path.size());
      const int64_t fits = kTileNumbers / (heads * (before + std::min<int64_t>(128, end - first)));
      const int64_t rows = std::min(std::clamp<int64_t>(fits, 8, 128), end - first);
      for (int64_t t = first; t < first + rows; ++t) path.push_back(t);
      body(MapTile{first, rows, before, indices(path, like)});
      first += rows;
    }
  }
}

HeadVectors vectors(const AttentionInputs& in, const Forest& forest) {
  return backend_of(in.q).head_vectors(in.spec, in.rotary, forest, in.q, in.k);
}

// How the maps of a tile are compared: a of the student, b of the teacher, which is used up.
struct Cosine {
  static at::Tensor compare(const Backend& backend, const MapTile& t, const at::Tensor& a,
                            const at::Tensor& b, const at::Tensor&) {
    return backend.map_cosine(t, a, b);
  }
  static at::Tensor backward(const Backend& backend, const MapTile& t, const at::Tensor& a,
                             const at::Tensor& b, const at::Tensor&, const at::Tensor& g,
                             at::Tensor&) {
    return backend.map_cosine_backward(t, a, b, g);
  }
};
struct SquaredError {
  static at::Tensor compare(const Backend& backend, const MapTile& t, const at::Tensor& a,
                            const at::Tensor& b, const at::Tensor& map) {
    return backend.map_squared_error(t, a, b, map);
  }
  static at::Tensor backward(const Backend& backend, const MapTile& t, const at::Tensor& a,
                             const at::Tensor& b, const at::Tensor& map, const at::Tensor& g,
                             at::Tensor& dmap) {
    return backend.map_squared_error_backward(t, a, b, map, g, dmap);
  }
};

// A sink has what its head's probabilities [heads, rows, keys] leave: p (dp - Σ_j p_j dp_j) with dp
// 0, as maps do not show it.
void add_gradient_of_sinks(const at::Tensor& probability, const at::Tensor& dp,
                           at::Tensor& dsinks) {
  dsinks.sub_(sum_in_rows((1 - sum_in_rows(probability)) * sum_in_rows(probability * dp)));
}

// Gradients of student's q, k, norms and sinks, and of map, from those of each token's number.
template <class Comparison>
Tensors maps_gradients(const AttentionInputs& student, const AttentionInputs& teacher,
                       const at::Tensor& map, const Forest& forest, const at::Tensor& g) {
  const auto zeros = [](const at::Tensor& x) {
    return x.defined() ? at::zeros_like(x) : at::Tensor();
  };
  const AttentionSpec& spec = student.spec;
  const Backend& backend = backend_of(g);
  const HeadVectors own = vectors(student, forest), theirs = vectors(teacher, forest);
  HeadVectors to{at::zeros_like(own.q), at::zeros_like(own.k)};
  at::Tensor dmap = zeros(map), dsinks = zeros(spec.sinks);
  each_map_tile(forest, spec.num_heads + teacher.spec.num_heads, g, [&](const MapTile& t) {
    const TileMaps a = backend.maps(spec, own, t, true);
    const at::Tensor b = backend.maps(teacher.spec, theirs, t, false).probability;
    const at::Tensor da =
        Comparison::backward(backend, t, a.probability, b, map, g.narrow(0, t.first, t.rows), dmap);
    if (dsinks.defined()) add_gradient_of_sinks(a.probability, da, dsinks);
    backend.maps_backward(spec, own, t, a, da, to);
  });
  const AttentionGradients d =
      backend.head_vectors_backward(spec, student.rotary, forest, student.q, student.k, to);
  return {d.q, d.k, d.q_norm, d.k_norm, dsinks, dmap};
}

template <class Comparison>
at::Tensor compare(const AttentionInputs& student, const AttentionInputs& teacher,
                   const at::Tensor& map, const std::shared_ptr<const Forest>& forest) {
  check(forest->open.empty(),
        "attention maps are of tokens that see none behind them: no open rows");
  const AttentionSpec& spec = student.spec;
  const Tensors inputs{student.q, student.k, spec.q_norm, spec.k_norm, spec.sinks, map};
  Recording call(inputs);
  call.reads(inputs);
  const Backend& backend = backend_of(student.q);
  const HeadVectors own = vectors(student, *forest), theirs = vectors(teacher, *forest);
  const at::Tensor value = at::empty({forest->num_tokens()}, student.q.options());
  each_map_tile(*forest, spec.num_heads + teacher.spec.num_heads, value, [&](const MapTile& t) {
    const at::Tensor a = backend.maps(spec, own, t, false).probability,
                     b = backend.maps(teacher.spec, theirs, t, false).probability;
    value.narrow(0, t.first, t.rows).copy_(Comparison::compare(backend, t, a, b, map));
  });
  return call.output(value, [=](const Gradients& d) {
    return maps_gradients<Comparison>(student, teacher, map, *forest, d[0]);
  });
}

}  // namespace

at::Tensor attention_cosine_distance(const AttentionInputs& student, const AttentionInputs& teacher,
                                     const std::shared_ptr<const Forest>& forest) {
  check(teacher.spec.num_heads % student.spec.num_heads == 0, "attention maps: the teacher's ",
        teacher.spec.num_heads, " heads are not a multiple of the student's ",
        student.spec.num_heads);
  return compare<Cosine>(student, teacher, {}, forest);
}

at::Tensor attention_squared_error(const AttentionInputs& student, const AttentionInputs& teacher,
                                   const at::Tensor& map,
                                   const std::shared_ptr<const Forest>& forest) {
  check(map.dim() == 2 && map.size(0) == teacher.spec.num_heads &&
            map.size(1) == student.spec.num_heads,
        "attention maps: a map ", map.sizes(), " for ", student.spec.num_heads, " heads to ",
        teacher.spec.num_heads);
  return compare<SquaredError>(student, teacher, map.contiguous(), forest);
}

}  // namespace temper::ops
