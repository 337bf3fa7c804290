#include "temper/check/memory/activations.h"

#include <omp.h>

#include <algorithm>
#include <bit>

#include "temper/check/memory/memory.h"
#include "temper/ops/backend.h"

namespace temper::checks {

bool is_adapted(const ModelRole& role, const ShapedTensor& t) {
  return t.in_block && std::find(role.adapted.begin(), role.adapted.end(),
                                 t.name.substr(0, t.name.rfind('.'))) != role.adapted.end();
}

namespace {

constexpr int64_t kInt64 = 8;  // bytes

// A linear layer of a block, as this rank has it.
struct Layer {
  int64_t in, out;
  bool columns, adapted;
  bool before_attention;  // of queries, keys or values, or what a state is made of
};

std::vector<Layer> layers_of_block(const ModelRole& role, const Ranks& ranks) {
  std::vector<Layer> layers;
  for (const ShapedTensor& t : role.shape.tensors) {
    if (!t.matrix || t.is(nn::Role::kExpert) || !role.shape.is_in_widest_block(t)) continue;
    const bool mixes_tokens = t.is(nn::Role::kAttention) || t.is(nn::Role::kState);
    layers.push_back({t.shape[1] / (t.has_rows() ? ranks.tensor : 1),
                      t.shape[0] / (t.has_columns() ? ranks.tensor : 1), t.has_columns(),
                      is_adapted(role, t), t.has_columns() && mixes_tokens});
  }
  return layers;
}

// The two layers of an expert, as every block had experts; none: the model is no mixture.
std::vector<Layer> layers_of_expert(const ModelRole& role) {
  std::vector<Layer> layers;
  for (const ShapedTensor& t : role.shape.tensors)
    if (t.matrix && t.is(nn::Role::kExpert) && layers.size() < 2)
      layers.push_back({t.shape[1], t.shape[0], false, is_adapted(role, t)});
  return layers;
}

class Block {
 public:
  Block(const ModelRole& role, const Ranks& ranks, int64_t number_bytes)
      : role_(role),
        m_(role.shape),
        layers_(layers_of_block(role, ranks)),
        of_expert_(layers_of_expert(role)),
        bytes_(number_bytes),
        heads_(m_.heads / ranks.tensor),
        attended_(heads_ * m_.head_dim),
        tensor_(ranks.tensor),
        expert_(ranks.expert) {}

  // What a block keeps of `tokens` rows, of which `read` go on after attention.
  TensorBytes kept(int64_t tokens, int64_t read) const {
    TensorBytes sum;
    const auto add = [&](int64_t rows, int64_t width) { sum.add(bytes_ * rows * width); };
    const int64_t inputs = m_.kept_inputs();
    for (int64_t i = 0; i < inputs; ++i) add(i == 0 ? tokens : read, m_.hidden);
    if (m_.whole_qk_norms() > 0) add(tokens, m_.whole_qk_norms());
    if (m_.convolved > 0) {
      // What a convolution reads or gives beside the layer before it, the state layer's output, and
      // that normalized.
      add(tokens, m_.convolved / tensor_);
      add(tokens, m_.mixed / tensor_);
      if (m_.head_state > 0) add(read, m_.mixed / tensor_);
      if (read < tokens) add(read, m_.mixed / tensor_);
    } else {
      add(tokens, attended_);  // attention's output and log-sum-exp
      add(tokens, heads_);
      if (read < tokens) add(read, attended_);
      // Heads that are put together of their parts, and of attention's output what o_proj reads.
      for (int i = 0; m_.latent && i < 4; ++i) add(tokens, attended_);
    }
    for (const Layer& layer : layers_) {
      const int64_t rows = layer.before_attention ? tokens : read;
      if (layer.columns && !(m_.latent && layer.before_attention)) add(rows, layer.out);
      if (!layer.adapted) continue;
      add(rows, role_.rank);
      if (role_.drops) add(rows, layer.in);
      if (role_.dora) add(rows, role_.drops ? 2 * layer.out : layer.out);
    }
    if (!of_expert_.empty()) {
      add(read, m_.hidden);  // what router and experts read
      add(read, m_.experts);
      for (int i = 0; i < 3; ++i) sum.add(kInt64 * read * m_.experts_per_token);
    }
    for (const Layer& layer : of_expert_) {
      add(expert_rows(read), layer.out);
      if (layer.adapted) add(expert_rows(read), role_.rank);
    }
    return sum;
  }

  // Memory while the widest layer, the gated MLP's, is differentiated: its input and the packed
  // form of that, which the gradient of its weight or of its adapter reads; the gradients of the
  // input, of both halves and of the output; the packed weight and its gradient.
  TensorBytes scratch(int64_t rows) const {
    TensorBytes sum;
    int64_t widest = m_.hidden, largest = 0;
    bool adapted = false;
    for (const Layer& layer : layers_) {
      widest = std::max(widest, layer.in);
      largest = std::max(largest, layer.in * layer.out);
      adapted = adapted || layer.adapted;
    }
    const bool reads_input = role_.trains || adapted;
    for (int i = 0; i < (reads_input ? 5 : 3); ++i) sum.add(bytes_ * rows * widest);
    for (int i = 0; i < 2; ++i) sum.add(bytes_ * rows * m_.hidden);
    const models::Storage& kept = role_.storage;
    const bool quantized =
        (kept.blocks || kept.file) &&
        std::ranges::all_of(role_.shape.tensors, [&](const ShapedTensor& t) {
          return !t.in_block || t.is(nn::Role::kExpert) || ops::is_quantized(format_of(role_, t));
        });
    if (!quantized) sum.add(bytes_ * largest);
    if (role_.trains) sum.add(kFloat * largest);
    // Of experts: input and output of the layer that is differentiated, and their gradients.
    for (const Layer& layer : of_expert_)
      for (int i = 0; i < 2; ++i) sum.add(bytes_ * expert_rows(rows) * (layer.in + layer.out));
    // Each thread has the states at every 32nd token of one head.
    TensorBytes states;
    for (int i = 0; i < omp_get_max_threads() && m_.head_state > 0; ++i)
      states.add(bytes_ * (rows / 32 + 1) * m_.head_state);
    return states.asked > sum.asked ? states : sum;
  }

 private:
  // Rows of this rank's experts, where all experts get as many.
  int64_t expert_rows(int64_t tokens) const {
    return (tokens * m_.experts_per_token + expert_ - 1) / expert_;
  }

  const ModelRole& role_;
  const ModelShape& m_;
  const std::vector<Layer> layers_, of_expert_;
  const int64_t bytes_, heads_, attended_, tensor_, expert_;
};

}  // namespace

int64_t allocated_bytes(int64_t asked) {
  constexpr int64_t kSmallest = 16;
  if (asked <= 4 * kSmallest) return (asked + kSmallest - 1) / kSmallest * kSmallest;
  const int doubling = std::bit_width(static_cast<uint64_t>(asked - 1)) - 1;
  const int64_t step = std::max(kSmallest, int64_t{1} << (doubling - 2));
  return (asked + step - 1) / step * step;
}

namespace {

// Tiles of attention maps that ops/layers/attention_maps.cpp has at once: the student's
// probabilities and their gradient, and the teacher's.
constexpr int64_t kMapNumbers = int64_t{1} << 22, kMapRows = 128;

void add_compared(const ComparedShape& c, const PassShape& pass, int64_t number_bytes,
                  int64_t targets, const ops::Backend& backend, PassMemory& memory) {
  const auto add = [&](const std::vector<int64_t>& widths, TensorBytes& to) {
    for (const int64_t width : widths) to.add(number_bytes * pass.tokens * width);
  };
  add(c.teacher, memory.of_teacher);
  add(c.student, memory.of_student);
  add(c.gradients, memory.gradients);
  add(c.scratch, memory.compared);
  if (c.map_heads > 0) {
    const int64_t rows = std::min(kMapRows, pass.longest);
    memory.compared.add(3 * kFloat * std::min(kMapNumbers, c.map_heads * rows * pass.longest) / 2);
  }
  if (c.teacher_hidden == 0) return;
  // The function holds the teacher's rows as long as its graph lives; of each tile the teacher's
  // logits, the gradient, and the packed columns of the teacher's head.
  memory.of_teacher.add(number_bytes * targets * c.teacher_hidden);
  const ops::HeadTileSize tile = backend.head_tile();
  for (int i = 0; i < 2; ++i) memory.head.add(kFloat * tile.rows * tile.columns);
  memory.head.add(kFloat * tile.columns * c.teacher_hidden);
}

// Compositions of operators hold what the native kernels do not: rows of a layer on their way
// through several elementwise operators and their rounded copies; the exponentials, shifted logits
// and gradients of a tile of the head.
constexpr int kElementwiseRows = 4, kElementwiseTiles = 4;

// Adds it.
void add_composed(const ModelRole& role, const Ranks& ranks, const PassShape& pass,
                  at::Device device, int64_t targets, PassMemory& memory) {
  const ops::Backend& backend = ops::backend_of(device);
  if (&backend == &ops::native_backend()) return;
  const ModelShape& m = role.shape;
  const int64_t widest = m.widest_input() / ranks.tensor;
  TensorBytes rows;
  for (int i = 0; i < kElementwiseRows; ++i) rows.add(kFloat * pass.tokens * widest);
  TensorBytes attention;
  attention.add(backend.attention_scratch(
      attention_of(role, ranks.tensor), {pass.tokens, std::max<int64_t>(pass.longest, 1)}, device));
  for (TensorBytes* scratch : {&memory.scratch, &memory.scratch_of_last}) {
    *scratch += rows;
    // A layer's products and its attention are not computed at once.
    if (attention.asked > scratch->asked) *scratch = attention;
  }
  const ops::HeadTileSize tile = backend.head_tile();
  for (int i = 0; i < kElementwiseTiles; ++i)
    memory.head.add(kFloat * std::min(tile.rows, std::max<int64_t>(targets, 1)) *
                    std::min(tile.columns, m.vocabulary));
}

}  // namespace

ops::AttentionSpec attention_of(const ModelRole& role, int64_t tensor_ranks,
                                ops::CacheDtype cache_dtype) {
  const ModelShape& m = role.shape;
  ops::AttentionSpec spec;
  spec.num_heads = m.heads / tensor_ranks;
  spec.num_kv_heads = m.kv_heads / tensor_ranks;
  spec.head_dim = m.head_dim;
  spec.soft_cap = m.soft_cap;
  spec.cache_dtype = cache_dtype;
  spec.arithmetic = role.storage.arithmetic;
  return spec;
}

PassMemory pass_memory(const ModelRole& role, const Ranks& ranks, int64_t number_bytes,
                       const PassShape& pass, at::Device device, const ComparedShape& compared) {
  const ops::Backend& backend = ops::backend_of(device);
  const Block block(role, ranks, number_bytes);
  const int64_t hidden = role.shape.hidden, tokens = pass.tokens,
                targets = std::min(tokens, pass.targets),
                read = compared.every_token ? tokens : targets;
  PassMemory memory;
  memory.block = block.kept(tokens, tokens);
  memory.last = block.kept(tokens, read);
  memory.input.add(number_bytes * tokens * hidden);
  memory.scratch = block.scratch(tokens);
  memory.scratch_of_last = block.scratch(read);
  for (int i = 0; i < 3; ++i) memory.head.add(number_bytes * targets * hidden);
  const ops::HeadTileSize tile = backend.head_tile();
  memory.head.add(kFloat * tile.rows * tile.columns);
  for (int i = 0; i < 2; ++i) memory.head.add(kFloat * tile.columns * hidden);
  add_compared(compared, pass, number_bytes, targets, backend, memory);
  add_composed(role, ranks, pass, device, targets, memory);
  return memory;
}

}  // namespace temper::checks
