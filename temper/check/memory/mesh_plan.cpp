#include "temper/check/memory/mesh_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include "temper/base/config/config.h"
#include "temper/base/error.h"
#include "temper/base/memory.h"

namespace temper::checks {
namespace {

// A ring of R ranks (or their direct exchange) sends this share of a buffer from each, in a gather
// and in a reduce-scatter; a sum is both.
double share(int64_t ranks) { return static_cast<double>(ranks - 1) / static_cast<double>(ranks); }

double as_double(int64_t x) { return static_cast<double>(x); }

// Bytes of the weights that FSDP gathers in a forward pass, of this tensor rank: a tied embedding
// is gathered for the head as well.
double gathered_bytes(const RunShape& run, const Ranks& ranks, const Machine& machine) {
  double bytes = 0;
  for (const ShapedTensor& t : run.policy.shape.tensors) {
    if (t.unit < 0) continue;
    const ops::WeightFormat format = format_of(run.policy, t);
    const double width = ops::row_of(format).trains ? as_double(machine.number_bytes)
                                                    : bytes_of(format, t.shape.back());
    const bool twice = run.policy.shape.tied && t.is(nn::Role::kEmbedding);
    const int64_t parts = t.is(nn::Role::kExpert) ? ranks.expert : t.split ? ranks.tensor : 1;
    bytes += (twice ? 2 : 1) * width * as_double(t.size()) / as_double(parts);
  }
  return bytes;
}

}  // namespace

// Kaplan et al., arXiv 2001.08361, section 2.1: 2 operations a weight and token forward, 4
// backward; a frozen weight has no gradient of its own: 2. Attention: 4 a key and query of the
// width of all heads forward, twice that backward, over half the keys, which are those before.
// Recomputation runs the forward pass once more.
double step_flops(const RunShape& run, double tokens, double sequence, int64_t expert_ranks) {
  const ModelShape& m = run.policy.shape;
  const double weights =
      as_double(m.dense_multiplications() * expert_ranks + m.expert_multiplications());
  const int64_t width = m.expands_latents(run.device) ? m.latent->head_dim() : m.head_dim;
  const double attention = 4 * as_double(m.layers * m.heads * width * expert_ranks) * sequence / 2;
  const double forward = 2 * weights + attention,
               backward = (run.policy.trains ? 4 : 2) * weights + 2 * attention;
  return tokens * (forward + backward + (run.recompute ? forward : 0));
}

double MeshCost::sent() const {
  double sum = 0;
  for (size_t i = 0; i < dist::axes().size(); ++i) sum += sent_bytes[i];
  return sum;
}

MeshCost cost_of(const RunShape& given, const Ranks& ranks, const Machine& machine,
                 int64_t program_bytes) {
  RunShape run = given;
  run.number_bytes = machine.number_bytes;
  const double sequence = as_double(std::max<int64_t>(machine.sequence, 1));
  const double tokens = as_double(std::max<int64_t>(machine.step_tokens, 1));
  const double of_rank = tokens / as_double(ranks.product(&dist::Axis::own_rows));
  const int64_t in_pass = run.largest.empty() ? machine.sequence : run.largest.front().tokens;
  const double passes =
      std::max(1.0, std::ceil(of_rank / as_double(std::max<int64_t>(in_pass, 1))));
  run.passes = static_cast<int64_t>(passes);
  // A rank has no more tokens than the step gives it.
  for (PassShape& pass : run.largest) {
    pass.tokens =
        std::min(pass.tokens, std::max<int64_t>(machine.sequence, static_cast<int64_t>(of_rank)));
    pass.targets = std::min(pass.targets, pass.tokens);
  }
  if (passes == 1) std::erase_if(run.largest, [](const PassShape& pass) { return !pass.first; });
  MeshCost cost{.ranks = ranks, .memory = plan_memory(run, ranks, program_bytes)};
  cost.fits = cost.memory.peak_bytes() <= machine.memory;
  const ModelBytes own =
      model_bytes(run.policy, run.optimizer, {1, 1, 1, ranks.tensor, ranks.expert});
  const double gradients = as_double(own.gradients);
  // A tied embedding has two gradients a pass, one of its rows and one of the head's.
  const ModelShape& m = run.policy.shape;
  const double second =
      run.policy.trains && m.tied ? 4 * as_double(m.vocabulary * m.hidden / ranks.tensor) : 0;
  // ZeRO (Rajbhandari et al., arXiv 1910.02054), section 7.2: data parallelism sums gradients, a
  // reduce-scatter and a gather of 2 Ψ; stage 3 gathers the weights forward and backward and
  // reduce-scatters the gradients, 3 Ψ. Once a pass where gradients accumulate.
  const auto summed = [&](int64_t of) { return 2 * share(of) * gradients / as_double(ranks.fsdp); };
  cost.sent_bytes.data = summed(ranks.data);
  // Keys and values are gathered forward, their gradients summed backward; once more gathered with
  // recomputation. The gradients are sums over these ranks as well.
  cost.sent_bytes.context =
      summed(ranks.data * ranks.context) - summed(ranks.data) +
      share(ranks.context) * (run.recompute ? 3 : 2) * of_rank *
          (as_double(m.gathered) + as_double(m.exchanged) / as_double(ranks.context)) *
          as_double(machine.number_bytes) / as_double(ranks.tensor);
  cost.sent_bytes.fsdp =
      passes * share(ranks.fsdp) * (2 * gathered_bytes(run, ranks, machine) + gradients + second);
  // Megatron-LM (Shoeybi et al., arXiv 1909.08053), section 3: of each block two sums of [tokens,
  // hidden] forward and two backward; one more pair with recomputation. The embedding sums forward,
  // the vocabulary head backward.
  const double sums = as_double(m.layers) * (run.recompute ? 6 : 4) + 2;
  cost.sent_bytes.tensor =
      2 * share(ranks.tensor) * sums * of_rank * as_double(m.hidden * machine.number_bytes);
  // The chains of sums over experts, of [tokens, hidden]: each rank hands one on, and the last one
  // sends it to all; forward and backward, and forward once more with recomputation.
  const double chains = as_double(m.sparse_layers()) * (run.recompute ? 3 : 2) * of_rank *
                        as_double(m.hidden * machine.number_bytes);
  cost.sent_bytes.expert = 2 * share(ranks.expert) * chains;
  const int64_t per_host =
      machine.per_host > 0 ? machine.per_host : std::min<int64_t>(machine.devices, 8);
  // Neighbours share a host: tensor ranks first, then context, fsdp and data (dist/config.h).
  const auto seconds = [&](double bytes, int64_t span) {
    const bool within = span <= per_host || machine.network == 0;
    return bytes / (within ? machine.bandwidth : machine.network);
  };
  if (machine.flops > 0)
    cost.compute = step_flops(run, tokens, sequence, ranks.expert) /
                   (machine.flops * as_double(ranks.product()));
  if (machine.bandwidth > 0) {
    // One after the other: the ranks' turns, and as many steps as a broadcast takes.
    const double turns =
        ranks.expert == 1 ? 0 : as_double(ranks.expert - 1) + std::ceil(std::log2(ranks.expert));
    const double tensor =
        seconds(cost.sent_bytes.tensor, ranks.tensor) + seconds(turns * chains, ranks.expert);
    const int64_t context_span = ranks.tensor * ranks.expert * ranks.context;
    const double context = seconds(cost.sent_bytes.context, context_span),
                 fsdp = seconds(cost.sent_bytes.fsdp, context_span * ranks.fsdp),
                 data = seconds(cost.sent_bytes.data, ranks.product());
    cost.communication = tensor + context + fsdp + data;
    if (cost.compute) {
      // Sums over ranks that compute the same rows stand in the way of what follows them; those of
      // the data axis come after the last pass.
      cost.overlapped = std::max(*cost.compute + tensor + context, fsdp) + data;
      cost.in_turn = *cost.compute + *cost.communication;
    }
  }
  return cost;
}

namespace {

// Tokens of a row below which it is not planned to be divided further (mesh.context).
constexpr int64_t kLeastOfRow = 2048;

bool divides(const ModelShape& m, int64_t tensor) {
  if (tensor == 1) return true;
  if (m.heads % tensor != 0 || (!m.latent && m.kv_heads % tensor != 0)) return false;
  return std::all_of(m.tensors.begin(), m.tensors.end(), [&](const ShapedTensor& t) {
    return !t.split || t.shape[static_cast<size_t>(*t.split)] % tensor == 0;
  });
}

}  // namespace

std::vector<MeshCost> plan_meshes(const RunShape& run, const Machine& machine,
                                  int64_t program_bytes) {
  std::vector<MeshCost> costs;
  const auto& blocks = run.policy.storage.blocks;
  const bool quantized = (blocks && ops::is_quantized(*blocks)) ||
                         std::ranges::any_of(run.policy.shape.tensors, [](const ShapedTensor& t) {
                           return t.held.has_value();
                         });
  const auto add = [&](int64_t tensor, int64_t expert) {
    const int64_t others = machine.devices / (tensor * expert);
    const int64_t most = std::clamp<int64_t>(machine.sequence / kLeastOfRow, 1, others);
    for (int64_t context = 1; context <= most; ++context)
      for (int64_t fsdp = 1; others % context == 0 && fsdp <= others / context; ++fsdp)
        if (others / context % fsdp == 0)
          costs.push_back(cost_of(run, {others / context / fsdp, fsdp, context, tensor, expert},
                                  machine, program_bytes));
  };
  const auto add_divided = [&](int64_t tensor, int64_t expert) {
    try {
      add(tensor, expert);
    } catch (const ConfigError&) {  // of a layer that ranks do not divide
    }
  };
  const int64_t experts = run.policy.shape.experts;
  for (int64_t same_rows = 1; same_rows <= machine.devices; ++same_rows) {
    if (machine.devices % same_rows != 0) continue;
    const bool whole = same_rows == 1;
    if (whole)
      add(1, 1);
    else if (divides(run.policy.shape, same_rows) && !quantized)
      add_divided(same_rows, 1);
    if (!whole && experts > 0 && experts % same_rows == 0) add_divided(1, same_rows);
  }
  const auto key = [](const MeshCost& c) {
    return std::pair(!c.fits, c.overlapped.value_or(c.sent()));
  };
  std::stable_sort(costs.begin(), costs.end(),
                   [&](const MeshCost& a, const MeshCost& b) { return key(a) < key(b); });
  return costs;
}

namespace {

const std::map<std::string, double, std::less<>> kUnits{
    {"", 1},         {"k", 1e3},        {"M", 1e6},        {"G", 1e9},          {"T", 1e12},
    {"P", 1e15},     {"kB", 1e3},       {"MB", 1e6},       {"GB", 1e9},         {"TB", 1e12},
    {"KiB", 1024.0}, {"MiB", 1048576.}, {"GiB", 0x1p30},   {"TiB", 0x1p40},     {"MB/s", 1e6},
    {"GB/s", 1e9},   {"TB/s", 1e12},    {"GiB/s", 0x1p30}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8},
    {"GFLOPS", 1e9}, {"TFLOPS", 1e12},  {"PFLOPS", 1e15}};

double number_of(std::string_view key, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto unit = kUnits.find(text.substr(static_cast<size_t>(end - text.data())));
  check<ConfigError>(error == std::errc() && unit != kUnits.end() && value > 0 &&
                         std::isfinite(value) && value * unit->second < 1e18,
                     "--mesh: ", key, ": found `", text,
                     "`, expected a number above 0, perhaps with a unit such as 80GiB, 400GB/s, "
                     "200Gbit/s or 312TFLOPS");
  return value * unit->second;
}

}  // namespace

Machine parse_machine(std::string_view text) {
  Machine m;
  m.memory = usable_memory_bytes();
  const auto whole = [](int64_t& into) {
    return [&into](double value) { into = static_cast<int64_t>(value); };
  };
  const auto real = [](double& into) { return [&into](double value) { into = value; }; };
  const std::map<std::string, std::function<void(double)>, std::less<>> keys{
      {"devices", whole(m.devices)},    {"memory", whole(m.memory)},
      {"bandwidth", real(m.bandwidth)}, {"network", real(m.network)},
      {"flops", real(m.flops)},         {"per_host", whole(m.per_host)},
      {"sequence", whole(m.sequence)},  {"tokens", whole(m.step_tokens)},
      {"bytes", whole(m.number_bytes)}};
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
    const size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    const auto found = keys.find(key);
    if (found == keys.end() || equals == std::string_view::npos) {
      std::vector<std::string> names;
      std::string list;
      for (const auto& [name, set] : keys) {
        names.push_back(name);
        list += (list.empty() ? "" : ", ") + name;
      }
      throw ConfigError(str("--mesh: found `", item, "`, expected KEY=NUMBER of ", list,
                            did_you_mean(key, names)));
    }
    found->second(number_of(key, item.substr(equals + 1)));
  }
  check<ConfigError>(m.devices >= 1 && m.devices <= 1'000'000,
                     "--mesh: expected devices=N, from 1 to 1000000; for example "
                     "--mesh devices=8,memory=80GiB,bandwidth=400GB/s,flops=400TFLOPS");
  const auto check_unit = [](const char* key, double value, double least, const char* example) {
    check<ConfigError>(value == 0 || value >= least, "--mesh: ", key, ": found ", value,
                       ", which is too small: is its unit missing? Expected for example ", example);
  };
  check_unit("memory", static_cast<double>(m.memory), 1 << 20, "80GiB");
  check_unit("bandwidth", m.bandwidth, 1e3, "400GB/s");
  check_unit("network", m.network, 1e3, "50GB/s");
  check_unit("flops", m.flops, 1e6, "312TFLOPS");
  check<ConfigError>(m.memory > 0, "--mesh: memory: found less than a byte");
  check<ConfigError>(m.number_bytes >= 1 && m.number_bytes <= 8,
                     "--mesh: bytes: expected 1 to 8, of an activation");
  return m;
}

}  // namespace temper::checks
