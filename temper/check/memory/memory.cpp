#include "temper/check/memory/memory.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "temper/base/error.h"
#include "temper/check/memory/sampling_parts.h"
#include "temper/check/memory/traced_pass.h"
#include "temper/check/text.h"
#include "temper/ops/weight.h"
#include "temper/train/offload/disk_state.h"
#include "temper/train/optimizers/update_rule.h"

namespace temper::checks {
namespace {

// Memory that the allocator keeps beside the tensors, as a share of their bytes: jemalloc's was
// measured as 6 to 18 %; that of LibTorch's allocator of a device is an estimate.
constexpr double kAllocator = 0.1;
// Memory of a GPU that a process takes before it has a tensor: CUDA's context and the workspaces of
// cuBLAS. An estimate.
constexpr int64_t kDeviceContext = int64_t{600} << 20;

// The rows of a table of tokens that train beside an adapter.
int64_t trained_rows(const ModelRole& role, const ShapedTensor& t) {
  for (const auto& [module, rows] : role.token_rows)
    if (t.name.ends_with(module + ".weight")) return rows;
  return 0;
}

// The tensors of one adapter, as this rank has them.
std::vector<ShapedTensor> adapter_tensors(const ModelRole& role, const Ranks& ranks) {
  std::vector<ShapedTensor> tensors;
  const auto add = [&](nn::Role of, std::vector<int64_t> shape) {
    tensors.push_back({.name = "adapter", .shape = std::move(shape), .role = of});
  };
  for (const ShapedTensor& t : role.shape.tensors) {
    if (is_saved(role, t)) {
      tensors.push_back(t);
      tensors.back().shape = {divided(t, ranks) / t.shape.back(), t.shape.back()};
    }
    if (const int64_t rows = trained_rows(role, t)) add(t.role, {rows, t.shape[1]});
    if (!is_adapted(role, t)) continue;
    const int64_t in = t.shape[1] / (t.has_rows() ? ranks.tensor : 1),
                  out = t.shape[0] / (t.has_columns() ? ranks.tensor : 1);
    add(t.role, {role.rank, in});
    add(t.role, {out, role.rank});
    if (role.dora) add(t.role, {out});
  }
  // The vocabulary's head, whose weight may be the embedding's.
  if (std::find(role.adapted.begin(), role.adapted.end(), "lm_head") != role.adapted.end()) {
    add(nn::Role::kHead, {role.rank, role.shape.hidden});
    add(nn::Role::kHead, {role.shape.vocabulary, role.rank});
  }
  return tensors;
}

// Bytes of the optimizer's state for a parameter: state tensors of one shape have its own size.
int64_t optimizer_bytes(const train::UpdateRule& rule, const ShapedTensor& t) {
  int64_t bytes = 0;
  for (const train::StateTensor& s : rule.state(t.role, t.shape)) {
    int64_t count = 1;
    for (const int64_t extent : s.shape) count *= extent;
    bytes += count * static_cast<int64_t>(c10::elementSize(s.dtype));
  }
  return bytes;
}

// Of so many bytes of its state, those that are in memory at once where the state is on a disk.
int64_t piece_of(const train::UpdateRule& rule, const ShapedTensor& t, double bytes) {
  const double pieces =
      rule.by_element(t.role, t.shape)
          ? std::max(1.0, static_cast<double>(t.size()) / train::DiskState::kPiece)
          : 1;
  return rounded(bytes / pieces);
}

int64_t two_largest(std::vector<int64_t> values) {
  std::sort(values.rbegin(), values.rend());
  return std::accumulate(values.begin(), values.begin() + std::min<int64_t>(2, std::ssize(values)),
                         int64_t{0});
}

}  // namespace

int64_t divided(const ShapedTensor& t, const Ranks& ranks) {
  if (t.is(nn::Role::kExpert)) return t.size() / ranks.expert;
  return t.split ? t.size() / ranks.tensor : t.size();
}

bool is_adapted(const ModelRole& role, const ShapedTensor& t) {
  return (t.in_block || (t.of_tower && t.matrix)) &&
         std::find(role.adapted.begin(), role.adapted.end(), t.name.substr(0, t.name.rfind('.'))) !=
             role.adapted.end();
}
bool is_saved(const ModelRole& role, const ShapedTensor& t) {
  return std::find(role.saved.begin(), role.saved.end(), t.name) != role.saved.end();
}

ops::WeightFormat format_of(const ModelRole& role, const ShapedTensor& t) {
  const models::Storage& kept = role.storage;
  if (!t.matrix) return ops::WeightFormat::kFloat32;
  if (t.held) return *t.held;
  const ops::WeightFormat blocks = kept.blocks.value_or(kept.weights);
  return t.in_block && (t.is(nn::Role::kExpert) || !ops::row_of(blocks).of_experts) ? blocks
                                                                                    : kept.weights;
}

int64_t MemoryPlan::Phase::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, bytes] : parts) sum += bytes;
  return sum;
}

const MemoryPlan::Phase& MemoryPlan::peak() const {
  return *std::max_element(phases.begin(), phases.end(),
                           [](const Phase& a, const Phase& b) { return a.bytes() < b.bytes(); });
}

ModelBytes model_bytes(const ModelRole& role, const train::OptimizerSection& optimizer,
                       const Ranks& of_run) {
  const Ranks ranks = role.ranks_of(of_run);
  const auto rule = train::optimizers().find(optimizer.name, "optimizer.name").make(optimizer);
  ModelBytes out;
  std::vector<int64_t> unit(static_cast<size_t>(role.shape.units)), trained(unit.size());
  double weights = 0, state = 0;
  for (const ShapedTensor& t : role.shape.tensors) {
    const int64_t size = divided(t, ranks);
    const double bytes =
        static_cast<double>(size) * bytes_of(format_of(role, t), t.matrix ? t.shape.back() : 1);
    const int64_t parts = t.unit >= 0 ? ranks.fsdp : 1;
    // An adapter that trains rows of a table has one of its own, as has each copy of it.
    const int64_t tables = trained_rows(role, t) > 0 ? 1 + role.adapters : 1;
    weights += bytes * static_cast<double>(tables) / static_cast<double>(parts);
    if (t.unit >= 0) unit[static_cast<size_t>(t.unit)] += rounded(bytes);
    if (!role.trains || !t.trains) continue;
    if (t.unit >= 0) trained[static_cast<size_t>(t.unit)] += kFloat * size;
    out.trained += kFloat * size / parts;
    const double of_tensor = static_cast<double>(optimizer_bytes(*rule, t)) *
                             static_cast<double>(size) / static_cast<double>(t.size() * parts);
    state += of_tensor;
    out.largest_piece = std::max(out.largest_piece, piece_of(*rule, t, of_tensor));
  }
  if (role.adapters > 0)
    for (const ShapedTensor& t : adapter_tensors(role, ranks)) {
      const int64_t parts = ranks.fsdp * (t.is(nn::Role::kExpert) ? ranks.expert : 1);
      const int64_t one = kFloat * t.size() / parts;
      weights += static_cast<double>(one * role.adapters);
      out.trained += one * role.trained_copies;
      const double of_tensor =
          static_cast<double>(optimizer_bytes(*rule, t)) / static_cast<double>(parts);
      state += of_tensor * static_cast<double>(role.trained_copies);
      out.largest_piece = std::max(out.largest_piece, piece_of(*rule, t, of_tensor));
    }
  out.weights = rounded(weights);
  out.gradients = out.trained;
  out.optimizer = rounded(state);
  if (!unit.empty()) {
    out.two_units = two_largest(unit);
    out.two_trained = two_largest(trained);
  }
  return out;
}

namespace {

// The memory held in every phase, once the run has begun.
struct Base {
  Parts parts;
  ModelBytes policy;
  int64_t snapshot = 0;  // held while a checkpoint is written, from the first save on
  int64_t on_disk = 0;   // of the optimizer's state
};

// Of what trains of the policy, a copy that stays as it is.
int64_t version_bytes(const RunShape& run, const Ranks& ranks) {
  const ModelBytes own = model_bytes(run.policy, run.optimizer, ranks);
  if (run.policy.trains) return own.trained;
  ModelRole with_copy = run.policy;
  ++with_copy.adapters;
  return model_bytes(with_copy, run.optimizer, ranks).weights - own.weights;
}

Base base_of(const RunShape& run, const Ranks& ranks, int64_t program_bytes) {
  Base base;
  base.policy = model_bytes(run.policy, run.optimizer, ranks);
  base.parts = {{run.device.is_cpu() ? "program" : "context", program_bytes},
                {"weights", base.policy.weights}};
  for (const ModelRole& other : run.others) {
    const ModelBytes bytes = model_bytes(other, run.optimizer, ranks);
    base.parts.emplace_back(other.role, bytes.weights);
    base.policy.gradients += bytes.gradients;
    base.policy.optimizer += bytes.optimizer;
    base.policy.largest_piece = std::max(base.policy.largest_piece, bytes.largest_piece);
  }
  if (run.sampling.versions > 0)
    base.parts.emplace_back("sampler", run.sampling.versions * version_bytes(run, ranks));
  if (run.snapshot && run.device.is_cpu())
    base.snapshot = base.policy.gradients + base.policy.optimizer;
  if (run.offload_optimizer) {
    constexpr int64_t kPiecesInMemory = 3;
    base.on_disk = base.policy.optimizer;
    base.policy.optimizer =
        std::min(base.policy.optimizer, kPiecesInMemory * base.policy.largest_piece);
  }
  return base;
}

// Adds to `on_disk` what the pass has there.
MemoryPlan::Phase training(const RunShape& run, const PassShape& pass, const Ranks& ranks,
                           const Base& base, int64_t& on_disk) {
  MemoryPlan::Phase phase{"train", base.parts};
  const PassPeak peak = traced_pass(run, pass, ranks, base.policy.gradients);
  on_disk = std::max(on_disk, base.on_disk + peak.on_disk);
  phase.parts.emplace_back("gradients", peak.gradients.asked);
  phase.parts.emplace_back("optimizer", base.policy.optimizer);
  if (base.snapshot > 0) phase.parts.emplace_back("snapshot", base.snapshot);
  phase.parts.emplace_back("activations", peak.activations.asked);
  phase.parts.emplace_back("scratch", peak.scratch.asked);
  phase.parts.emplace_back("logits", peak.logits.asked);
  if (ranks.fsdp > 1)
    phase.parts.emplace_back("gathered", base.policy.two_units * run.number_bytes / kFloat +
                                             2 * base.policy.two_trained);
  else if (ranks.product() > 1)
    phase.parts.emplace_back("gathered",
                             std::min<int64_t>(2 * base.policy.gradients, int64_t{3} << 24));
  for (const TensorBytes& part : {peak.activations, peak.scratch, peak.logits, peak.gradients})
    phase.rounding += part.given - part.asked;
  return phase;
}

// The vision tower's pass over an image of a row's length, after the step's passes.
MemoryPlan::Phase tower_pass(const RunShape& run, const Base& base) {
  MemoryPlan::Phase phase{"images", base.parts};
  int64_t longest = 0;
  for (const PassShape& pass : run.largest) longest = std::max(longest, pass.longest);
  phase.parts.emplace_back("gradients", base.policy.gradients);
  phase.parts.emplace_back("optimizer", base.policy.optimizer);
  if (base.snapshot > 0) phase.parts.emplace_back("snapshot", base.snapshot);
  phase.parts.emplace_back("activations", kFloat * longest * run.policy.shape.tower_numbers);
  return phase;
}

// Adds bytes to the parts of their names.
void add_parts(Parts& to, const Parts& parts) {
  for (const auto& [name, bytes] : parts) {
    const auto same = std::ranges::find(to, name, &Parts::value_type::first);
    if (same == to.end())
      to.emplace_back(name, bytes);
    else
      same->second += bytes;
  }
}

// Of the policy, or of a model beside it that samples.
MemoryPlan::Phase sampling(const RunShape& run, const ModelRole& sampler, const Ranks& ranks,
                           const Base& base) {
  MemoryPlan::Phase phase{&sampler == &run.policy ? "sample" : "sample by " + sampler.role,
                          base.parts};
  phase.parts.emplace_back("optimizer", base.policy.optimizer);
  if (base.snapshot > 0) phase.parts.emplace_back("snapshot", base.snapshot);
  add_parts(phase.parts, sampling_parts(run, sampler, ranks));
  return phase;
}

// Where this process samples while it trains, what sampling takes is there in the other phases.
void sample_ahead(const RunShape& run, const Ranks& ranks, MemoryPlan::Phase& phase) {
  phase.name = "sample and " + phase.name;
  add_parts(phase.parts, sampling_parts(run, run.policy, ranks));
}

}  // namespace

std::string parts_of(const MemoryPlan::Phase& phase) {
  Parts parts = phase.parts;
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, bytes] : parts)
    if (bytes > 0)
      text += str(text.empty() ? "" : ", ", name, " ", megabytes(static_cast<double>(bytes)));
  return text;
}

std::string what_takes_less(const RunShape& run) {
  return str(
      run.sampling.versions > 0 ? "rl.max_staleness: 0, " : "",
      "a smaller train.micro_batch_tokens",
      run.sampling.samples ? ", train.batch_size or rollout.cache_bytes" : " or train.batch_size",
      run.recompute ? run.offload_inputs ? ", " : ", train.offload: all, "
                    : ", train.recompute: blocks, ",
      run.snapshot && run.device.is_cpu() ? "train.save_in_background: false, " : "",
      "adapter.method: lora or qlora, or mesh.fsdp");
}

MemoryPlan plan_memory(const RunShape& run, const Ranks& ranks, int64_t on_host) {
  const bool on_device = !run.device.is_cpu();
  const int64_t program_bytes = !on_device ? on_host : run.device.is_cuda() ? kDeviceContext : 0;
  const Base base = base_of(run, ranks, program_bytes);
  MemoryPlan plan;
  MemoryPlan::Phase load{"load", base.parts};
  // Weights that train are copied out of the pages of their file.
  if (run.policy.trains && !on_device) load.parts.emplace_back("file", base.policy.weights);
  plan.phases.push_back(std::move(load));
  const bool ahead = run.sampling.samples && run.sampling.versions > 0;
  for (const ModelRole* sampler : samplers(run))
    if (!ahead || sampler != &run.policy)
      plan.phases.push_back(sampling(run, *sampler, ranks, base));
  const size_t before = plan.phases.size();
  std::optional<MemoryPlan::Phase> largest;
  for (const PassShape& pass : run.largest) {
    MemoryPlan::Phase phase = training(run, pass, ranks, base, plan.on_disk);
    if (!largest || phase.bytes() > largest->bytes()) largest = std::move(phase);
  }
  plan.phases.push_back(largest ? *largest : training(run, {}, ranks, base, plan.on_disk));
  if (run.policy.shape.tower_numbers > 0) plan.phases.push_back(tower_pass(run, base));
  for (size_t i = before; ahead && i < plan.phases.size(); ++i)
    sample_ahead(run, ranks, plan.phases[i]);
  for (MemoryPlan::Phase& phase : plan.phases) {
    phase.parts.emplace_back(
        "allocator", (on_device ? 0 : phase.rounding) +
                         rounded(kAllocator * static_cast<double>(phase.bytes() - program_bytes)));
  }
  return plan;
}

}  // namespace temper::checks
