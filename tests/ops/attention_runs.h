// What tests of attention and of caches on both backends share.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "temper/ops/backend.h"
#include "tests/ops/backends.h"

namespace temper::ops::backends {

// Parents before children: {parent, tokens}.
using Segments = std::vector<std::pair<int64_t, int64_t>>;
inline Forest forest_of(const Segments& segments) {
  Forest f;
  for (const auto& [parent, tokens] : segments) {
    const std::vector<int32_t> blank(static_cast<size_t>(tokens));
    parent < 0 ? f.add_root(blank) : f.add_child(parent, blank);
  }
  return f;
}

inline RotaryTable rotary(int64_t positions, int64_t head_dim, at::ScalarType type) {
  const at::Tensor angle = random({positions, head_dim / 2}, 77, at::kDouble, 3);
  return {angle.cos().to(type), angle.sin().to(type)};
}

struct Heads {
  AttentionSpec spec;
  at::Tensor q, k, v, dout;
};
inline Heads heads_of(AttentionSpec spec, bool norms, int64_t n, at::ScalarType type) {
  const int64_t wide = spec.num_heads * spec.head_dim, narrow = spec.num_kv_heads * spec.head_dim;
  if (spec.sinks.defined()) spec.sinks = spec.sinks.to(type);
  if (norms) {
    spec.q_norm = random({spec.head_dim}, 1, type);
    spec.k_norm = random({spec.head_dim}, 2, type);
    spec.norm_eps = 1e-3;
    spec.norm_one_plus = true;
  }
  return {spec, random({n, wide}, 3, type), random({n, narrow}, 4, type),
          spec.values_in_keys ? at::Tensor() : random({n, narrow}, 5, type),
          random({n, wide}, 6, type)};
}

inline AttentionSpec shape(int64_t heads, int64_t kv, int64_t dim, double soft_cap = 0,
                           int64_t window = 0, CacheDtype cache = CacheDtype::kFloat32) {
  AttentionSpec s;
  s.num_heads = heads;
  s.num_kv_heads = kv;
  s.head_dim = dim;
  s.scale = 0.4;
  s.soft_cap = soft_cap;
  s.window = window;
  s.cache_dtype = cache;
  return s;
}
inline AttentionSpec values_in_keys(AttentionSpec s) {
  s.values_in_keys = true;
  return s;
}
inline AttentionSpec with_sinks(AttentionSpec s) {
  s.sinks = random({s.num_heads}, 7, at::kFloat, 2);
  return s;
}

// The result and all gradients, with the table or one that rotates whole heads.
inline Tensors attended(const Backend& backend, const Heads& h, const Forest& forest,
                        const RotaryTable* other = nullptr) {
  const RotaryTable table =
      other ? *other
            : rotary(*std::max_element(forest.position.begin(), forest.position.end()) + 1,
                     h.spec.head_dim, h.q.scalar_type());
  const AttentionResult result = backend.attention(h.spec, table, forest, 0, h.q, h.k, h.v);
  const AttentionGradients d =
      backend.attention_backward(h.spec, table, forest, 0, h.q, h.k, h.v, result, h.dout);
  Tensors out{result.out, result.log_sum_exp, d.q, d.k};
  if (d.v.defined()) out.push_back(d.v);
  if (h.spec.q_norm.defined()) out.insert(out.end(), {d.q_norm, d.k_norm});
  return out;
}

inline const std::vector<Segments> kForests{
    {{-1, 1}},
    {{-1, 5}, {-1, 23}, {-1, 1}, {-1, 23}},                               // packed roots
    {{-1, 40}, {0, 3}, {0, 17}, {0, 1}, {0, 3}},                          // a prompt, completions
    {{-1, 4}, {0, 5}, {1, 6}, {2, 7}},                                    // a chain
    {{-1, 9}, {0, 4}, {1, 3}, {1, 6}, {3, 2}, {3, 5}, {0, 8}, {-1, 11}},  // depth 3
    {{-1, 6}, {0, 2}, {1, 3}, {1, 1}, {-1, 3}, {4, 9}, {4, 2}, {6, 1}, {6, 4}}};

// Sequences whose keys and values are those of a forest's rows.
struct CachedRun {
  KvStore& store;
  const Heads& heads;
  RotaryTable table;
  at::Tensor out;

  struct Step {
    std::vector<int64_t> pages, rows;  // rows of the forest, which go on where the last step ended
    int64_t first_position;
    std::vector<ExternalRows> external = {};
  };
  void run(const std::vector<Step>& steps, int64_t layer) {
    std::vector<int64_t> rows;
    Forest pass_forest;
    std::vector<CachedSequence> sequences;
    for (const Step& s : steps) {
      sequences.push_back(
          {s.pages, static_cast<int64_t>(rows.size()), static_cast<int64_t>(s.rows.size())});
      rows.insert(rows.end(), s.rows.begin(), s.rows.end());
      pass_forest.add_root(std::vector<int32_t>(s.rows.size(), 0), s.first_position, s.external);
    }
    const at::Tensor index = at::tensor(rows, at::kLong);
    const auto of = [&](const at::Tensor& x) { return x.defined() ? x.index_select(0, index) : x; };
    const auto pass = store.pass(sequences, pass_forest);
    out.index_copy_(0, index,
                    pass->attend(layer, heads.spec, table, of(heads.q), of(heads.k), of(heads.v)));
  }
};
inline std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> x(static_cast<size_t>(end - begin));
  std::iota(x.begin(), x.end(), begin);
  return x;
}

}  // namespace temper::ops::backends
