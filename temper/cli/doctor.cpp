#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <omp.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <ostream>
#include <string>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/check/product_speed.h"
#include "temper/cli/launch.h"
#include "temper/cli/parts/options.h"
#include "temper/data/read/parquet.h"
#include "temper/dist/collective_times.h"
#include "temper/dist/environment.h"
#include "temper/dist/mesh.h"
#include "temper/models/device.h"
#include "temper/models/weight_cache.h"
#include "temper/ops/backend.h"
#include "temper/ops/native/kernels/bfloat16/bfloat16_tiles.h"
#include "temper/ops/native/kernels/gemm.h"
#include "temper/ops/native/kernels/integer/integer_gemm.h"
#include "temper/ops/native/kernels/rows.h"
#include "temper/ops/native/kernels/simd.h"
#include "temper/ops/product.h"
#include "temper/ops/weight.h"
#include "temper/process/sandbox.h"

namespace temper::cli {
namespace {

// Sizes from a few numbers, whose sum shows the latency, to the weights of a block.
const std::vector<int64_t> kCollectiveBytes{int64_t{4} << 10, int64_t{256} << 10, int64_t{4} << 20,
                                            int64_t{64} << 20};
constexpr double kCollectiveSeconds = 0.3;  // for each collective and size
constexpr double kLongestCollectiveMinutes = 5;
constexpr int64_t kSide = 4096;                     // of the matrices of the measured product
constexpr int64_t kReadNumbers = int64_t{1} << 26;  // float32

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

// As model.dtype: bfloat16 computes it with that model.arithmetic.
double bfloat16_gflops(ops::Arithmetic arithmetic) {
  const at::Tensor x = at::ones({1024, 1024});
  at::Tensor y = at::empty({1024, 1024});
  ops::Weight weight(at::ones({1024, 1024}, at::kBFloat16));
  weight.arithmetic = arithmetic;
  weight.panels = ops::pack(weight);
  return 2.0 * 1024 * 1024 * 1024 / best_of(5, [&] { ops::multiply(x, weight, y); }) / 1e9;
}

double bandwidth() {
  const at::Tensor x = at::ones({1 << 26});
  return 4.0 * (1 << 26) /
         best_of(3, [&] { kernels::sum_of_squares(x.numel(), x.const_data_ptr<float>()); }) / 1e9;
}

// What computes such products; `name`: the instructions of processors that have them.
std::string bfloat16_products(kernels::Bfloat16Products found, const char* name) {
  switch (found) {
    case kernels::Bfloat16Products::kInstructions:
      return name;
    case kernels::Bfloat16Products::kSlower:
      return str("float32, the same bits: this CPU's ", name, " is slower");
    case kernels::Bfloat16Products::kOtherBits:
      return str("float32, as this CPU's ", name, " sums in another order");
    case kernels::Bfloat16Products::kNoInstruction:
      break;
  }
  return str("float32, the same bits: this CPU, system or build has no ", name);
}

// Whether programs can run in a sandbox (the key `sandbox` of rewards and environments).
std::string sandbox() {
  const std::string problem = process::sandbox_problem({.on = true});
  return problem.empty() ? "for programs of rewards and environments" : problem;
}

// Where quantized weights are kept for the next start.
std::string weight_cache() {
  const std::string directory = models::WeightCache::directory();
  if (directory.empty()) return "none (TEMPER_CACHE_DIR is empty, or there is no HOME)";
  return str(directory, ": ", models::WeightCache::total_bytes() / 1'000'000,
             " MB (TEMPER_CACHE_DIR)");
}

// What computes where neither config nor flag says it; empty: `problem` says why TEMPER_BACKEND
// names none, and what follows is measured on native.
std::string default_backend(std::string& problem) {
  const char* variable = std::getenv("TEMPER_BACKEND");
  try {
    const char* name = ops::default_cpu_backend().name();
    return variable && *variable ? str(name, " (TEMPER_BACKEND)") : name;
  } catch (const ConfigError& e) {
    problem = e.what();
    ops::choose_cpu_backend(ops::native_backend());
    return {};
  }
}

// "AVX3, panels of 32 columns; TEMPER_SIMD: avx2 or avx512"
std::string simd() {
  const char* variable = std::getenv("TEMPER_SIMD");
  std::string targets;
  for (const std::string& name : kernels::simd_targets())
    targets += (targets.empty() ? "" : " or ") + name;
  return str(kernels::simd_name(), ", panels of ", kernels::panel_width(), " columns (TEMPER_SIMD",
             variable && *variable ? str("=", variable) : str(": ", targets), ")");
}

// The shortest of a few times, the first of which loads the kernel. `work` gives a tensor whose one
// number is read, which waits for the device.
template <class Work>
double shortest_seconds(Work work) {
  return best_of(4, [&] { work().template item<double>(); });
}

std::string product_speed(at::Device device, at::ScalarType type) {
  const at::Tensor a = at::ones({kSide, kSide}, at::TensorOptions(device).dtype(type));
  const double side = static_cast<double>(kSide),
               seconds = shortest_seconds([&] { return at::mm(a, a)[0][0].to(at::kDouble); });
  return str(static_cast<int64_t>(2 * side * side * side / seconds / 1e9));
}

int64_t reading_speed(at::Device device) {
  const at::Tensor x = at::ones({kReadNumbers}, at::TensorOptions(device).dtype(at::kFloat));
  const double seconds = shortest_seconds([&] { return x.sum().to(at::kDouble); });
  return static_cast<int64_t>(4.0 * static_cast<double>(kReadNumbers) / seconds / 1e9);
}

// Empty: the device's allocator does not say.
std::string free_memory(at::Device device) {
  const auto known = models::memory_of(device);
  if (!known) return {};
  return str(known->free / 1'000'000, " of ", known->all / 1'000'000, " MB free, ");
}

void print_device(std::ostream& out, at::Device device) {
  const at::NoGradGuard no_grad;
  out << "gpu          " << device.str() << ": " << free_memory(device) << "products "
      << product_speed(device, at::kFloat) << " GFLOP/s in float32, "
      << product_speed(device, at::kBFloat16) << " in bfloat16 (" << kSide << " x " << kSide
      << " x " << kSide << "), reading " << reading_speed(device) << " GB/s" << std::endl;
}

// A line for each device of models::device_kinds(): memory, speed of float32 and bfloat16 products,
// bandwidth; "none" and why where there is no GPU.
void print_devices(std::ostream& out) {
  for (const auto& kind : models::device_kinds().list()) {
    if (kind.value.type == at::kCPU) continue;
    int64_t count = 0;
    try {
      count = kind.value.count();
    } catch (const ConfigError& e) {
      out << "gpu          none: " << e.what() << std::endl;
    }
    for (int64_t i = 0; i < count; ++i)
      print_device(out, {kind.value.type, static_cast<at::DeviceIndex>(i)});
  }
}

// Throws ConfigError, once all is printed, where TEMPER_BACKEND names no backend.
void print_machine() {
  std::string problem;
  const std::string backend = default_backend(problem);
  const char* arrow = data::arrow_version();
  std::cout << "cpu          " << cpu_name() << ", " << sysconf(_SC_NPROCESSORS_ONLN) << " cores\n"
            << "simd         " << simd() << "\n"
            << "fast         " << bfloat16_products(kernels::bfloat16_products(), "AVX512-BF16")
            << " (model.arithmetic)\n"
            << "amx          " << bfloat16_products(kernels::matrix_products(), "AMX")
            << " (model.arithmetic)\n"
            << "threads      " << omp_get_max_threads() << " (OMP_NUM_THREADS)\n"
            << "memory       " << usable_memory_bytes() / 1'000'000 << " MB\n"
            << "libtorch     " << TORCH_VERSION << "\n"
            << "backend      " << (problem.empty() ? backend : problem) << "\n"
            << std::flush;
  print_devices(std::cout);
  std::cout << "gemm         " << static_cast<int64_t>(gemm_gflops())
            << " GFLOP/s (float32, 1024 x 1024 x 1024); with bfloat16 "
            << static_cast<int64_t>(bfloat16_gflops(ops::Arithmetic::kFast)) << " (fast), "
            << static_cast<int64_t>(bfloat16_gflops(ops::Arithmetic::kAmx)) << " (amx)\n"
            << "integer      " << kernels::integer_instructions()
            << " (model.arithmetic), beside exact: " << checks::integer_speeds() << "\n"
            << "bandwidth    " << static_cast<int64_t>(bandwidth()) << " GB/s (reading 256 MB)\n"
            << "weight cache " << weight_cache() << "\n"
            << "parquet      "
            << (arrow ? str("read by Arrow ", arrow)
                      : "not read: Arrow's libraries are not here (from pip: "
                        "pip install 'temper-llm[parquet]')")
            << "\nsandbox      " << sandbox() << std::endl;
  check<ConfigError>(problem.empty(), problem);
}

// "host-a (ranks 0, 1), host-b (2, 3)"
std::string hosts_of(const std::vector<std::string>& host_by_rank) {
  std::vector<std::pair<std::string, std::string>> hosts;
  for (size_t rank = 0; rank < host_by_rank.size(); ++rank) {
    const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const auto& host) {
      return host.first == host_by_rank[rank];
    });
    if (known == hosts.end())
      hosts.emplace_back(host_by_rank[rank], str(hosts.empty() ? "ranks " : "", rank));
    else
      known->second += str(", ", rank);
  }
  std::string text;
  for (const auto& [host, ranks] : hosts)
    text += str(text.empty() ? "" : ", ", host, " (", ranks, ")");
  return text;
}

void print_collectives(const std::vector<dist::CollectiveTime>& times) {
  char line[128];
  std::snprintf(line, sizeof line, "%-14s %12s %12s %12s\n", "collective", "bytes", "ms", "GB/s");
  std::cout << line;
  for (const dist::CollectiveTime& time : times) {
    std::snprintf(line, sizeof line, "%-14s %12lld %12.3f %12.3g\n", time.collective.c_str(),
                  static_cast<long long>(time.bytes), time.seconds * 1e3, time.bandwidth() / 1e9);
    std::cout << line;
  }
  std::cout
      << "bytes: of the whole tensor; GB/s: bus bandwidth of a rank, as nccl-tests count it. "
         "That of the largest size goes into `temper check --mesh`: bandwidth= (within a host), "
         "network= (between hosts)\n";
}

class Doctor : public Command {
 public:
  void declare(Flags& f) override;
  int run() override;

 private:
  int64_t ranks_ = 1;
};

void Doctor::declare(Flags& f) {
  f.about(
      "What this machine has and how fast it computes; with several ranks, how fast they exchange "
      "tensors.\n"
      "examples:\n"
      "  temper doctor --nproc 4\n"
      "  torchrun --nnodes 2 --nproc-per-node 4 ... --no-python temper doctor    (on several "
      "hosts)");
  f.add("--nproc", ranks_, "number of ranks on this machine whose collectives are timed",
        between(1, 1e6));
}

int Doctor::run() {
  const int ranks = static_cast<int>(ranks_);
  check_nproc(ranks);
  if (ranks > 1) {
    print_machine();
    return launch_ranks(ranks, {}, "doctor", {});
  }
  end_with_launcher();
  const dist::Environment environment = dist::read_environment();
  if (environment.rank == 0 && !is_launched()) print_machine();
  if (environment.size == 1) return 0;
  dist::MeshSection section;
  section.timeout_minutes = kLongestCollectiveMinutes;
  const dist::Mesh mesh = dist::join(section);
  const std::vector<std::string> hosts = mesh.world->all_gather(dist::host_name());
  const auto times = dist::time_collectives(*mesh.world, kCollectiveBytes, kCollectiveSeconds);
  if (environment.rank > 0) return 0;
  std::cout << "ranks        " << hosts.size() << " over Gloo on " << hosts_of(hosts) << ", "
            << omp_get_max_threads() << " threads each\n";
  print_collectives(times);
  return 0;
}

}  // namespace

std::unique_ptr<Command> doctor_command() { return std::make_unique<Doctor>(); }

}  // namespace temper::cli
