#include "temper/ops/attention_maps.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "temper/ops/head_vectors.h"
#include "temper/ops/map_comparisons.h"
#include "temper/ops/product.h"

namespace temper::ops {
namespace {
using kernels::divergence_kernels;
using kernels::row_kernels;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

constexpr int64_t kTileNumbers = int64_t{1} << 22;  // of all heads' maps of one tile

template <class Body>
void each_tile(const Forest& forest, int64_t heads, Body body) {
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
      body(MapTile{first, rows, before, at::tensor(path, at::kLong)});
      first += rows;
    }
  }
}

// One model's queries and keys as its scores read them, [N, heads, head_dim].
struct Prepared {
  AttentionSpec spec;
  at::Tensor q, k;
};
template <class T>
Prepared prepared(const AttentionInputs& in, const Forest& forest) {
  const AttentionSpec& s = in.spec;
  const int64_t n = forest.num_tokens();
  return {s,
          prepare<T>(s, in.rotary, forest.position, s.num_heads, in.q, s.q_norm)
              .view({n, s.num_heads, s.head_dim}),
          prepare_keys<T>(s, in.rotary, forest.position, in.k, s.k_norm)
              .view({n, s.num_kv_heads, s.head_dim})};
}
int64_t kv_head(const AttentionSpec& s, int64_t head) {
  return head / (s.num_heads / s.num_kv_heads);
}
at::Tensor queries(const Prepared& x, const MapTile& t, int64_t head) {
  return x.q.narrow(0, t.first, t.rows).select(1, head).contiguous();
}
at::Tensor keys(const Prepared& x, const MapTile& t, int64_t head) {
  return x.k.select(1, kv_head(x.spec, head)).index_select(0, t.keys);
}
// The first key in reach of a row, and how many are.
struct Reach {
  int64_t first, count;
};
Reach reach(const AttentionSpec& s, const MapTile& t, int64_t row) {
  const int64_t last = t.before + row,
                first = s.window > 0 ? std::max<int64_t>(0, last - s.window + 1) : 0;
  return {first, last - first + 1};
}

// The tile's probabilities [heads, rows, keys], 0 out of reach; of a soft-capped model its capped
// scores, too.
template <class T>
at::Tensor probabilities(const Prepared& x, const MapTile& t, at::Tensor* capped = nullptr) {
  const AttentionSpec& s = x.spec;
  const int64_t n = t.num_keys();
  at::Tensor out = at::empty({s.num_heads, t.rows, n}, x.q.options());
  if (capped && s.soft_cap > 0) *capped = at::empty_like(out);
  for (int64_t h = 0; h < s.num_heads; ++h) {
    at::Tensor scores = out.select(0, h);
    product({queries(x, t, h)}, {keys(x, t, h), true}, scores);
    T* data = scores.mutable_data_ptr<T>();
    const T scale = static_cast<T>(s.scale);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < t.rows; ++r) {
      T* row = data + r * n;
      const Reach in = reach(s, t, r);
      for (int64_t j = 0; j < n; ++j) row[j] *= scale;
      if (s.soft_cap > 0)
        row_kernels<T>().soft_cap(in.count, static_cast<T>(s.soft_cap), row + in.first);
    }
    if (capped && s.soft_cap > 0) capped->select(0, h).copy_(scores);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < t.rows; ++r) {
      T* row = data + r * n;
      const Reach in = reach(s, t, r);
      divergence_kernels<T>().softmax(in.count, row + in.first);
      std::fill(row, row + in.first, T(0));
      std::fill(row + in.first + in.count, row + n, T(0));
    }
  }
  return out;
}

// dp, the gradient with respect to the tile's probabilities, into dq and dk [N, heads, head_dim];
// it is used up.
template <class T>
void probabilities_backward(const Prepared& x, const MapTile& t, const at::Tensor& p,
                            const at::Tensor& capped, at::Tensor dp, at::Tensor& dq,
                            at::Tensor& dk) {
  const AttentionSpec& s = x.spec;
  const int64_t n = t.num_keys();
  for (int64_t h = 0; h < s.num_heads; ++h) {
    at::Tensor ds = dp.select(0, h);
    T* data = ds.mutable_data_ptr<T>();
    const T* probability = values<T>(p) + h * t.rows * n;
    const T* score = capped.defined() ? values<T>(capped) + h * t.rows * n : nullptr;
    const T scale = static_cast<T>(s.scale), cap = static_cast<T>(s.soft_cap);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < t.rows; ++r) {
      const Reach in = reach(s, t, r);
      T* row = data + r * n;
      std::fill(row, row + in.first, T(0));
      std::fill(row + in.first + in.count, row + n, T(0));
      divergence_kernels<T>().softmax_backward(in.count, probability + r * n + in.first,
                                               row + in.first);
      for (int64_t j = in.first; j < in.first + in.count; ++j) {
        const T bend = score ? score[r * n + j] / cap : T(0);
        row[j] *= scale * (1 - bend * bend);
      }
    }
    at::Tensor to_q = at::empty({t.rows, s.head_dim}, x.q.options());
    product({ds}, {keys(x, t, h)}, to_q);
    dq.narrow(0, t.first, t.rows).select(1, h).add_(to_q);
    at::Tensor to_k = at::empty({n, s.head_dim}, x.q.options());
    product({ds, true}, {queries(x, t, h)}, to_k);
    dk.select(1, kv_head(s, h)).index_add_(0, t.keys, to_k);
  }
}

struct MapsKept {
  AttentionInputs student, teacher;  // of the student without tensors that train
  std::shared_ptr<const Forest> forest;
  int64_t heads() const { return student.spec.num_heads + teacher.spec.num_heads; }
};

template <class Comparison>
struct MapsFunction : Function<MapsFunction<Comparison>> {
  using Optional = std::optional<at::Tensor>;
  static AttentionInputs with(AttentionInputs inputs, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& q_norm, const at::Tensor& k_norm) {
    inputs.q = q;
    inputs.k = k;
    inputs.spec.q_norm = q_norm;
    inputs.spec.k_norm = k_norm;
    return inputs;
  }

  static at::Tensor forward(AutogradContext* ctx, const MapsKept& what, const at::Tensor& q,
                            const at::Tensor& k, const Optional& q_norm, const Optional& k_norm,
                            const Optional& map) {
    const at::Tensor none, qn = q_norm.value_or(none), kn = k_norm.value_or(none),
                           weights = map.value_or(none);
    at::Tensor value = at::empty({what.forest->num_tokens()}, q.options());
    dispatch(q, [&](auto zero) {
      using T = decltype(zero);
      const Prepared student = prepared<T>(with(what.student, q, k, qn, kn), *what.forest);
      const Prepared teacher = prepared<T>(what.teacher, *what.forest);
      each_tile(*what.forest, what.heads(), [&](const MapTile& t) {
        const at::Tensor a = probabilities<T>(student, t), b = probabilities<T>(teacher, t);
        Comparison::template compare<T>(t, a, b, weights, value.mutable_data_ptr<T>() + t.first);
      });
    });
    ctx->save_for_backward({q, k, qn, kn, weights});
    keep(ctx, what);
    return value;
  }

  static variable_list backward(AutogradContext* ctx, variable_list douts) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &qn = saved[2], &kn = saved[3], &map = saved[4];
    const MapsKept& what = kept<MapsKept>(ctx);
    const AttentionInputs in = with(what.student, q, k, qn, kn);
    const at::Tensor g = douts[0].contiguous();
    const auto zeros = [](const at::Tensor& x) {
      return x.defined() ? at::zeros_like(x) : at::Tensor();
    };
    at::Tensor dq, dk, dqn = zeros(qn), dkn = zeros(kn), dmap = zeros(map);
    dispatch(q, [&](auto zero) {
      using T = decltype(zero);
      const Prepared student = prepared<T>(in, *what.forest);
      const Prepared teacher = prepared<T>(what.teacher, *what.forest);
      at::Tensor to_q = at::zeros_like(student.q), to_k = at::zeros_like(student.k);
      each_tile(*what.forest, what.heads(), [&](const MapTile& t) {
        at::Tensor capped;
        const at::Tensor p = probabilities<T>(student, t, &capped);
        at::Tensor a = p.clone(), b = probabilities<T>(teacher, t);
        Comparison::template backward<T>(t, a, b, map, values<T>(g) + t.first, dmap);
        probabilities_backward<T>(student, t, p, capped, a, to_q, to_k);
      });
      const std::vector<int64_t>& position = what.forest->position;
      dq = prepare_backward<T>(in.spec, in.rotary, position, in.spec.num_heads, q, qn,
                               to_q.view_as(q), dqn);
      dk = prepare_backward<T>(in.spec, in.rotary, position, in.spec.num_kv_heads, k, kn,
                               to_k.view_as(k), dkn);
    });
    return {at::Tensor(), dq, dk, dqn, dkn, dmap};
  }
};

template <class Comparison>
at::Tensor compare(const AttentionInputs& student, const AttentionInputs& teacher,
                   const at::Tensor& map, const std::shared_ptr<const Forest>& forest) {
  MapsKept what{student, teacher, forest};
  what.student.q = what.student.k = at::Tensor();
  what.student.spec.q_norm = what.student.spec.k_norm = at::Tensor();
  const auto optional = [](const at::Tensor& x) {
    return x.defined() ? std::optional<at::Tensor>(x) : std::nullopt;
  };
  return MapsFunction<Comparison>::apply(what, student.q, student.k, optional(student.spec.q_norm),
                                         optional(student.spec.k_norm), optional(map));
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
