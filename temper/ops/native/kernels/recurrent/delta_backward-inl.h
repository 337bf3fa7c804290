// The backward pass of the gated delta rule (delta_rule-inl.h), once for each SIMD target.
#if defined(TEMPER_DELTA_BACKWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_DELTA_BACKWARD_INL_H
#undef TEMPER_DELTA_BACKWARD_INL_H
#else
#define TEMPER_DELTA_BACKWARD_INL_H
#endif

#include "temper/ops/native/kernels/recurrent/delta_rule-inl.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

constexpr int64_t kStates = 32;  // of a path, which are there one by one at once

// Tokens [begin, end) of one segment, of which the backward pass has all states at once.
struct Stretch {
  int64_t begin, end;
  int64_t before;  // the stretch that it goes on from; -1: a root's first
};

inline std::vector<Stretch> stretches_of(const ForestView& f, int64_t root) {
  std::vector<Stretch> all;
  std::map<int64_t, int64_t> last;  // stretch of each segment
  for (int64_t s = root; s < f.subtree_end[root]; ++s) {
    int64_t before = s == root ? -1 : last.at(f.parent[s]);
    for (int64_t n = f.segment_start[s]; n < f.segment_start[s + 1]; n += kStates) {
      all.push_back({n, std::min(n + kStates, f.segment_start[s + 1]), before});
      before = static_cast<int64_t>(all.size()) - 1;
    }
    last[s] = before;
  }
  return all;
}

// The backward pass of one value head along one tree. Gradients of keys and queries are summed over
// the columns of all tiles in kColumns partial sums, then over these.
template <class T>
class DeltaTreeBackward {
 public:
  DeltaTreeBackward(const DeltaShape& s, const ForestView& f, int64_t root, int64_t head,
                    const DeltaTokens<T>& tokens)
      : s_(s),
        head_(head),
        tokens_(tokens),
        stretches_(stretches_of(f, root)),
        tile_size_(s.key_dim * kColumns),
        state_size_(tiles_of(s) * tile_size_),
        starts_(stretches_.size() * static_cast<size_t>(state_size_)),
        states_(static_cast<size_t>(kStates * tile_size_)),
        dq_(static_cast<size_t>(kStates * tile_size_)),
        dk_(static_cast<size_t>(kStates * tile_size_)),
        to_parent_(stretches_.size()) {
    find_starts();
  }

  // Adds to the gradients of q and k, sets the others.
  void run(const T* dout, const DeltaGradients<T>& d) {
    for (int64_t i = static_cast<int64_t>(stretches_.size()) - 1; i >= 0; --i) {
      const Stretch& stretch = stretches_[static_cast<size_t>(i)];
      // The gradient of the state at its end: what later stretches have added.
      std::vector<T>& g = to_parent_[static_cast<size_t>(i)];
      g.resize(static_cast<size_t>(state_size_));
      std::fill(dq_.begin(), dq_.end(), T(0));
      std::fill(dk_.begin(), dk_.end(), T(0));
      std::fill_n(&dscalar_[0][0][0], sizeof(dscalar_) / sizeof(T), T(0));
      for (int64_t tile = 0; tile < tiles_of(s_); ++tile)
        run_tile(stretch, i, tile, dout, d, g.data() + tile * tile_size_);
      join(stretch, d);
      if (stretch.before >= 0) add_to(stretch.before, g);
      g = {};
    }
  }

 private:
  const T* start(int64_t stretch, int64_t tile) const {
    return starts_.data() + stretch * state_size_ + tile * tile_size_;
  }

  // States at the beginning of each stretch.
  void find_starts() {
    std::vector<T> state(static_cast<size_t>(tile_size_));
    std::vector<std::vector<T>> ends(stretches_.size());
    std::vector<int64_t> uses(stretches_.size());
    for (const Stretch& stretch : stretches_)
      if (stretch.before >= 0) ++uses[static_cast<size_t>(stretch.before)];
    for (int64_t t = 0; t < tiles_of(s_); ++t) {
      const StateTile<T> tile(s_, head_, t);
      for (size_t i = 0; i < stretches_.size(); ++i) {
        const Stretch& stretch = stretches_[i];
        if (stretch.before < 0)
          std::fill(state.begin(), state.end(), T(0));
        else if (stretch.before != static_cast<int64_t>(i) - 1)
          state = ends[static_cast<size_t>(stretch.before)];
        std::copy(state.begin(), state.end(),
                  starts_.begin() + static_cast<int64_t>(i) * state_size_ + t * tile_size_);
        for (int64_t n = stretch.begin; n < stretch.end; ++n) {
          const TokenTile<T> token(s_, tokens_, n, head_, tile.first, tile.columns);
          T residual[kColumns], error[kColumns];
          step(s_.key_dim, token, state.data(), state.data(), residual, error);
          update(s_.key_dim, token, error, state.data());
        }
        if (uses[i] > 1 || (uses[i] == 1 && !is_followed(i))) ends[i] = state;
      }
    }
  }
  bool is_followed(size_t i) const {
    return i + 1 < stretches_.size() && stretches_[i + 1].before == static_cast<int64_t>(i);
  }

  // g: the tile of the gradient of the state, at the stretch's end and then at its beginning.
  void run_tile(const Stretch& stretch, int64_t index, int64_t t, const T* dout,
                const DeltaGradients<T>& d, T* g) {
    const StateTile<T> tile(s_, head_, t);
    T residual[kStates][kColumns], error[kStates][kColumns];
    const T* before = start(index, t);
    for (int64_t n = stretch.begin; n < stretch.end; ++n) {
      const int64_t i = n - stretch.begin;
      const TokenTile<T> token(s_, tokens_, n, head_, tile.first, tile.columns);
      T* state = states_.data() + i * tile_size_;
      step(s_.key_dim, token, before, state, residual[i], error[i]);
      update(s_.key_dim, token, error[i], state);
      before = state;
    }
    for (int64_t n = stretch.end - 1; n >= stretch.begin; --n) {
      const int64_t i = n - stretch.begin;
      const TokenTile<T> token(s_, tokens_, n, head_, tile.first, tile.columns);
      const T* dread = dout + (n * s_.value_heads + head_) * s_.value_dim + tile.first;
      T dcolumns[kColumns] = {}, derror[kColumns];
      std::copy_n(dread, tile.columns, dcolumns);
      const T* after = states_.data() + i * tile_size_;
      read_backward(token, after, dcolumns, i, g, derror);
      T* dv = d.v + n * d.v_row + head_ * s_.value_dim + tile.first;
      for (int64_t c = 0; c < tile.columns; ++c) dv[c] = token.rate * derror[c];
      for (int64_t c = 0; c < kColumns; ++c)
        dscalar_[0][i][c] = std::fma(derror[c], residual[i][c], dscalar_[0][i][c]);
      update_backward(token, i > 0 ? after - tile_size_ : start(index, t), error[i], derror, i, g);
    }
  }

  // Of o = Sᵀ q and S = S' + k eᵀ: g gets q doᵀ, dq gets S do, derror = gᵀ k.
  HWY_NOINLINE void read_backward(const TokenTile<T>& token, const T* after, const T* dread,
                                  int64_t i, T* g, T* derror) {
    using C = Columns<T>;
    using V = typename C::V;
    T* dq = dq_.data() + i * tile_size_;
    for (int64_t c = 0; c < kColumns; c += C::kCount) {
      const V d = C::load(dread + c);
      const auto read_row = [&](int64_t feature, V sum) {
        const int64_t at = feature * kColumns + c;
        const V row = C::fma(C::all(token.q[feature]), d, C::load(g + at));
        C::store(row, g + at);
        C::store(C::fma(C::load(after + at), d, C::load(dq + at)), dq + at);
        return C::fma(row, C::all(token.k[feature]), sum);
      };
      C::store(feature_sum<T>(s_.key_dim, read_row), derror + c);
    }
  }

  // Of e = rate (v - S'ᵀ k) and S' = decay S: dk gets g e - rate S' derror, then g becomes the
  // gradient of S.
  HWY_NOINLINE void update_backward(const TokenTile<T>& token, const T* before, const T* error,
                                    const T* derror, int64_t i, T* g) {
    using C = Columns<T>;
    T dsum[kColumns], ddecay[kColumns];
    for (int64_t c = 0; c < kColumns; ++c) dsum[c] = -token.rate * derror[c];
    T* dk = dk_.data() + i * tile_size_;
    const typename C::V decay = C::all(token.decay);
    for (int64_t c = 0; c < kColumns; c += C::kCount) {
      const typename C::V d = C::load(dsum + c), e = C::load(error + c);
      typename C::V sum = C::all(0);
      for (int64_t j = 0; j < s_.key_dim; ++j) {
        const int64_t at = j * kColumns + c;
        const typename C::V state = C::load(before + at), row = C::load(g + at);
        C::store(C::fma(C::times(decay, state), d, C::fma(row, e, C::load(dk + at))), dk + at);
        const typename C::V whole = C::fma(C::all(token.k[j]), d, row);
        sum = C::fma(whole, state, sum);
        C::store(C::times(decay, whole), g + at);
      }
      C::store(sum, ddecay + c);
    }
    for (int64_t c = 0; c < kColumns; ++c) dscalar_[1][i][c] += ddecay[c];
  }

  static T sum_of(const T* columns) {
    Partials<T> partials;
    std::copy_n(columns, kColumns, partials.sum);
    return partials.total();
  }

  void join(const Stretch& stretch, const DeltaGradients<T>& d) {
    for (int64_t n = stretch.begin; n < stretch.end; ++n) {
      const int64_t i = n - stretch.begin;
      const int64_t keys = (n * s_.key_heads + head_ * s_.key_heads / s_.value_heads) * s_.key_dim;
      for (int64_t j = 0; j < s_.key_dim; ++j) {
        d.q[keys + j] += sum_of(dq_.data() + i * tile_size_ + j * kColumns);
        d.k[keys + j] += sum_of(dk_.data() + i * tile_size_ + j * kColumns);
      }
      d.rate[n * s_.value_heads + head_] = sum_of(dscalar_[0][i]);
      d.decay[n * s_.value_heads + head_] = sum_of(dscalar_[1][i]);
    }
  }

  void add_to(int64_t stretch, const std::vector<T>& g) {
    std::vector<T>& to = to_parent_[static_cast<size_t>(stretch)];
    if (to.empty()) {
      to = g;
      return;
    }
    for (size_t i = 0; i < g.size(); ++i) to[i] += g[i];
  }

  const DeltaShape& s_;
  int64_t head_;
  const DeltaTokens<T>& tokens_;
  const std::vector<Stretch> stretches_;
  const int64_t tile_size_, state_size_;
  std::vector<T> starts_;                  // [stretches, tiles, key_dim, kColumns]
  std::vector<T> states_, dq_, dk_;        // [kStates, key_dim, kColumns]
  T dscalar_[2][kStates][kColumns];        // of rate and decay
  std::vector<std::vector<T>> to_parent_;  // gradients of the states at stretches' ends
};

template <class T>
void DeltaRuleBackward(const DeltaShape& s, const ForestView& f, const DeltaTokens<T>& tokens,
                       const T* dout, const DeltaGradients<T>& d) {
  const std::vector<int64_t> roots = roots_of(f);
  const int64_t share = s.value_heads / s.key_heads, keys = s.key_heads * s.key_dim;
  std::fill_n(d.q, f.num_tokens * keys, T(0));
  std::fill_n(d.k, f.num_tokens * keys, T(0));
#pragma omp parallel for schedule(dynamic)
  for (int64_t i = 0; i < static_cast<int64_t>(roots.size()) * s.key_heads; ++i) {
    const int64_t root = roots[static_cast<size_t>(i / s.key_heads)];
    for (int64_t head = i % s.key_heads * share; head < (i % s.key_heads + 1) * share; ++head)
      DeltaTreeBackward<T>(s, f, root, head, tokens).run(dout, d);
  }
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
