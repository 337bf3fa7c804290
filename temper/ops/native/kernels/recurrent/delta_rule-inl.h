// The gated delta rule (recurrent.h), once for each SIMD target. The columns of a state (features
// of values) do not depend on each other, so that a state is computed in tiles of kColumns of them,
// which stay in the nearest cache: [key_dim, kColumns], zeros behind the last column.
#if defined(TEMPER_DELTA_RULE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_DELTA_RULE_INL_H
#undef TEMPER_DELTA_RULE_INL_H
#else
#define TEMPER_DELTA_RULE_INL_H
#endif

#include <algorithm>
#include <map>
#include <vector>

#include "temper/ops/native/kernels/elementary-inl.h"
#include "temper/ops/native/kernels/recurrent/recurrent.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

constexpr int64_t kColumns = 16;

// So many columns at once: one, or as many as a vector has. Each is its own chain of operations.
// Vectors only where MulAdd rounds once, as std::fma does.
template <class T>
struct Columns {
  using V = T;
  static constexpr int64_t kCount = 1;
  static HWY_INLINE V load(const T* x) { return *x; }
  static HWY_INLINE void store(V v, T* x) { *x = v; }
  static HWY_INLINE V all(T x) { return x; }
  static HWY_INLINE V times(V a, V b) { return a * b; }
  static HWY_INLINE V plus(V a, V b) { return a + b; }
  static HWY_INLINE V fma(V a, V b, V c) { return std::fma(a, b, c); }
};
#if HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
template <>
struct Columns<float> {
  using D = hwy::HWY_NAMESPACE::CappedTag<float, kColumns>;
  using V = hwy::HWY_NAMESPACE::Vec<D>;
  static constexpr int64_t kCount = HWY_MIN(kColumns, HWY_MAX_BYTES / 4);
  static HWY_INLINE V load(const float* x) { return hwy::HWY_NAMESPACE::LoadU(D(), x); }
  static HWY_INLINE void store(V v, float* x) { hwy::HWY_NAMESPACE::StoreU(v, D(), x); }
  static HWY_INLINE V all(float x) { return hwy::HWY_NAMESPACE::Set(D(), x); }
  static HWY_INLINE V times(V a, V b) { return hwy::HWY_NAMESPACE::Mul(a, b); }
  static HWY_INLINE V plus(V a, V b) { return hwy::HWY_NAMESPACE::Add(a, b); }
  static HWY_INLINE V fma(V a, V b, V c) { return hwy::HWY_NAMESPACE::MulAdd(a, b, c); }
};
#endif

// The sum over key features of body(feature, partial sum so far), in four partial sums by feature
// mod 4.
template <class T, class Body>
HWY_INLINE typename Columns<T>::V feature_sum(int64_t count, Body body) {
  using C = Columns<T>;
  typename C::V part[4] = {C::all(0), C::all(0), C::all(0), C::all(0)};
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    part[0] = body(i, part[0]);
    part[1] = body(i + 1, part[1]);
    part[2] = body(i + 2, part[2]);
    part[3] = body(i + 3, part[3]);
  }
  // No loop: the partial sums stay in registers.
  if (i < count) part[0] = body(i, part[0]);
  if (i + 1 < count) part[1] = body(i + 1, part[1]);
  if (i + 2 < count) part[2] = body(i + 2, part[2]);
  return C::plus(C::plus(part[0], part[2]), C::plus(part[1], part[3]));
}

// What a token has for a tile of its value head.
template <class T>
struct TokenTile {
  const T *q, *k;
  T v[kColumns];
  T decay, rate;
  TokenTile(const DeltaShape& s, const DeltaTokens<T>& t, int64_t n, int64_t head, int64_t first,
            int64_t columns) {
    const int64_t keys = (n * s.key_heads + head * s.key_heads / s.value_heads) * s.key_dim;
    q = t.q + keys;
    k = t.k + keys;
    const T* values = t.v + n * t.v_row + head * s.value_dim + first;
    for (int64_t c = 0; c < kColumns; ++c) v[c] = c < columns ? values[c] : T(0);
    decay = t.decay[n * s.value_heads + head];
    rate = t.rate[n * s.value_heads + head];
  }
};

// `to` becomes the decayed state, from the one before; may be the same. `residual` v - Sᵀ k.
template <class T>
HWY_NOINLINE void step(int64_t key_dim, const TokenTile<T>& token, const T* before, T* to,
                       T* residual, T* error) {
  using C = Columns<T>;
  using V = typename C::V;
  const V decay = C::all(token.decay);
  for (int64_t c = 0; c < kColumns; c += C::kCount) {
    const auto decay_row = [&](int64_t i, V sum) {
      const V row = C::times(decay, C::load(before + i * kColumns + c));
      C::store(row, to + i * kColumns + c);
      return C::fma(row, C::all(token.k[i]), sum);
    };
    C::store(feature_sum<T>(key_dim, decay_row), residual + c);
  }
  for (int64_t c = 0; c < kColumns; ++c) {
    residual[c] = token.v[c] - residual[c];
    error[c] = token.rate * residual[c];
  }
}

template <class T>
HWY_NOINLINE void update(int64_t key_dim, const TokenTile<T>& token, const T* error, T* state) {
  using C = Columns<T>;
  for (int64_t c = 0; c < kColumns; c += C::kCount) {
    const typename C::V e = C::load(error + c);
    for (int64_t i = 0; i < key_dim; ++i) {
      T* row = state + i * kColumns + c;
      C::store(C::fma(C::all(token.k[i]), e, C::load(row)), row);
    }
  }
}

// The same, with what the token reads of it.
template <class T>
HWY_NOINLINE void update_and_read(int64_t key_dim, const TokenTile<T>& token, const T* error,
                                  T* state, T* out) {
  using C = Columns<T>;
  using V = typename C::V;
  for (int64_t c = 0; c < kColumns; c += C::kCount) {
    const V e = C::load(error + c);
    const auto update_row = [&](int64_t i, V sum) {
      T* at = state + i * kColumns + c;
      const V row = C::fma(C::all(token.k[i]), e, C::load(at));
      C::store(row, at);
      return C::fma(row, C::all(token.q[i]), sum);
    };
    C::store(feature_sum<T>(key_dim, update_row), out + c);
  }
}

// A tile and the whole states that it is a part of.
template <class T>
struct StateTile {
  const DeltaShape& shape;
  int64_t head, first, columns;
  StateTile(const DeltaShape& s, int64_t h, int64_t tile)
      : shape(s),
        head(h),
        first(tile * kColumns),
        columns(std::min(kColumns, s.value_dim - first)) {}
  int64_t size() const { return shape.key_dim * kColumns; }
  int64_t place(int64_t i) const { return (head * shape.key_dim + i) * shape.value_dim + first; }
  void load(const T* whole, T* tile) const {
    std::fill(tile, tile + size(), T(0));
    for (int64_t i = 0; whole && i < shape.key_dim; ++i)
      std::copy_n(whole + place(i), columns, tile + i * kColumns);
  }
  void store(const T* tile, T* whole) const {
    for (int64_t i = 0; i < shape.key_dim; ++i)
      std::copy_n(tile + i * kColumns, columns, whole + place(i));
  }
};

inline int64_t tiles_of(const DeltaShape& s) { return (s.value_dim + kColumns - 1) / kColumns; }

inline std::vector<int64_t> roots_of(const ForestView& f) {
  std::vector<int64_t> roots;
  for (int64_t s = 0; s < f.num_segments; s = f.subtree_end[s]) roots.push_back(s);
  return roots;
}

// One tile of one head along the tree of `root`, a segment.
template <class T>
void delta_tree(const StateTile<T>& tile, const ForestView& f, int64_t root,
                const DeltaTokens<T>& tokens, const T* from, const std::vector<KeptState<T>>& keep,
                T* out) {
  const DeltaShape& s = tile.shape;
  std::vector<T> state(static_cast<size_t>(tile.size()));
  std::map<int64_t, std::vector<T>> at_end;  // of segments that others go on from
  tile.load(from, state.data());
  auto kept =
      std::lower_bound(keep.begin(), keep.end(), f.segment_start[root],
                       [](const KeptState<T>& k, int64_t token) { return k.token < token; });
  for (int64_t segment = root; segment < f.subtree_end[root]; ++segment) {
    if (segment > root && f.parent[segment] != segment - 1) state = at_end.at(f.parent[segment]);
    for (int64_t n = f.segment_start[segment]; n < f.segment_start[segment + 1]; ++n) {
      const TokenTile<T> token(s, tokens, n, tile.head, tile.first, tile.columns);
      T residual[kColumns], error[kColumns], read[kColumns];
      step(s.key_dim, token, state.data(), state.data(), residual, error);
      update_and_read(s.key_dim, token, error, state.data(), read);
      std::copy_n(read, tile.columns,
                  out + (n * s.value_heads + tile.head) * s.value_dim + tile.first);
      for (; kept != keep.end() && kept->token == n; ++kept) tile.store(state.data(), kept->state);
    }
    if (f.subtree_end[segment] > segment + 1) at_end[segment] = state;
  }
}

template <class T>
void DeltaRule(const DeltaShape& s, const ForestView& f, const DeltaTokens<T>& tokens,
               const T* const* from, const std::vector<KeptState<T>>& keep, T* out) {
  const std::vector<int64_t> roots = roots_of(f);
  const int64_t tiles = tiles_of(s), of_root = s.value_heads * tiles;
#pragma omp parallel for schedule(dynamic) if (f.num_tokens * of_root * s.key_dim > 4096)
  for (int64_t i = 0; i < static_cast<int64_t>(roots.size()) * of_root; ++i) {
    const int64_t root = i / of_root;
    const StateTile<T> tile(s, i % of_root / tiles, i % tiles);
    delta_tree(tile, f, roots[static_cast<size_t>(root)], tokens, from ? from[root] : nullptr, keep,
               out);
  }
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
