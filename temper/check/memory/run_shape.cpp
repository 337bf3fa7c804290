#include "temper/check/memory/run_shape.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter_parts.h"
#include "temper/models/files/directory.h"
#include "temper/models/vision/tower.h"
#include "temper/nn/linear.h"
#include "temper/nn/state_layers.h"
#include "temper/ops/backend.h"
#include "temper/ops/integers.h"

namespace temper::checks {
namespace {

int64_t product(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  return size;
}

// By parameter, the unit of FSDP that it is gathered with, and how many units there are.
std::pair<std::map<const nn::Parameter*, int64_t>, int64_t> units_of(nn::Module& model) {
  std::map<const nn::Parameter*, int64_t> unit;
  int64_t count = 0;
  model.each_module([&](const std::string&, nn::Module& module) {
    if (!module.runs_as_unit()) return;
    module.each_parameter([&](const std::string&, nn::Parameter& p) { unit.emplace(&p, count); });
    ++count;
  });
  return {std::move(unit), count};
}

void describe_layers(const models::Backbone& body, ModelShape& shape) {
  for (int64_t i = 0; i < shape.layers; ++i) {
    const ops::AttentionSpec attention = body.attention_spec(i);
    if (body.key_layer(i) == i)
      shape.cached.push_back({attention.num_kv_heads, attention.head_dim});
    const std::vector<int64_t> states = body.state_sizes(i);
    for (const int64_t numbers : states) shape.states += numbers;
    if (states.empty())
      shape.gathered +=
          attention.num_kv_heads * attention.head_dim * (attention.values_in_keys ? 1 : 2);
    if (!states.empty() || attention.num_heads * attention.head_dim <= shape.heads * shape.head_dim)
      continue;
    shape.heads = attention.num_heads;
    shape.kv_heads = attention.num_kv_heads;
    shape.head_dim = attention.head_dim;
  }
}

}  // namespace

void ModelRole::note_held(const std::string& directory) {
  if (!storage.file) return;
  const std::map<std::string, ops::WeightFormat> held = models::held_matrices(directory);
  for (ShapedTensor& t : shape.tensors)
    if (const auto found = held.find(t.name); t.matrix && found != held.end())
      t.held = found->second;
}

std::optional<ops::WeightFormat> ModelRole::most_used_integers() const {
  if (storage.blocks) {
    if (!ops::has_integers(*storage.blocks)) return {};
    return storage.blocks;
  }
  std::map<ops::WeightFormat, int64_t> values;
  for (const ShapedTensor& t : shape.tensors)
    if (t.held && ops::has_integers(*t.held)) values[*t.held] += t.size();
  const auto most =
      std::ranges::max_element(values, {}, &std::pair<const ops::WeightFormat, int64_t>::second);
  if (most == values.end()) return {};
  return most->first;
}

Ranks ModelRole::ranks_of(Ranks ranks) const {
  for (size_t i = 0; i < dist::axes().size(); ++i) {
    const dist::Axis& axis = dist::axes()[i];
    const bool shares = shared_by == SharedBy::kMesh || !axis.divides_model() ||
                        (shared_by == SharedBy::kFsdp && !axis.divides_work());
    if (!shares) ranks[i] = 1;
  }
  return ranks;
}

int64_t ShapedTensor::size() const { return product(shape); }

int64_t ModelShape::parameters() const {
  int64_t sum = 0;
  for (const ShapedTensor& t : tensors) sum += t.size();
  return sum;
}

int64_t ModelShape::dense_multiplications() const {
  int64_t sum = tied ? vocabulary * hidden : 0;
  for (const ShapedTensor& t : tensors)
    if (t.matrix && !t.of_tower && !t.is(nn::Role::kExpert) && !t.is(nn::Role::kEmbedding))
      sum += t.size();
  return sum;
}

int64_t ModelShape::expert_multiplications() const {
  int64_t sum = 0;
  for (const ShapedTensor& t : tensors)
    if (t.matrix && t.is(nn::Role::kExpert)) sum += t.size();
  return experts > 0 ? sum / experts * experts_per_token : 0;
}

int64_t ModelShape::sparse_layers() const {
  std::set<int64_t> blocks;
  for (const ShapedTensor& t : tensors)
    if (t.is(nn::Role::kExpert)) blocks.insert(t.unit);
  return std::ssize(blocks);
}

std::unique_ptr<models::Model> model_of(const models::HfConfig& config, bool scalar_head) {
  if (scalar_head) return std::make_unique<models::ScalarModel>(models::make_body(config));
  return models::make_model(config);
}

bool ModelShape::expands_latents(at::Device device) const {
  return latent && !ops::backend_of(device).batch_invariant();
}

ModelShape shape_of(const models::HfConfig& config, bool scalar_head) {
  const std::unique_ptr<models::Model> model = model_of(config, scalar_head);
  ModelShape shape;
  shape.config = std::make_shared<models::HfConfig>(config);
  shape.scalar = scalar_head;
  const models::ModelConfig& c = model->config();
  shape.layers = c.num_hidden_layers;
  shape.hidden = c.hidden_size;
  shape.vocabulary = c.vocab_size;
  shape.max_positions = c.max_position_embeddings;
  shape.experts = c.experts;
  shape.experts_per_token = c.experts_per_token;
  shape.tied = c.tie_word_embeddings && !scalar_head;
  describe_layers(model->body(), shape);
  model->visit({.state_layer = [&](const std::string&, nn::StateLayer& layer) {
    shape.exchanged += layer.exchanged_width();
  }});
  const auto [units, count] = units_of(*model);
  shape.units = count;
  // true: weight of a linear layer or an embedding
  std::map<const nn::Parameter*, bool> block_matrix;
  model->visit(
      {.linear =
           [&](const std::string&, nn::Linear& layer) {
             block_matrix[&layer.weight] = layer.role() != nn::Role::kHead;
           },
       .lm_head = [&](const std::string&, nn::LmHead& head) { block_matrix[&head.weight] = false; },
       .embedding = [&](const std::string&,
                        nn::Embedding& embedding) { block_matrix[&embedding.weight] = false; }});
  std::set<const nn::Parameter*> absorbed;
  model->visit({.attention = [&](const std::string&, nn::Attention& attention) {
    auto* const latent = dynamic_cast<nn::LatentAttention*>(&attention);
    if (!latent) return;
    shape.latent = latent->latent();
    absorbed.insert(&latent->kv_b_proj.weight);
  }});
  model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    const auto unit = units.find(&p);
    const auto matrix = block_matrix.find(&p);
    shape.tensors.push_back({.name = name,
                             .shape = p.shape(),
                             .split = p.divides(),
                             .role = p.owner().role(),
                             .unit = unit == units.end() ? -1 : unit->second,
                             .in_block = matrix != block_matrix.end() && matrix->second,
                             .matrix = matrix != block_matrix.end(),
                             .absorbed = absorbed.count(&p) > 0});
  });
  return shape;
}

void add_tower(ModelShape& shape, models::Tower& tower, bool taken, double patches) {
  std::set<const nn::Parameter*> matrices;
  tower.visit(
      {.linear = [&](const std::string&, nn::Linear& layer) { matrices.insert(&layer.weight); }});
  // Input and output of each layer whose pass is differentiated; of others the widest two.
  double kept = 0, widest = 0;
  tower.each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (models::is_of_adapter(name)) return;  // ModelRole counts them
    const bool matrix = matrices.contains(&p), trains = taken && p.trainable();
    shape.tensors.push_back({.name = str(models::kTowerParent, ".", name),
                             .shape = p.shape(),
                             .role = p.owner().role(),
                             .matrix = matrix,
                             .of_tower = true,
                             .trains = trains});
    if (!matrix) return;
    const double numbers =
        static_cast<double>(p.shape()[0] + p.shape()[1]) * (tower.is_projector(name) ? 1 : patches);
    widest = std::max(widest, numbers);
    const bool differentiated = taken && (!tower.projector_alone || tower.is_projector(name));
    if (differentiated) kept += numbers;
  });
  shape.tower_numbers = static_cast<int64_t>(kept + 2 * widest);
}

}  // namespace temper::checks
