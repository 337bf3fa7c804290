// Routers of mixtures of experts: which experts a token goes to, and with which weights. Every row
// is computed by itself, so that the bits do not depend on the batch. T is float, or double for
// gradient checks.
#pragma once

#include <cstdint>

#include "temper/ops/specs.h"

namespace temper::kernels {

using ops::RouterScore;
using ops::RouterSpec;

// logits [rows, experts] (NaN is the least); bias [experts], added to the scores of sigmoid for the
// choice alone, or null. expert [rows, chosen]: the experts with the largest scores, of equals the
// lower, ascending; weight [rows, chosen]: theirs. Softmax: e_i = exp(x_i - max x), summed in
// double by ascending i over all experts, or over the chosen ones if the weights are normalized;
// weight = e_i · scale / sum, in double, rounded once. Sigmoid: s_i = 1 / (1 + exp(-x_i)); weight =
// s_i · scale, or s_i · scale / (their sum + 1e-20).
template <class T>
void route(const RouterSpec& spec, int64_t rows, const T* logits, const T* bias, int64_t* expert,
           T* weight);
// dlogits [rows, experts] from the gradient of the weights.
template <class T>
void route_backward(const RouterSpec& spec, int64_t rows, const T* logits, const int64_t* expert,
                    const T* dweight, T* dlogits);

// p[r, :], the softmax of the logits: e_i over their sum, as above.
template <class T>
void router_probabilities(int64_t rows, int64_t experts, const T* logits, T* p);
// dlogits from the gradient g [rows, experts] of the probabilities.
template <class T>
void router_probabilities_backward(int64_t rows, int64_t experts, const T* logits, const T* g,
                                   T* dlogits);

// y[n, :] = Σ_j weight[n, j] · x[place[n, j], :]: fused multiply-adds, j ascending, from 0 or, if
// they accumulate, from what y holds. A place below 0 is passed over. x [.., width].
template <class T>
void combine(int64_t rows, int64_t chosen, int64_t width, const T* x, const T* weight,
             const int64_t* place, T* y, bool accumulate);
// dx[place[n, j], :] = weight[n, j] · dy[n, :]; dweight[n, j] = Σ_i dy[n, i] x[place[n, j], i], in
// double: eight partial sums by i mod 8, then the rest ascending; 0 where the place is below 0.
template <class T>
void combine_backward(int64_t rows, int64_t chosen, int64_t width, const T* x, const T* weight,
                      const int64_t* place, const T* dy, T* dx, T* dweight);

}  // namespace temper::kernels
