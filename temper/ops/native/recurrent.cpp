// Layers that carry a state, on temper/ops/native/kernels/recurrent/recurrent.h.
#include "temper/ops/native/kernels/recurrent/recurrent.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "temper/base/error.h"
#include "temper/base/exact_math.h"
#include "temper/ops/native/native.h"
#include "temper/ops/tensor_data.h"

namespace temper::ops {
namespace {

constexpr double kNormEps = 1e-6;

kernels::ForestView view_of_forest(const Forest& f) {
  return {f.num_tokens(), f.num_segments(), f.segment_start.data(), f.parent.data(),
          f.subtree_end.data()};
}

kernels::ConvolutionShape convolution_shape(const ConvolutionWeights& w, bool silu) {
  return {w.weight.size(0), w.weight.size(-1), silu};
}
// [width, C].
at::Tensor taps_of(const ConvolutionWeights& w) {
  return w.weight.view({w.weight.size(0), w.weight.size(-1)}).t().contiguous();
}

// Writes the last inputs up to each wanted token. `before`: each root's state, a copy.
void keep_inputs(const Forest& forest, const at::Tensor& x, int64_t count,
                 const CarriedStates& carried, const std::vector<at::Tensor>& before) {
  const int64_t channels = x.size(1);
  const float* rows = x.const_data_ptr<float>();
  int64_t segment = 0;
  for (size_t r = 0; r < carried.size(); ++r, segment = forest.subtree_end[segment]) {
    const int64_t first = forest.segment_start[segment];
    const float* older = before[r].defined() ? before[r].const_data_ptr<float>() : nullptr;
    for (const auto& [token, state] : carried[r].to) {
      float* to = state.mutable_data_ptr<float>();
      for (int64_t j = 0; j < count; ++j, to += channels) {
        const int64_t n = token - count + 1 + j;
        if (n >= first)
          std::copy_n(rows + n * channels, channels, to);
        else if (older)
          std::copy_n(older + (n - first + count) * channels, channels, to);
        else
          std::fill_n(to, channels, 0.0f);
      }
    }
  }
}

// A sampled sequence is a root without children.
void check_carried(const Forest& forest, const CarriedStates& carried) {
  check(carried.empty() || static_cast<int64_t>(carried.size()) == forest.num_segments(),
        "carried states: ", carried.size(), " for a forest of ", forest.num_segments(),
        " segments");
}

kernels::DeltaShape delta_shape(const DeltaRuleSpec& s) {
  return {s.key_heads, s.value_heads, s.key_dim, s.value_dim};
}

// Decay and rate are computed in double, and rounded once.
struct Gates {
  double decay_log, slope, rate;  // slope: of decay_log in a + dt_bias
};
Gates gates_of(double a, double b, double a_log, double dt_bias) {
  const double x = a + dt_bias, speed = exact::quick_exp(a_log);
  const double e = exact::quick_exp(-std::abs(x));
  const double softplus = std::max(x, 0.0) + exact::quick_log1p(e);
  const double sigmoid = x >= 0 ? 1 / (1 + e) : e / (1 + e);
  return {-speed * softplus, -speed * sigmoid, 1 / (1 + exact::quick_exp(-b))};
}

// What kernels read of a pass.
template <class T>
struct PreparedDelta {
  at::Tensor q, k, decay, rate;
  kernels::DeltaTokens<T> tokens;
  PreparedDelta(const DeltaRuleSpec& s, const DeltaRuleInputs& in) {
    const int64_t n = in.qkv.size(0), keys = s.key_heads * s.key_dim;
    q = at::empty({n, keys}, in.qkv.options());
    k = at::empty({n, keys}, in.qkv.options());
    decay = at::empty({n, s.value_heads}, in.qkv.options());
    rate = at::empty({n, s.value_heads}, in.qkv.options());
    const T* qkv = values<T>(in.qkv);
    const kernels::HeadRows rows = key_rows(s, n);
    kernels::l2_norm<T>(rows, qkv, kNormEps, query_scale(s), q.mutable_data_ptr<T>());
    kernels::l2_norm<T>(rows, qkv + keys, kNormEps, 1, k.mutable_data_ptr<T>());
    const T *a = values<T>(in.a), *b = values<T>(in.b), *a_log = values<T>(in.a_log),
            *dt = values<T>(in.dt_bias);
    T *d = decay.mutable_data_ptr<T>(), *r = rate.mutable_data_ptr<T>();
    const int64_t heads = s.value_heads;
#pragma omp parallel for schedule(static) if (n * heads > 512)
    for (int64_t i = 0; i < n * heads; ++i) {
      const Gates gates = gates_of(a[i], b[i], a_log[i % heads], dt[i % heads]);
      d[i] = static_cast<T>(exact::quick_exp(gates.decay_log));
      r[i] = static_cast<T>(gates.rate);
    }
    tokens = {values<T>(q), values<T>(k), qkv + 2 * keys, s.qkv_width(), d, r};
  }
  static kernels::HeadRows key_rows(const DeltaRuleSpec& s, int64_t n) {
    return {n, s.key_heads, s.key_dim, s.qkv_width()};
  }
  static double query_scale(const DeltaRuleSpec& s) {
    return 1 / std::sqrt(static_cast<double>(s.key_dim));
  }
};

// From gradients of decay and rate to those of a, b, a_log and dt_bias.
template <class T>
void gates_backward(const DeltaRuleSpec& s, const DeltaRuleInputs& in, const at::Tensor& ddecay,
                    const at::Tensor& drate, DeltaRuleInputs& out) {
  const int64_t n = in.a.size(0), heads = s.value_heads;
  const T *a = values<T>(in.a), *b = values<T>(in.b), *a_log = values<T>(in.a_log),
          *dt = values<T>(in.dt_bias), *dd = values<T>(ddecay), *dr = values<T>(drate);
  T *da = out.a.mutable_data_ptr<T>(), *db = out.b.mutable_data_ptr<T>(),
    *dlog = out.a_log.mutable_data_ptr<T>(), *ddt = out.dt_bias.mutable_data_ptr<T>();
#pragma omp parallel for schedule(static) if (n * heads > 512)
  for (int64_t h = 0; h < heads; ++h) {
    double of_log = 0, of_dt = 0;
    for (int64_t i = h; i < n * heads; i += heads) {
      const Gates gates = gates_of(a[i], b[i], a_log[h], dt[h]);
      const double d = dd[i] * exact::quick_exp(gates.decay_log);
      const double dx = d * gates.slope;
      da[i] = static_cast<T>(dx);
      db[i] = static_cast<T>(dr[i] * gates.rate * (1 - gates.rate));
      of_dt += dx;
      of_log += d * gates.decay_log;
    }
    dlog[h] = static_cast<T>(of_log);
    ddt[h] = static_cast<T>(of_dt);
  }
}

}  // namespace

at::Tensor NativeBackend::short_convolution(const ConvolutionWeights& weights, bool silu,
                                            const Forest& forest, const at::Tensor& x,
                                            const CarriedStates& carried) const {
  check_carried(forest, carried);
  at::Tensor y = at::empty_like(x);
  const at::Tensor taps = taps_of(weights);
  std::vector<at::Tensor> before;  // copies: a state may be written where it was read
  for (const CarriedState& state : carried)
    before.push_back(state.from.defined() ? state.from.clone() : at::Tensor());
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    std::vector<const T*> from;
    for (const at::Tensor& state : before) from.push_back(values<T>(state));
    kernels::short_convolution<T>(convolution_shape(weights, silu), view_of_forest(forest),
                                  values<T>(x), values<T>(taps), values<T>(weights.bias),
                                  from.empty() ? nullptr : from.data(), y.mutable_data_ptr<T>());
  });
  if (!carried.empty()) keep_inputs(forest, x, weights.weight.size(-1) - 1, carried, before);
  return y;
}

std::pair<at::Tensor, ConvolutionWeights> NativeBackend::short_convolution_backward(
    const ConvolutionWeights& weights, bool silu, const Forest& forest, const at::Tensor& x,
    const at::Tensor& dy) const {
  const at::Tensor taps = taps_of(weights);
  at::Tensor dx = at::zeros_like(x), dtaps = at::zeros_like(taps);
  at::Tensor dbias = weights.bias.defined() ? at::zeros_like(weights.bias) : at::Tensor();
  dispatch(x, [&](auto zero) {
    using T = decltype(zero);
    kernels::short_convolution_backward<T>(
        convolution_shape(weights, silu), view_of_forest(forest), values<T>(x), values<T>(taps),
        values<T>(weights.bias), values<T>(dy), dx.mutable_data_ptr<T>(),
        dtaps.mutable_data_ptr<T>(), dbias.defined() ? dbias.mutable_data_ptr<T>() : nullptr);
  });
  return {dx, {dtaps.t().contiguous().view(weights.weight.sizes()), dbias}};
}

at::Tensor NativeBackend::gated_delta_rule(const DeltaRuleSpec& spec, const Forest& forest,
                                           const DeltaRuleInputs& in,
                                           const CarriedStates& carried) const {
  check_carried(forest, carried);
  at::Tensor out = at::empty({in.qkv.size(0), spec.value_heads * spec.value_dim}, in.qkv.options());
  dispatch(in.qkv, [&](auto zero) {
    using T = decltype(zero);
    const PreparedDelta<T> prepared(spec, in);
    std::vector<const T*> from;
    std::vector<kernels::KeptState<T>> keep;
    for (const CarriedState& state : carried) {
      from.push_back(values<T>(state.from));
      for (const std::pair<int64_t, at::Tensor>& kept : state.to) {
        const at::Tensor& to = kept.second;
        keep.push_back({kept.first, to.mutable_data_ptr<T>()});
      }
    }
    kernels::delta_rule<T>(delta_shape(spec), view_of_forest(forest), prepared.tokens,
                           from.empty() ? nullptr : from.data(), keep, out.mutable_data_ptr<T>());
  });
  return out;
}

DeltaRuleInputs NativeBackend::gated_delta_rule_backward(const DeltaRuleSpec& spec,
                                                         const Forest& forest,
                                                         const DeltaRuleInputs& in,
                                                         const at::Tensor& dout) const {
  DeltaRuleInputs d{at::empty_like(in.qkv), at::empty_like(in.a), at::empty_like(in.b),
                    at::empty_like(in.a_log), at::empty_like(in.dt_bias)};
  dispatch(in.qkv, [&](auto zero) {
    using T = decltype(zero);
    const PreparedDelta<T> prepared(spec, in);
    at::Tensor dq = at::empty_like(prepared.q), dk = at::empty_like(prepared.k),
               ddecay = at::empty_like(prepared.decay), drate = at::empty_like(prepared.rate);
    const int64_t n = in.qkv.size(0), keys = spec.key_heads * spec.key_dim;
    T* dqkv = d.qkv.template mutable_data_ptr<T>();
    kernels::delta_rule_backward<T>(
        delta_shape(spec), view_of_forest(forest), prepared.tokens, values<T>(dout),
        {dq.mutable_data_ptr<T>(), dk.mutable_data_ptr<T>(), dqkv + 2 * keys, spec.qkv_width(),
         ddecay.mutable_data_ptr<T>(), drate.mutable_data_ptr<T>()});
    const kernels::HeadRows rows = PreparedDelta<T>::key_rows(spec, n);
    const T* qkv = values<T>(in.qkv);
    kernels::l2_norm_backward<T>(rows, qkv, kNormEps, PreparedDelta<T>::query_scale(spec),
                                 values<T>(dq), dqkv);
    kernels::l2_norm_backward<T>(rows, qkv + keys, kNormEps, 1, values<T>(dk), dqkv + keys);
    gates_backward<T>(spec, in, ddecay, drate, d);
  });
  return d;
}

}  // namespace temper::ops
