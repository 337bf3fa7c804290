// Layers that carry a state, as compositions of ATen calls: the delta rule in chunks of tokens, as
// transformers' torch_chunk_gated_delta_rule has it. Gradients are those of the compositions.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "temper/base/error.h"
#include "temper/ops/aten/aten.h"

namespace temper::ops {
namespace {

constexpr int64_t kChunk = 64;

int64_t first_token(const Forest& f, int64_t segment) {
  return f.segment_start[static_cast<size_t>(segment)];
}

// Tokens [begin, end) with the `count` inputs before them: the last ones of `before`.
at::Tensor with_older(const at::Tensor& x, const at::Tensor& before, int64_t begin, int64_t end) {
  return at::cat({before, x.narrow(0, begin, end - begin)});
}

// The forest's segments one after the other; `before` of each is what its parent leaves.
at::Tensor convolve(const ConvolutionWeights& w, bool silu, const Forest& f, const at::Tensor& x,
                    const CarriedStates& carried) {
  const int64_t channels = x.size(1), width = w.weight.size(-1);
  const at::Tensor taps = w.weight.view({channels, width}).t();
  std::vector<at::Tensor> left(static_cast<size_t>(f.num_segments())), parts;
  size_t root = 0;
  for (int64_t s = 0; s < f.num_segments(); ++s) {
    const size_t i = static_cast<size_t>(s);
    at::Tensor before = f.parent[i] >= 0 ? left[static_cast<size_t>(f.parent[i])] : at::Tensor();
    const CarriedState* state = f.parent[i] < 0 && !carried.empty() ? &carried[root++] : nullptr;
    if (state && state->from.defined()) before = state->from.view({width - 1, channels});
    if (!before.defined()) before = at::zeros({width - 1, channels}, x.options());
    const int64_t begin = first_token(f, s), end = first_token(f, s + 1);
    const at::Tensor all = with_older(x, before, begin, end);
    at::Tensor y = at::zeros({end - begin, channels}, x.options());
    for (int64_t j = 0; j < width; ++j) y = y + taps[j] * all.narrow(0, j, end - begin);
    if (w.bias.defined()) y = y + w.bias;
    parts.push_back(silu ? at::silu(y) : y);
    left[i] = all.narrow(0, end - begin, width - 1);
    if (!state) continue;
    for (const auto& [token, to] : state->to)
      to.view({width - 1, channels}).copy_(all.narrow(0, token + 1 - begin, width - 1));
  }
  return at::cat(parts);
}

at::Tensor l2_normalized(const at::Tensor& x) {
  return x * at::rsqrt((x * x).sum(-1, /*keepdim=*/true) + 1e-6);
}

// [heads, tokens, ...] of a stretch of tokens.
struct DeltaStretch {
  at::Tensor q, k, v, log_decay, rate;
};

// At most kChunk tokens after `state` [heads, key_dim, value_dim], which goes on; the output is
// [heads, tokens, value_dim]. With the decays up to each token D and the lower triangle L of
// rate (k kᵀ) D_i / D_j, errors solve (1 + L) e = rate (v - D k S).
at::Tensor delta_chunk(const DeltaStretch& t, at::Tensor& state) {
  const at::Tensor sums = t.log_decay.cumsum(-1), decay = sums.exp().unsqueeze(-1);
  const at::Tensor between = (sums.unsqueeze(-1) - sums.unsqueeze(-2)).tril().exp().tril();
  const at::Tensor rate = t.rate.unsqueeze(-1);
  const at::Tensor lower = (rate * t.k.matmul(t.k.transpose(-1, -2)) * between).tril(-1);
  const at::Tensor right = rate * (t.v - (t.k * decay).matmul(state));
  const at::Tensor error = at::linalg_solve_triangular(
      lower + at::eye(lower.size(-1), lower.options()), right, /*upper=*/false);
  const at::Tensor out =
      (t.q * decay).matmul(state) + (t.q.matmul(t.k.transpose(-1, -2)) * between).matmul(error);
  const at::Tensor last = sums.select(-1, -1).unsqueeze(-1);
  const at::Tensor left = t.k * (last - sums).exp().unsqueeze(-1);
  state = state * last.exp().unsqueeze(-1) + left.transpose(-1, -2).matmul(error);
  return out;
}

// All tokens as heads' vectors.
DeltaStretch heads_of(const DeltaRuleSpec& s, const DeltaRuleInputs& in) {
  const int64_t n = in.qkv.size(0), keys = s.key_heads * s.key_dim;
  const auto of_keys = [&](int64_t begin) {
    const at::Tensor x = in.qkv.narrow(1, begin, keys).reshape({n, s.key_heads, s.key_dim});
    return l2_normalized(x)
        .repeat_interleave(s.value_heads / s.key_heads, /*dim=*/1)
        .transpose(0, 1);
  };
  return {of_keys(0) / std::sqrt(static_cast<double>(s.key_dim)), of_keys(keys),
          in.qkv.narrow(1, 2 * keys, s.value_heads * s.value_dim)
              .reshape({n, s.value_heads, s.value_dim})
              .transpose(0, 1),
          (-in.a_log.exp() * at::softplus(in.a + in.dt_bias)).t(), at::sigmoid(in.b).t()};
}

at::Tensor run_delta(const DeltaRuleSpec& s, const Forest& f, const DeltaRuleInputs& in,
                     const CarriedStates& carried) {
  const DeltaStretch all = heads_of(s, in);
  std::vector<at::Tensor> left(static_cast<size_t>(f.num_segments())), parts;
  size_t root = 0;
  for (int64_t segment = 0; segment < f.num_segments(); ++segment) {
    const size_t i = static_cast<size_t>(segment);
    at::Tensor state = f.parent[i] >= 0 ? left[static_cast<size_t>(f.parent[i])] : at::Tensor();
    const CarriedState* kept = f.parent[i] < 0 && !carried.empty() ? &carried[root++] : nullptr;
    if (kept && kept->from.defined())
      state = kept->from.view({s.value_heads, s.key_dim, s.value_dim});
    if (!state.defined())
      state = at::zeros({s.value_heads, s.key_dim, s.value_dim}, in.qkv.options());
    size_t next = 0;  // of the states to keep
    for (int64_t n = first_token(f, segment), end = first_token(f, segment + 1); n < end;) {
      int64_t count = std::min(kChunk, end - n);
      if (kept && next < kept->to.size()) count = std::min(count, kept->to[next].first + 1 - n);
      const auto part = [&](const at::Tensor& x) { return x.narrow(1, n, count); };
      parts.push_back(delta_chunk(
          {part(all.q), part(all.k), part(all.v), part(all.log_decay), part(all.rate)}, state));
      n += count;
      for (; kept && next < kept->to.size() && kept->to[next].first == n - 1; ++next)
        kept->to[next].second.view_as(state).copy_(state);
    }
    left[i] = state;
  }
  return at::cat(parts, 1).transpose(0, 1).reshape({in.qkv.size(0), s.value_heads * s.value_dim});
}

// Leaves that record the gradients of a composition.
at::Tensor leaf(const at::Tensor& x) {
  return x.defined() ? x.detach().requires_grad_(true) : at::Tensor();
}

}  // namespace

at::Tensor AtenBackend::short_convolution(const ConvolutionWeights& weights, bool silu,
                                          const Forest& forest, const at::Tensor& x,
                                          const CarriedStates& carried) const {
  const at::NoGradGuard no_grad;
  return convolve(weights, silu, forest, x, carried);
}

std::pair<at::Tensor, ConvolutionWeights> AtenBackend::short_convolution_backward(
    const ConvolutionWeights& weights, bool silu, const Forest& forest, const at::Tensor& x,
    const at::Tensor& dy) const {
  const at::AutoGradMode grad(true);
  const ConvolutionWeights w{leaf(weights.weight), leaf(weights.bias)};
  const at::Tensor in = leaf(x);
  std::vector<at::Tensor> leaves{in, w.weight};
  if (w.bias.defined()) leaves.push_back(w.bias);
  const std::vector<at::Tensor> d =
      torch::autograd::grad({convolve(w, silu, forest, in, {})}, leaves, {dy});
  return {d[0], {d[1], d.size() > 2 ? d[2] : at::Tensor()}};
}

at::Tensor AtenBackend::gated_delta_rule(const DeltaRuleSpec& spec, const Forest& forest,
                                         const DeltaRuleInputs& in,
                                         const CarriedStates& carried) const {
  const at::NoGradGuard no_grad;
  return run_delta(spec, forest, in, carried);
}

DeltaRuleInputs AtenBackend::gated_delta_rule_backward(const DeltaRuleSpec& spec,
                                                       const Forest& forest,
                                                       const DeltaRuleInputs& in,
                                                       const at::Tensor& dout) const {
  const at::AutoGradMode grad(true);
  const DeltaRuleInputs x{leaf(in.qkv), leaf(in.a), leaf(in.b), leaf(in.a_log), leaf(in.dt_bias)};
  const std::vector<at::Tensor> d = torch::autograd::grad(
      {run_delta(spec, forest, x, {})}, {x.qkv, x.a, x.b, x.a_log, x.dt_bias}, {dout});
  return {d[0], d[1], d[2], d[3], d[4]};
}

}  // namespace temper::ops
