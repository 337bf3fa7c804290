// Kernels of layers that carry a state from token to token. The state of a token is a function of
// its path in the forest: a segment begins from the state where its parent ends, so that packing,
// chunking, prefix sharing and threads change no bit.
#pragma once

#include <cstdint>
#include <vector>

#include "temper/ops/native/kernels/attention/forest_attention.h"

namespace temper::kernels {

// Most tokens that a short convolution reads.
constexpr int64_t kMostTaps = 16;

// A causal convolution of each channel along a token's path:
//   y[c] = act(Σ_j w[j, c] x_j[c] + b[c])    one chain of fused multiply-adds from 0, over the last
//                                            `width` tokens of the path, the oldest first; what
//                                            stands before a root is 0 unless it is carried in
struct ConvolutionShape {
  int64_t channels, width;
  bool silu;  // act: x sigmoid(x), or nothing
};
// x, y [N, channels], weight [width, channels], bias [channels] or null. carried: null, or for each
// root [width - 1, channels], the inputs before it, the oldest first (null: zeros).
template <class T>
void short_convolution(const ConvolutionShape& shape, const ForestView& forest, const T* x,
                       const T* weight, const T* bias, const T* const* carried, T* y);
// Adds to dx, dweight and dbias (which may be null). Nothing is carried in.
template <class T>
void short_convolution_backward(const ConvolutionShape& shape, const ForestView& forest, const T* x,
                                const T* weight, const T* bias, const T* dy, T* dx, T* dweight,
                                T* dbias);

// Heads' vectors of `width` features: those of a token side by side, tokens `stride` numbers apart.
struct HeadRows {
  int64_t tokens, heads, width, stride;
  int64_t numbers() const { return tokens * heads * width; }
  int64_t place(int64_t row) const { return row / heads * stride + row % heads * width; }
};
// y = scale x / sqrt(Σ x² + eps) of each head's vector; y [tokens, heads, width].
template <class T>
void l2_norm(const HeadRows& rows, const T* x, double eps, double scale, T* y);
// dy [tokens, heads, width]; dx, placed as x, is overwritten.
template <class T>
void l2_norm_backward(const HeadRows& rows, const T* x, double eps, double scale, const T* dy,
                      T* dx);

// The gated delta rule (Yang et al., arXiv 2412.06464, equation 10), one token after the other. Of
// a head with the state S [key_dim, value_dim]:
//   S = decay S;  e = rate (v - Sᵀ k);  S = S + k eᵀ;  o = Sᵀ q
// Every product Sᵀ x is four partial sums by (key feature mod 4), each ascending from 0, joined as
// (0 + 2) + (1 + 3); decay S is rounded, k eᵀ is added by a fused multiply-add. Head h of values
// reads head h * key_heads / value_heads of keys and queries.
struct DeltaShape {
  int64_t key_heads, value_heads, key_dim, value_dim;
};
template <class T>
struct DeltaTokens {
  const T *q, *k;  // [N, key_heads, key_dim]
  const T* v;      // [N, value_heads, value_dim], tokens v_row numbers apart
  int64_t v_row;
  const T *decay, *rate;  // [N, value_heads]
};
template <class T>
struct DeltaGradients {
  T *q, *k;  // as DeltaTokens
  T* v;      // tokens v_row apart
  int64_t v_row;
  T *decay, *rate;
};
// A state [value_heads, key_dim, value_dim] that is wanted after a token.
template <class T>
struct KeptState {
  int64_t token;
  T* state;
};
// out [N, value_heads, value_dim]. from: null, or for each root the state before it (null: zeros);
// keep: by ascending token, and may be a root's own state.
template <class T>
void delta_rule(const DeltaShape& shape, const ForestView& forest, const DeltaTokens<T>& tokens,
                const T* const* from, const std::vector<KeptState<T>>& keep, T* out);
// Overwrites the gradients. States are computed again from those at every 32nd token of a segment.
template <class T>
void delta_rule_backward(const DeltaShape& shape, const ForestView& forest,
                         const DeltaTokens<T>& tokens, const T* dout,
                         const DeltaGradients<T>& gradients);

}  // namespace temper::kernels
