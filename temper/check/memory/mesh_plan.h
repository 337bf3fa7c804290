// Meshes of a number of devices: what each keeps, what it sends in a step, and how long a step
// takes at least and at most. All formulas of traffic and time are in mesh_plan.cpp; those of
// memory in memory.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temper/check/memory/memory.h"

namespace temper::checks {

// The fields of `--mesh devices=64,memory=80GiB,bandwidth=400GB/s`.
struct Machine {
  int64_t devices = 0;
  int64_t memory = 0;        // bytes of a device
  double bandwidth = 0;      // bytes a second that a device sends within its host; 0: not known
  double network = 0;        // bytes a second to other hosts; 0: as within
  double flops = 0;          // floating-point operations a second of a device; 0: not known
  int64_t per_host = 0;      // devices of one host; 0: at most 8
  int64_t sequence = 0;      // tokens of a row; 0: data.max_length
  int64_t step_tokens = 0;   // tokens of a step, all ranks; 0: train.batch_size rows of that length
  int64_t number_bytes = 4;  // bytes of an activation, and of a weight on the wire
};
// Throws ConfigError that names the key and what it takes.
Machine parse_machine(std::string_view text);

struct MeshCost {
  Ranks ranks;
  MemoryPlan memory;
  bool fits = false;
  dist::PerAxis<double, 0> sent_bytes;  // that a rank sends in a step
  // Seconds; none where the machine's speed is not known. Overlapped: compute and FSDP's traffic at
  // the same time, as they are where the next unit is prefetched; in turn: one after the other.
  std::optional<double> compute, communication, overlapped, in_turn;
  double sent() const;
};

// The traffic and the compute of a rank in a step.
MeshCost cost_of(const RunShape& run, const Ranks& ranks, const Machine& machine,
                 int64_t program_bytes);
// Every mesh of so many devices that the model divides by, the fastest first, then those that send
// least; those that do not fit the memory last.
std::vector<MeshCost> plan_meshes(const RunShape& run, const Machine& machine,
                                  int64_t program_bytes);

// Floating-point operations of a step's tokens, of all ranks: each of so many ranks that divide the
// experts computes what no expert does.
double step_flops(const RunShape& run, double tokens, double sequence, int64_t expert_ranks = 1);

}  // namespace temper::checks
