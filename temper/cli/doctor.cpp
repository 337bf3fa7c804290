#include <ATen/ATen.h>
#include <omp.h>
#include <torch/version.h>
#include <unistd.h>

#include <fstream>
#include <iostream>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/cli/verbs.h"
#include "temper/data/parquet.h"
#include "temper/models/weight_cache.h"
#include "temper/ops/cpu/bfloat16_dot.h"
#include "temper/ops/cpu/gemm.h"
#include "temper/ops/cpu/rows.h"
#include "temper/ops/cpu/simd.h"
#include "temper/ops/product.h"

namespace temper::cli {
namespace {

template <class Work>
double best_of(int times, Work work) {
  double best = 1e300;
  for (int i = 0; i < times; ++i) {
    const double start = steady_seconds();
    work();
    best = std::min(best, steady_seconds() - start);
  }
  return best;
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  return "unknown";
}

double gemm_gflops() {
  const at::Tensor a = at::ones({1024, 1024}), b = at::ones({1024, 1024});
  at::Tensor c = at::empty({1024, 1024});
  const at::Tensor panels = ops::pack(ops::Operand{b});
  return 2.0 * 1024 * 1024 * 1024 /
         best_of(5, [&] { ops::product({a}, {b}, c, false, {}, panels); }) / 1e9;
}

double bandwidth() {
  const at::Tensor x = at::ones({1 << 26});
  return 4.0 * (1 << 26) /
         best_of(3, [&] { kernels::sum_of_squares(x.numel(), x.const_data_ptr<float>()); }) / 1e9;
}

const char* bfloat16_products() {
  switch (kernels::bfloat16_products()) {
    case kernels::Bfloat16Products::kInstructions:
      return "AVX512-BF16";
    case kernels::Bfloat16Products::kOtherBits:
      return "float32, as this processor's AVX512-BF16 sums in another order";
    case kernels::Bfloat16Products::kNoInstruction:
      break;
  }
  return "float32, the same bits: this processor or build has no AVX512-BF16";
}

// Where quantized weights are kept for the next start.
std::string weight_cache() {
  const std::string directory = models::WeightCache::directory();
  if (directory.empty()) return "none (TEMPER_CACHE_DIR is empty, or there is no HOME)";
  return str(directory, ": ", models::WeightCache::total_bytes() / 1'000'000,
             " MB (TEMPER_CACHE_DIR)");
}

}  // namespace

int run_doctor(const Arguments& arguments) {
  if (!arguments.empty()) {
    std::cout << "usage: temper doctor\nWhat this machine has and can do.\n";
    return arguments[0] == "--help" || arguments[0] == "-h" ? 0 : 2;
  }
  const char* arrow = data::arrow_version();
  std::cout << "cpu          " << cpu_name() << ", " << sysconf(_SC_NPROCESSORS_ONLN) << " cores\n"
            << "simd         " << kernels::simd_name() << ", panels of " << kernels::panel_width()
            << " columns\n"
            << "bfloat16     " << bfloat16_products() << " (model.arithmetic: fast)\n"
            << "threads      " << omp_get_max_threads() << " (OMP_NUM_THREADS)\n"
            << "memory       " << usable_memory_bytes() / 1'000'000 << " MB\n"
            << "libtorch     " << TORCH_VERSION << "\n"
            << "gpu          none: this build has no CUDA\n"
            << "gemm         " << static_cast<int64_t>(gemm_gflops())
            << " GFLOP/s (float32, 1024 x 1024 x 1024)\n"
            << "bandwidth    " << static_cast<int64_t>(bandwidth()) << " GB/s (reading 256 MB)\n"
            << "weight cache " << weight_cache() << "\n"
            << "parquet      "
            << (arrow ? str("read by Arrow ", arrow) : "absent in this build: convert to JSONL")
            << "\n";
  return 0;
}

}  // namespace temper::cli
