#include "temper/check/memory/run_shape.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "temper/base/error.h"
#include "temper/models/decoder.h"
#include "temper/models/files/directory.h"
#include "temper/models/head.h"
#include "temper/nn/latent_attention.h"
#include "temper/ops/integers.h"

namespace temper::checks {
namespace {

int64_t product(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  return size;
}

// `layer`, or the first one with attention where it has none.
int64_t attending_layer(const models::Backbone& body, int64_t layer) {
  if (body.state_sizes(layer).empty()) return layer;
  for (int64_t i = 0; i < body.config().num_hidden_layers; ++i)
    if (body.state_sizes(i).empty()) return i;
  return layer;
}

void describe_states(models::Backbone& body, int64_t widest, nn::Module& block, ModelShape& shape) {
  for (int64_t i = 0; i < shape.layers; ++i)
    for (const int64_t numbers : body.state_sizes(i)) shape.states += numbers;
  const std::vector<int64_t> sizes = body.state_sizes(widest);
  if (sizes.empty()) return;
  block.visit({.linear =
                   [&](const std::string&, nn::Linear& layer) {
                     const bool last = layer.may_split() == nn::LinearSplit::kRows;
                     if (last && layer.role() == nn::Role::kState) shape.mixed = layer.in();
                   },
               .state_layer =
                   [&](const std::string&, nn::StateLayer& layer) {
                     if (layer.heads() > 0) shape.head_state = sizes.back() / layer.heads();
                   }});
  block.each_parameter([&](const std::string&, nn::Parameter& p) {
    if (p.owner().role() == nn::Role::kState && p.shape().size() == 3)
      shape.convolved = p.shape()[0];
  });
}

// The units of FSDP, and the blocks among them: what is no embedding and no head.
struct Units {
  std::map<const nn::Parameter*, int64_t> of;
  std::vector<std::pair<nn::Module*, int64_t>> blocks;
  int64_t count = 0;
};

Units units_of(nn::Module& model) {
  Units units;
  model.each_module([&](const std::string&, nn::Module& module) {
    if (!module.runs_as_unit()) return;
    module.each_parameter(
        [&](const std::string&, nn::Parameter& p) { units.of.emplace(&p, units.count); });
    if (module.role() == nn::Role::kNone) units.blocks.emplace_back(&module, units.count);
    ++units.count;
  });
  return units;
}

// The index of the layer with the most parameters, the first of several.
size_t widest_layer(const Units& units) {
  std::vector<int64_t> size;
  for (const auto& [block, unit] : units.blocks) {
    size.push_back(0);
    block->each_parameter(
        [&](const std::string&, nn::Parameter& p) { size.back() += product(p.shape()); });
  }
  return static_cast<size_t>(std::max_element(size.begin(), size.end()) - size.begin());
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

int64_t ShapedTensor::size() const { return product(shape); }

int64_t ModelShape::parameters() const {
  int64_t sum = 0;
  for (const ShapedTensor& t : tensors) sum += t.size();
  return sum;
}

int64_t ModelShape::dense_multiplications() const {
  int64_t sum = tied ? vocabulary * hidden : 0;
  for (const ShapedTensor& t : tensors)
    if (t.matrix && !t.is(nn::Role::kExpert) && !t.is(nn::Role::kEmbedding)) sum += t.size();
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

int64_t ModelShape::widest_input() const {
  int64_t widest = hidden;
  for (const ShapedTensor& t : tensors)
    if (is_in_widest_block(t) && t.matrix) widest = std::max(widest, t.shape[1]);
  return widest;
}

int64_t ModelShape::kept_inputs() const {
  int64_t norms = 0;
  for (const ShapedTensor& t : tensors)
    if (is_in_widest_block(t) && t.is(nn::Role::kNorm) && t.around != nn::Role::kAttention)
      norms += t.size() == hidden;
  return norm_before ? norms : norms + 2;
}

int64_t ModelShape::whole_qk_norms() const {
  int64_t width = 0;
  for (const ShapedTensor& t : tensors)
    if (is_in_widest_block(t) && t.is(nn::Role::kNorm) && t.around == nn::Role::kAttention &&
        t.size() > head_dim)
      width += t.size();
  return width;
}

ModelShape shape_of(const models::HfConfig& config, bool scalar_head) {
  std::unique_ptr<nn::Module> model;
  ModelShape shape;
  shape.norm_before = models::family_of(config).config(config).norms.before_mixer != nullptr;
  Units units;
  const auto describe = [&](nn::Module& whole, models::Backbone& body) {
    units = units_of(whole);
    shape.units = units.count;
    const models::ModelConfig& c = body.config();
    shape.layers = c.num_hidden_layers;
    shape.hidden = c.hidden_size;
    shape.vocabulary = c.vocab_size;
    shape.max_positions = c.max_position_embeddings;
    shape.experts = c.experts;
    shape.experts_per_token = c.experts_per_token;
    shape.tied = c.tie_word_embeddings && !scalar_head;
    const size_t widest = widest_layer(units);
    const auto layer = static_cast<int64_t>(widest);
    nn::Module* block = &whole;  // of a body that does not say what its blocks are
    if (!units.blocks.empty()) std::tie(block, shape.widest_block) = units.blocks[widest];
    for (int64_t i = 0; i < shape.layers; ++i)
      if (body.key_layer(i) == i)
        shape.cached.push_back(
            {body.attention_spec(i).num_kv_heads, body.attention_spec(i).head_dim});
    describe_states(body, layer, *block, shape);
    const ops::AttentionSpec attention = body.attention_spec(attending_layer(body, layer));
    shape.heads = attention.num_heads;
    shape.kv_heads = attention.num_kv_heads;
    shape.head_dim = attention.head_dim;
    shape.soft_cap = attention.soft_cap;
  };
  if (scalar_head) {
    auto made = std::make_unique<models::ScalarModel>(models::make_body(config));
    describe(*made, made->body());
    model = std::move(made);
  } else {
    auto made = models::make_model(config);
    describe(*made, made->body());
    model = std::move(made);
  }
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
  model->visit({.attention = [&](const std::string&, nn::Attention& attention) {
    shape.latent = shape.latent || dynamic_cast<nn::LatentAttention*>(&attention);
  }});
  model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    const auto unit = units.of.find(&p);
    const auto matrix = block_matrix.find(&p);
    shape.tensors.push_back({.name = name,
                             .shape = p.shape(),
                             .split = p.divides(),
                             .role = p.owner().role(),
                             .around = p.owner().role_around(),
                             .unit = unit == units.of.end() ? -1 : unit->second,
                             .in_block = matrix != block_matrix.end() && matrix->second,
                             .matrix = matrix != block_matrix.end()});
  });
  return shape;
}

}  // namespace temper::checks
