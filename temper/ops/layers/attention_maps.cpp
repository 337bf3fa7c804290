#include "temper/ops/layers/attention_maps.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/pointwise.h"

namespace temper::ops {
namespace {
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

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

struct MapsKept {
  AttentionInputs student, teacher;  // of the student without tensors that train
  std::shared_ptr<const Forest> forest;
  int64_t heads() const { return student.spec.num_heads + teacher.spec.num_heads; }
};

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

template <class Comparison>
struct MapsFunction : Function<MapsFunction<Comparison>> {
  using Optional = std::optional<at::Tensor>;
  static AttentionInputs with(AttentionInputs inputs, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& q_norm, const at::Tensor& k_norm,
                              const at::Tensor& sinks) {
    inputs.q = q;
    inputs.k = k;
    inputs.spec.q_norm = q_norm;
    inputs.spec.k_norm = k_norm;
    inputs.spec.sinks = sinks;
    return inputs;
  }

  static at::Tensor forward(AutogradContext* ctx, const MapsKept& what, const at::Tensor& q,
                            const at::Tensor& k, const Optional& q_norm, const Optional& k_norm,
                            const Optional& sinks, const Optional& map) {
    const at::Tensor none, qn = q_norm.value_or(none), kn = k_norm.value_or(none),
                           weights = map.value_or(none), of_sinks = sinks.value_or(none);
    const Backend& backend = backend_of(q);
    const AttentionInputs in = with(what.student, q, k, qn, kn, of_sinks);
    const HeadVectors student = vectors(in, *what.forest),
                      teacher = vectors(what.teacher, *what.forest);
    at::Tensor value = at::empty({what.forest->num_tokens()}, q.options());
    each_map_tile(*what.forest, what.heads(), q, [&](const MapTile& t) {
      const at::Tensor a = backend.maps(in.spec, student, t, false).probability,
                       b = backend.maps(what.teacher.spec, teacher, t, false).probability;
      value.narrow(0, t.first, t.rows).copy_(Comparison::compare(backend, t, a, b, weights));
    });
    ctx->save_for_backward({q, k, qn, kn, weights, of_sinks});
    keep(ctx, what);
    return value;
  }

  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &map = saved[4];
    const MapsKept& what = kept<MapsKept>(ctx);
    const Backend& backend = backend_of(q);
    const AttentionInputs in = with(what.student, q, k, saved[2], saved[3], saved[5]);
    const at::Tensor g = douts[0].contiguous();
    const HeadVectors student = vectors(in, *what.forest),
                      teacher = vectors(what.teacher, *what.forest);
    HeadVectors to{at::zeros_like(student.q), at::zeros_like(student.k)};
    at::Tensor dmap = map.defined() ? at::zeros_like(map) : at::Tensor(),
               dsinks = saved[5].defined() ? at::zeros_like(saved[5]) : at::Tensor();
    each_map_tile(*what.forest, what.heads(), q, [&](const MapTile& t) {
      const TileMaps a = backend.maps(in.spec, student, t, true);
      const at::Tensor b = backend.maps(what.teacher.spec, teacher, t, false).probability;
      const at::Tensor da = Comparison::backward(backend, t, a.probability, b, map,
                                                 g.narrow(0, t.first, t.rows), dmap);
      if (dsinks.defined()) add_gradient_of_sinks(a.probability, da, dsinks);
      backend.maps_backward(in.spec, student, t, a, da, to);
    });
    const AttentionGradients d =
        backend.head_vectors_backward(in.spec, in.rotary, *what.forest, q, k, to);
    return {at::Tensor(), d.q, d.k, d.q_norm, d.k_norm, dsinks, dmap};
  }
};

template <class Comparison>
at::Tensor compare(const AttentionInputs& student, const AttentionInputs& teacher,
                   const at::Tensor& map, const std::shared_ptr<const Forest>& forest) {
  MapsKept what{student, teacher, forest};
  what.student.q = what.student.k = at::Tensor();
  what.student.spec.q_norm = what.student.spec.k_norm = what.student.spec.sinks = at::Tensor();
  const auto optional = [](const at::Tensor& x) {
    return x.defined() ? std::optional<at::Tensor>(x) : std::nullopt;
  };
  return MapsFunction<Comparison>::apply(what, student.q, student.k, optional(student.spec.q_norm),
                                         optional(student.spec.k_norm),
                                         optional(student.spec.sinks), optional(map));
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
