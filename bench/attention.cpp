// Attention alone beside the float32 product, in GFLOP/s of one process: forward, backward, and the
// prefill of a prompt in chunks through the sampler's pages. Work is counted exactly: a query has
// four operations (in the backward pass ten) a feature and key that it sees.
//
//     export FLAGS="-std=c++20 -O2 -fopenmp -I. -Lbuild -Wl,-rpath,build,--allow-shlib-undefined"
//     g++ $FLAGS bench/attention.cpp -ltemper -o build/bench_attention
//     build/bench_attention TOKENS HEAD_DIM HEADS KV_HEADS [WINDOW [QUERIES [REPEATS]]]
//
// WINDOW: 0, none. QUERIES: only the last so many of the row's tokens; 0, all.
// Rates are of processor time, summed over OMP_NUM_THREADS threads: what other programs on the
// machine take does not count, what they do to caches and memory does. The best of REPEATS is
// shown.
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <vector>

#include "temper/ops/native/kernels/attention/forest_attention.h"
#include "temper/ops/native/kernels/gemm.h"

namespace {
using namespace temper::kernels;
using Vector = std::vector<float>;

Vector drawn(int64_t count) {
  static uint32_t state = 1;
  Vector x(static_cast<size_t>(count));
  for (float& value : x) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
  }
  return x;
}

template <class Work>
void keep_best(double operations, double& best, Work work) {
  const auto now = [] {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double start = now();
  work();
  best = std::max(best, operations * omp_get_max_threads() / (now() - start) / 1e9);
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};
template <class T>
std::unique_ptr<T, Free> aligned(int64_t bytes) {
  return std::unique_ptr<T, Free>(
      static_cast<T*>(std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64))));
}

double product_speed() {
  constexpr int64_t kSide = 1536;
  const Vector a = drawn(kSide * kSide);
  Vector c(a.size());
  const auto packed = aligned<float>(4 * packed_size(kSide, kSide));
  pack({a.data(), kSide, 1}, kSide, kSide, packed.get());
  double best = 0;
  for (int i = 0; i < 3; ++i)
    keep_best(2.0 * kSide * kSide * kSide, best, [&] {
      gemm(kSide, kSide, kSide, {a.data(), kSide, 1}, packed.get(), c.data(), kSide);
    });
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t otherwise) {
    return argc > i ? std::atoll(argv[i]) : otherwise;
  };
  const int64_t n = argument(1, 4096), dim = argument(2, 64), heads = argument(3, 4),
                kv = argument(4, 1), window = argument(5, 0), last = argument(6, 0),
                repeats = argument(7, 3), first = last > 0 ? n - last : 0, queries = n - first;
  const AttentionShape shape{heads, kv, dim, 0.125, 0, window};
  const int64_t start[] = {0, n}, parent[] = {-1}, end[] = {1};
  const ForestView forest{n, 1, start, parent, end};
  const Vector q = drawn(queries * heads * dim), k = drawn(n * kv * dim), v = drawn(n * kv * dim),
               dout = drawn(queries * heads * dim);
  Vector out(q.size()), lse(static_cast<size_t>(queries * heads)), dq(q.size()), dk(k.size()),
      dv(v.size());
  double seen = 0;
  for (int64_t i = first; i < n; ++i)
    seen += static_cast<double>(window > 0 ? std::min(i + 1, window) : i + 1);
  const double unit = seen * static_cast<double>(heads * dim);
  const int64_t pages = (n + page_tokens() - 1) / page_tokens();
  const auto memory = aligned<char>(pages * page_bytes(shape));
  std::vector<void*> table;
  for (int64_t p = 0; p < pages; ++p) table.push_back(memory.get() + p * page_bytes(shape));
  std::vector<CachedQuery> rows;
  for (int64_t i = 0; i < n; ++i) rows.push_back({table.data(), i});
  write_pages(shape, n, rows.data(), k.data(), v.data());
  double product = 0, forward = 0, backward = 0, prefill = 0;
  for (int64_t i = 0; i < repeats; ++i) {
    product = std::max(product, product_speed());
    keep_best(4 * unit, forward, [&] {
      attention<float>(shape, forest, {first, n}, q.data(), k.data(), v.data(), out.data(),
                       lse.data());
    });
    keep_best(10 * unit, backward, [&] {
      attention_backward<float>(shape, forest, {first, n}, q.data(), k.data(), v.data(), out.data(),
                                lse.data(), dout.data(), dq.data(), dk.data(), dv.data());
    });
    keep_best(4 * unit, prefill, [&] {
      constexpr int64_t kChunk = 2048;
      for (int64_t at = 0; at < queries; at += kChunk)
        attention_cached(shape, std::min(kChunk, queries - at), rows.data() + first + at,
                         q.data() + at * heads * dim, out.data() + at * heads * dim);
    });
  }
  std::printf(
      "| %ld | %ld | %ld/%ld | %ld | %.1f | %.1f (%.0f %%) | %.1f (%.0f %%) | %.1f (%.0f %%) |\n",
      n, dim, heads, kv, window, product, forward, 100 * forward / product, backward,
      100 * backward / product, prefill, 100 * prefill / product);
}
