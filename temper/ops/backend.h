// Backend: one virtual function per numerical primitive of temper/ops. The public functions in the
// other headers check shapes, record gradients and communicate with other ranks; for the numbers
// they call the backend of their tensors' device (backend_of):
//
//   native   the kernels of temper/ops/native/kernels, on CPUs. Exact: no number depends on the
//            batch.
//   aten     compositions of ATen calls on whatever device the tensors are on (docs/devices.md).
//
// The primitives stand in primitives-inl.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "temper/ops/kv_store.h"
#include "temper/ops/layers/attention.h"
#include "temper/ops/layers/linear.h"
#include "temper/ops/layers/recurrent.h"
#include "temper/ops/layers/routing.h"
#include "temper/ops/logits/divergence.h"
#include "temper/ops/product.h"
#include "temper/ops/specs.h"
#include "temper/ops/weight.h"

namespace temper::ops {

struct AttentionResult {
  at::Tensor out;          // [n, num_heads * head_dim]
  at::Tensor log_sum_exp;  // [n, num_heads], of the scaled, capped scores and the sink
};
struct AttentionGradients {
  at::Tensor q, k, v, q_norm, k_norm;  // the norms' undefined where the spec has none
};

// Queries and keys as scores read them: normalized and rotated, keys rounded to the cache's dtype.
struct HeadVectors {
  at::Tensor q, k;  // [N, num_heads, head_dim], [N, num_kv_heads, head_dim]
};

// A pass of N rows, of which the longest path from a root has so many.
struct PassSize {
  int64_t rows, longest;
};

// Query rows [first, first + rows) of one segment. `keys` [n] int64: indices of the forest's tokens
// that they may attend to, ancestors first; row r is token keys[before + r] and sees
// keys[0, before + r], or those of them within the window.
struct MapTile {
  int64_t first, rows, before;
  at::Tensor keys;
  int64_t num_keys() const { return keys.numel(); }
};
struct TileMaps {
  at::Tensor probability;  // [heads, rows, keys]; 0 for keys that a row does not see
  at::Tensor capped;       // the soft-capped scores, of the same shape; undefined without a cap or
                           // without with_capped
};

// Of rows of logits, each [M].
struct SoftmaxSums {
  at::Tensor log_sum_exp, entropy;
};
struct DivergenceSums {
  at::Tensor lse_student, lse_teacher, value;
  at::Tensor mixture;  // KL(student || mixture), of jsd
};

// The largest tile of logits [rows of the batch, columns of the vocabulary] that is in memory at
// once.
struct HeadTileSize {
  int64_t rows, columns;  // columns: a multiple of kLogitsBlock
};

// The key of dropout's random numbers: element (n, i) of x depends on (seed, step, module, row[n],
// i) alone.
struct DropoutKey {
  double p;         // probability that an element is zeroed; the others are divided by 1 - p
  uint64_t seed;    // of the run
  uint64_t step;    // of training, so that each step draws other numbers
  uint64_t module;  // of the layer, so that each layer draws other numbers
  at::Tensor row;   // [N] int64: the bits of each row's uint64 key, which names its token
};

// One step of SGD as torch.optim.SGD.
struct SgdStep {
  double learning_rate, momentum, weight_decay;
  double grad_scale;  // the gradient is multiplied by it first: gradient clipping
  bool first_step;    // the momentum buffer is set to the gradient
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  // Whether results are batch-invariant: no number depends on the other rows of the batch, so that
  // sampling and training agree bit for bit (docs/numerics.md).
  virtual bool batch_invariant() const = 0;

  // y[i] = x times each layer's weight, transposed, plus its bias: multiply() of one after the
  // other, unless the backend has something better.
  virtual void multiply_each(const at::Tensor& x, const std::vector<LinearOperand>& layers,
                             std::vector<at::Tensor>& y) const;
  // multiply(), multiply_transposed() and weight_gradient() of layer[g] and rows [offsets[g],
  // offsets[g + 1]). One after the other, unless the backend has something better.
  virtual void grouped_multiply(const at::Tensor& x, const std::vector<int64_t>& offsets,
                                const std::vector<LinearOperand>& layer, at::Tensor& y) const;
  virtual void grouped_multiply_transposed(const at::Tensor& dy,
                                           const std::vector<int64_t>& offsets,
                                           const std::vector<LinearOperand>& layer, at::Tensor& dx,
                                           bool accumulate) const;
  // dw[g] is written where it is defined.
  virtual void grouped_weight_gradients(const std::vector<LinearOperand>& layer,
                                        const at::Tensor& dy, const at::Tensor& x,
                                        const std::vector<int64_t>& offsets,
                                        std::vector<at::Tensor>& dw) const;

#define PRIMITIVE = 0
#include "temper/ops/primitives-inl.h"
};

const Backend& native_backend();
const Backend& aten_backend();
// "native" or "aten". Throws ConfigError for another name.
const Backend& backend_named(std::string_view name);

// The backend of tensors on the CPU: default_cpu_backend() until
// choose_cpu_backend() says otherwise. On other devices it is aten.
const Backend& cpu_backend();
// What TEMPER_BACKEND (auto, native or aten) names, else native. Throws ConfigError for another
// name.
const Backend& default_cpu_backend();
void choose_cpu_backend(const Backend& backend);
const Backend& backend_of(const at::Tensor& x);
const Backend& backend_of(at::Device device);

// A vector's numbers as an int64 tensor on the device of `like`.
at::Tensor indices(const std::vector<int64_t>& numbers, const at::Tensor& like);
at::Tensor indices(const std::vector<uint64_t>& bits, const at::Tensor& like);

}  // namespace temper::ops
