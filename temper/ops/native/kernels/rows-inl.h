// The arithmetic of rows.h. Included once for each SIMD target.
#if defined(TEMPER_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TEMPER_ROWS_INL_H
#undef TEMPER_ROWS_INL_H
#else
#define TEMPER_ROWS_INL_H
#endif

#include <algorithm>
#include <cstring>
#include <vector>

#include "temper/base/exact_math.h"
#include "temper/base/random.h"
#include "temper/ops/native/kernels/elementary-inl.h"
#include "temper/ops/native/kernels/loops.h"
#include "temper/ops/native/kernels/rows.h"

HWY_BEFORE_NAMESPACE();
namespace temper::kernels::HWY_NAMESPACE {

// Below this many elements a parallel region, a few microseconds, costs more than it saves.
constexpr int64_t kParallel = 16384;

template <class T>
T inverse_rms(const T* x, int64_t width, double eps) {
  const T squares = sum16<T>(0, width, [x](int64_t i, T sum) { return std::fma(x[i], x[i], sum); });
  return T(1) / sqrt_of(squares / static_cast<T>(width) + static_cast<T>(eps));
}

template <class T>
void RmsNorm(int64_t rows, int64_t width, const T* x, const T* weight, double eps,
             bool add_unit_offset, T* y) {
  for_each_index(rows, rows * width > kParallel, [=](int64_t r) {
    const T* in = x + r * width;
    T* out = y + r * width;
    const T scale = inverse_rms(in, width, eps);
    const T offset = add_unit_offset ? T(1) : T(0);
    for (int64_t i = 0; i < width; ++i) out[i] = in[i] * scale * (offset + weight[i]);
  });
}

// With n = x s, s = 1/rms: dx = s (w dy - n mean(w dy n)); dw = Σ_rows dy n.
template <class T>
void RmsNormBackward(int64_t rows, int64_t width, const T* x, const T* weight, double eps,
                     bool add_unit_offset, const T* dy, T* dx, T* dweight) {
  // dweight is summed in blocks of rows, whatever the number of threads, and the blocks in order.
  constexpr int64_t kBlock = 64;
  const int64_t blocks = (rows + kBlock - 1) / kBlock;
  std::vector<T> partial(dweight ? static_cast<size_t>(blocks * width) : 0);
#pragma omp parallel for schedule(static) if (rows * width > kParallel)
  for (int64_t b = 0; b < blocks; ++b) {
    T* dw = dweight ? partial.data() + b * width : nullptr;
    for (int64_t r = b * kBlock; r < std::min(rows, (b + 1) * kBlock); ++r) {
      const T* in = x + r * width;
      const T* grad = dy + r * width;
      T* out = dx + r * width;
      const T scale = inverse_rms(in, width, eps), offset = add_unit_offset ? T(1) : T(0);
      const T dot = sum16<T>(0, width, [&](int64_t i, T sum) {
        return std::fma(grad[i] * (offset + weight[i]), in[i] * scale, sum);
      });
      const T mean = dot / static_cast<T>(width);
      for (int64_t i = 0; i < width; ++i)
        out[i] += scale * (grad[i] * (offset + weight[i]) - in[i] * scale * mean);
      if (dw)
        for (int64_t i = 0; i < width; ++i) dw[i] += grad[i] * (in[i] * scale);
    }
  }
  for (int64_t b = 0; b < blocks && dweight; ++b)
    for (int64_t i = 0; i < width; ++i) dweight[i] += partial[static_cast<size_t>(b * width + i)];
}

// The pair (a[i * stride], b[i * stride]) of each i.
template <class T>
HWY_INLINE void rotate_pairs(int64_t count, int64_t stride, const T* c, const T* s, T sign, T* a,
                             T* b) {
  for (int64_t i = 0; i < count; ++i) {
    const T si = sign * s[i], ai = a[i * stride], bi = b[i * stride];
    a[i * stride] = std::fma(-bi, si, ai * c[i]);
    b[i * stride] = std::fma(ai, si, bi * c[i]);
  }
}

template <class T>
void Rotate(int64_t rows, int64_t heads, int64_t dim, const Rotation& rotation,
            const int64_t* position, const T* cos, const T* sin, bool inverse, T* x) {
  const int64_t half = rotation.rotated / 2;
  const bool interleaved = rotation.interleaved;
  const T sign = inverse ? T(-1) : T(1);
  for_each_index(rows, rows * heads * dim > kParallel, [=](int64_t r) {
    const T* c = cos + position[r] * half;
    const T* s = sin + position[r] * half;
    for (int64_t h = 0; h < heads; ++h) {
      T* a = x + (r * heads + h) * dim;
      if (interleaved)
        rotate_pairs(half, 2, c, s, sign, a, a + 1);
      else
        rotate_pairs(half, 1, c, s, sign, a, a + half);
    }
  });
}

template <class T>
void Center(int64_t rows, int64_t width, const T* x, T* y) {
#pragma omp parallel for schedule(static) if (rows * width > kParallel)
  for (int64_t r = 0; r < rows; ++r) {
    const T* in = x + r * width;
    T* out = y + r * width;
    const T mean =
        sum16<T>(0, width, [in](int64_t i, T sum) { return sum + in[i]; }) / static_cast<T>(width);
    for (int64_t i = 0; i < width; ++i) out[i] = in[i] - mean;
  }
}

// act(g) and its derivative.
template <class T>
T gate_value(Gate kind, T g) {
  if (kind == Gate::kSilu) return g * sigmoid_of(g);
  if (kind == Gate::kSigmoid) return sigmoid_of(g);
  if (kind == Gate::kIdentity) return g;
  if (kind == Gate::kGelu) {
    const double x = g;
    return static_cast<T>(x * normal_of(x).distribution);
  }
  const T inner = T(0.79788456080286536) * std::fma(T(0.044715) * g * g, g, g);
  return T(0.5) * g * (T(1) + tanh_of(inner));
}
template <class T>
T gate_slope(Gate kind, T g) {
  if (kind == Gate::kIdentity) return T(1);
  if (kind == Gate::kSigmoid) {
    const T s = sigmoid_of(g);
    return s * (T(1) - s);
  }
  if (kind == Gate::kSilu) {
    const T s = sigmoid_of(g);
    return s * (T(1) + g * (T(1) - s));
  }
  if (kind == Gate::kGelu) {
    const double x = g;
    const Normal normal = normal_of(x);
    return static_cast<T>(normal.distribution + x * (normal.bell * 0.39894228040143268));
  }
  const T inner = T(0.79788456080286536) * std::fma(T(0.044715) * g * g, g, g);
  const T t = tanh_of(inner);
  return T(0.5) * (T(1) + t) +
         T(0.5) * g * (T(1) - t * t) * T(0.79788456080286536) * (T(1) + T(0.134145) * g * g);
}

// A range of elements for each thread; the loop over them is one that the compiler turns into
// vectors.
template <class Body>
void for_ranges(int64_t count, Body body) {
  constexpr int64_t kRange = 8192;
  for_each_index((count + kRange - 1) / kRange, count > kParallel,
                 [=](int64_t i) { body(i * kRange, std::min(count, (i + 1) * kRange)); });
}

// body(kind) with the kind as a constant, so that each loop is compiled for one.
template <class Body>
HWY_INLINE void for_kind(Gate kind, Body body) {
  switch (kind) {
    case Gate::kSilu:
      return body(Gate::kSilu);
    case Gate::kGeluTanh:
      return body(Gate::kGeluTanh);
    case Gate::kGelu:
      return body(Gate::kGelu);
    case Gate::kSigmoid:
      return body(Gate::kSigmoid);
    case Gate::kIdentity:
      return body(Gate::kIdentity);
  }
}

template <class T>
void Gated(int64_t count, Gate kind, const T* gate, const T* up, T* y) {
  for_ranges(count, [=](int64_t begin, int64_t end) {
    for_kind(kind, [=](Gate k) __attribute__((always_inline)) {
      for (int64_t i = begin; i < end; ++i) y[i] = gate_value(k, gate[i]) * up[i];
    });
  });
}

template <class T>
void GatedBackward(int64_t count, Gate kind, const T* gate, const T* up, const T* dy, T* dgate,
                   T* dup) {
  for_ranges(count, [=](int64_t begin, int64_t end) {
    for_kind(kind, [=](Gate k) __attribute__((always_inline)) {
      for (int64_t i = begin; i < end; ++i) {
        const T g = gate[i], d = dy[i];
        dup[i] = d * gate_value(k, g);
        dgate[i] = d * up[i] * gate_slope(k, g);
      }
    });
  });
}

template <class T>
void AddScaled(int64_t count, const T* a, T scale, const T* b, T* y) {
  for_ranges(count, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = std::fma(scale, b[i], a[i]);
  });
}

template <class T>
void SoftCap(int64_t count, T cap, T* x) {
  for_ranges(count, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) x[i] = cap * tanh_of(x[i] / cap);
  });
}

template <class T>
void GatherRows(int64_t rows, int64_t width, const T* table, const int64_t* id, T scale, T* out) {
  for_each_index(rows, rows * width > kParallel, [=](int64_t r) {
    for (int64_t i = 0; i < width; ++i) out[r * width + i] = table[id[r] * width + i] * scale;
  });
}

template <class T>
void ScatterRows(int64_t rows, int64_t width, const T* dout, const int64_t* id, T scale,
                 T* dtable) {
  // Columns are shared out, never rows: each element is summed by one thread in ascending row
  // order.
  constexpr int64_t kColumns = 128;
#pragma omp parallel for schedule(static) if (rows * width > kParallel)
  for (int64_t c = 0; c < width; c += kColumns) {
    const int64_t end = std::min(width, c + kColumns);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = c; i < end; ++i)
        dtable[id[r] * width + i] = std::fma(scale, dout[r * width + i], dtable[id[r] * width + i]);
  }
}

template <class T>
SoftmaxPart<T> softmax_part(const T* x, int64_t count) {
  const T max = largest(count, x);
  alignas(64) T e[kVocabularyBlock];
  for (int64_t j = 0; j < count; ++j) e[j] = exp_of(x[j] - max);
  const T sum = sum16<T>(0, count, [&e](int64_t j, T s) { return s + e[j]; });
  const T weighted =
      sum16<T>(0, count, [&e, x, max](int64_t j, T s) { return std::fma(e[j], x[j] - max, s); });
  return {max, sum, weighted};
}

template <class T>
void SoftmaxParts(int64_t rows, int64_t count, const T* x, int64_t row_stride,
                  SoftmaxPart<T>* parts, int64_t parts_stride) {
  const int64_t blocks = (count + kVocabularyBlock - 1) / kVocabularyBlock;
  for_each_index(rows * blocks, rows * count > kParallel, [=](int64_t i) {
    const int64_t r = i / blocks, b = i % blocks, begin = b * kVocabularyBlock;
    parts[r * parts_stride + b] =
        softmax_part(x + r * row_stride + begin, std::min(kVocabularyBlock, count - begin));
  });
}

template <class T>
void ExpShifted(int64_t count, const T* x, T shift, T* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = exp_of(x[i] - shift);
}

inline float log_of_sum(float sum) { return exact::log_float(sum); }
inline double log_of_sum(double sum) { return exact::quick_log(sum); }

template <class T>
void JoinParts(int64_t rows, int64_t blocks, const SoftmaxPart<T>* parts, T* log_sum_exp,
               T* entropy) {
  for_each_index(rows, rows * blocks > kParallel, [=](int64_t r) {
    const SoftmaxPart<T>* p = parts + r * blocks;
    T max = p[0].max;
    for (int64_t b = 1; b < blocks; ++b) max = p[b].max > max ? p[b].max : max;
    T sum = 0, weighted = 0;  // Σ e^(x - max) and Σ e^(x - max) (x - max)
    for (int64_t b = 0; b < blocks; ++b) {
      const T shift = p[b].max - max, factor = exp_of(shift);
      sum = std::fma(p[b].sum, factor, sum);
      weighted = std::fma(std::fma(p[b].sum, shift, p[b].weighted), factor, weighted);
    }
    const T log_sum = log_of_sum(sum);
    log_sum_exp[r] = max + log_sum;
    if (entropy) entropy[r] = log_sum - weighted / sum;
  });
}

template <class T>
void SoftmaxGradient(int64_t rows, int64_t count, int64_t first, const int64_t* target,
                     const T* log_sum_exp, const T* entropy, const T* g, const T* h, T* x,
                     int64_t row_stride) {
#pragma omp parallel for schedule(static) if (rows * count > kParallel)
  for (int64_t r = 0; r < rows; ++r) {
    T* row = x + r * row_stride;
    const T lse = log_sum_exp[r], gr = g[r];
    if (h) {
      const T hr = h[r], entropy_r = entropy[r];
      for (int64_t j = 0; j < count; ++j) {
        const T logp = row[j] - lse, p = exp_of(logp);
        row[j] = -p * (gr + hr * (logp + entropy_r));
      }
    } else {
      for (int64_t j = 0; j < count; ++j) row[j] = -gr * exp_of(row[j] - lse);
    }
    if (target[r] >= first && target[r] < first + count) row[target[r] - first] += gr;
  }
}

template <class T>
void DropoutRows(int64_t rows, int64_t width, uint64_t seed, uint64_t step, uint64_t module,
                 const uint64_t* row_key, double p, const T* x, T* y) {
  const T scale = static_cast<T>(1.0 / (1.0 - p));
  // stream.uniform(i) >= p, in integers.
  const uint32_t dropped = static_cast<uint32_t>(std::ceil(p * 0x1p24));
#pragma omp parallel for schedule(static) if (rows * width > kParallel)
  for (int64_t r = 0; r < rows; ++r) {
    const RandomStream stream(seed, RandomPurpose::kDropout, step, module, row_key[r]);
    for (int64_t i = 0; i < width; ++i) {
      const bool keep = (stream.bits(static_cast<uint64_t>(i)) >> 8) >= dropped;
      y[r * width + i] = keep ? x[r * width + i] * scale : T(0);
    }
  }
}

inline void AdamW(int64_t count, const AdamWStep& s, const float* grad, float* param, float* first,
                  float* second) {
  const float decay = static_cast<float>(1.0 - s.learning_rate * s.weight_decay),
              scale = static_cast<float>(s.grad_scale);
  const float b2 = static_cast<float>(s.beta2), eps = static_cast<float>(s.eps);
  const float c1 = static_cast<float>(1.0 - s.beta1), c2 = static_cast<float>(1.0 - s.beta2);
  const float step = static_cast<float>(s.learning_rate / s.correction1),
              root = static_cast<float>(std::sqrt(s.correction2));
  for_ranges(count, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float g = grad[i] * scale;
      const float m = std::fma(c1, g - first[i], first[i]);
      const float v = std::fma(c2 * g, g, b2 * second[i]);
      const float p = param[i] * decay;
      first[i] = m;
      second[i] = v;
      param[i] = p - step * (m / (sqrt_of(v) / root + eps));
    }
  });
}

inline void Sgd(int64_t count, double learning_rate, double momentum, double weight_decay,
                double grad_scale, bool first_step, const float* grad, float* param,
                float* buffer) {
  const float rate = static_cast<float>(learning_rate), mu = static_cast<float>(momentum);
  const float decay = static_cast<float>(weight_decay), scale = static_cast<float>(grad_scale);
  for_ranges(count, [=](int64_t begin, int64_t end) {
    if (!buffer) {
      for (int64_t i = begin; i < end; ++i)
        param[i] = std::fma(-rate, std::fma(decay, param[i], grad[i] * scale), param[i]);
      return;
    }
    for (int64_t i = begin; i < end; ++i) {
      const float g = std::fma(decay, param[i], grad[i] * scale), before = buffer[i];
      const float moving = first_step ? g : std::fma(mu, before, g);
      buffer[i] = moving;
      param[i] = std::fma(-rate, moving, param[i]);
    }
  });
}

inline double SumOfSquares(int64_t count, const float* x) {
  constexpr int64_t kChunk = 1 << 16;
  const int64_t chunks = (count + kChunk - 1) / kChunk;
  std::vector<double> sums(static_cast<size_t>(chunks));
#pragma omp parallel for schedule(static) if (chunks > 1)
  for (int64_t c = 0; c < chunks; ++c)
    sums[static_cast<size_t>(c)] =
        sum16<double>(c * kChunk, std::min(kChunk, count - c * kChunk), [x](int64_t i, double s) {
          const double v = x[i];
          return std::fma(v, v, s);
        });
  double total = 0;
  for (double s : sums) total += s;
  return total;
}

}  // namespace temper::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
