#include "temper/check/memory/model_shape.h"

#include <algorithm>
#include <map>

#include "temper/base/error.h"
#include "temper/models/head.h"
#include "temper/nn/latent_attention.h"

namespace temper::checks {
namespace {

bool is_of_attention(const ShapedTensor& t) {
  return t.name.find(".self_attn.") != std::string::npos;
}
bool is_norm(const ShapedTensor& t) {
  return !t.matrix && t.name.find("norm") != std::string::npos;
}

int64_t product(const std::vector<int64_t>& shape) {
  int64_t size = 1;
  for (const int64_t extent : shape) size *= extent;
  return size;
}

// The index of the layer with the most parameters, the first of several.
int64_t widest_layer(models::Backbone& body) {
  std::vector<int64_t> size(static_cast<size_t>(body.config().num_hidden_layers), 0);
  body.each_parameter([&](const std::string& name, nn::Parameter& p) {
    const std::string prefix = "layers.";
    if (!name.starts_with(prefix)) return;
    size[static_cast<size_t>(std::stoll(name.substr(prefix.size())))] += product(p.shape());
  });
  return std::max_element(size.begin(), size.end()) - size.begin();
}

// `layer`, or the first one with attention where it has none.
int64_t attending_layer(const models::Backbone& body, int64_t layer) {
  if (body.state_sizes(layer).empty()) return layer;
  for (int64_t i = 0; i < body.config().num_hidden_layers; ++i)
    if (body.state_sizes(i).empty()) return i;
  return layer;
}

void describe_states(models::Backbone& body, int64_t widest, ModelShape& shape) {
  for (int64_t i = 0; i < shape.layers; ++i)
    for (const int64_t numbers : body.state_sizes(i)) shape.states += numbers;
  const std::vector<int64_t> sizes = body.state_sizes(widest);
  if (sizes.empty()) return;
  int64_t heads = 0;
  const std::string block = str("layers.", widest, ".");
  body.each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (!name.starts_with(block)) return;
    if (p.shape().size() == 3) shape.convolved = p.shape()[0];
    if (name.ends_with(".out_proj.weight")) shape.mixed = p.shape()[1];
    if (name.ends_with(".A_log")) heads = p.shape()[0];
  });
  if (heads > 0) shape.head_state = sizes.back() / heads;
}

}  // namespace

int64_t ShapedTensor::size() const { return product(shape); }

bool ModelShape::is_in_widest_block(const ShapedTensor& t) const {
  return t.name.find(widest_block) != std::string::npos;
}

int64_t ModelShape::parameters() const {
  int64_t sum = 0;
  for (const ShapedTensor& t : tensors) sum += t.size();
  return sum;
}

int64_t ModelShape::dense_multiplications() const {
  int64_t sum = tied ? vocabulary * hidden : 0;
  for (const ShapedTensor& t : tensors)
    if (t.matrix && !t.of_expert() && t.name.find("embed_tokens") == std::string::npos)
      sum += t.size();
  return sum;
}

int64_t ModelShape::expert_multiplications() const {
  int64_t sum = 0;
  for (const ShapedTensor& t : tensors)
    if (t.matrix && t.of_expert()) sum += t.size();
  return experts > 0 ? sum / experts * experts_per_token : 0;
}

int64_t ModelShape::sparse_layers() const {
  return std::count_if(tensors.begin(), tensors.end(), [](const ShapedTensor& t) {
    return t.name.ends_with(".experts.0.down_proj.weight");
  });
}

int64_t ModelShape::column_outputs() const {
  int64_t sum = 0;
  for (const ShapedTensor& t : tensors)
    if (is_in_widest_block(t) && t.matrix && t.split == models::Split::kColumns) sum += t.shape[0];
  return sum;
}

int64_t ModelShape::row_inputs() const {
  int64_t sum = 0;
  for (const ShapedTensor& t : tensors)
    if (is_in_widest_block(t) && t.matrix && t.split == models::Split::kRows) sum += t.shape[1];
  return sum;
}

int64_t ModelShape::widest_input() const {
  int64_t widest = hidden;
  for (const ShapedTensor& t : tensors)
    if (is_in_widest_block(t) && t.matrix) widest = std::max(widest, t.shape[1]);
  return widest;
}

int64_t ModelShape::kept_inputs() const {
  int64_t norms = 0;
  bool before = false;
  for (const ShapedTensor& t : tensors) {
    if (!is_in_widest_block(t) || !is_norm(t) || is_of_attention(t)) continue;
    norms += t.size() == hidden;
    before = before || t.name.find(".input_layernorm.") != std::string::npos ||
             t.name.find(".operator_norm.") != std::string::npos;
  }
  return before ? norms : norms + 2;
}

int64_t ModelShape::whole_qk_norms() const {
  int64_t width = 0;
  for (const ShapedTensor& t : tensors)
    if (is_in_widest_block(t) && is_norm(t) && is_of_attention(t) && t.size() > head_dim)
      width += t.size();
  return width;
}

ModelShape shape_of(const models::HfConfig& config, bool scalar_head) {
  const models::Family& family = models::family_of(config);
  std::unique_ptr<nn::Module> model;
  ModelShape shape;
  const auto describe = [&](models::Backbone& body) {
    const models::ModelConfig& c = body.config();
    shape.layers = c.num_hidden_layers;
    shape.hidden = c.hidden_size;
    shape.vocabulary = c.vocab_size;
    shape.max_positions = c.max_position_embeddings;
    shape.experts = c.experts;
    shape.experts_per_token = c.experts_per_token;
    shape.tied = c.tie_word_embeddings && !scalar_head;
    const int64_t layer = widest_layer(body);
    shape.widest_block = str(".layers.", layer, ".");
    for (int64_t i = 0; i < shape.layers; ++i)
      if (body.key_layer(i) == i)
        shape.cached.push_back(
            {body.attention_spec(i).num_kv_heads, body.attention_spec(i).head_dim});
    describe_states(body, layer, shape);
    const ops::AttentionSpec attention = body.attention_spec(attending_layer(body, layer));
    shape.heads = attention.num_heads;
    shape.kv_heads = attention.num_kv_heads;
    shape.head_dim = attention.head_dim;
    shape.soft_cap = attention.soft_cap;
  };
  if (scalar_head) {
    auto made = std::make_unique<models::ScalarModel>(models::make_body(config));
    describe(made->body());
    model = std::move(made);
  } else {
    auto made = models::make_model(config);
    describe(made->body());
    model = std::move(made);
  }
  std::map<const nn::Parameter*, int64_t> unit_of;
  // true: weight of a linear layer or an embedding
  std::map<const nn::Parameter*, bool> block_matrix;
  model->each_module([&](const std::string&, nn::Module& module) {
    if (module.runs_as_unit()) {
      module.each_parameter(
          [&](const std::string&, nn::Parameter& p) { unit_of.emplace(&p, shape.units); });
      ++shape.units;
    }
  });
  model->visit(
      {.linear =
           [&](const std::string& path, nn::Linear& layer) {
             block_matrix[&layer.weight] = path != models::kScorePath;
           },
       .lm_head = [&](const std::string&, nn::LmHead& head) { block_matrix[&head.weight] = false; },
       .embedding = [&](const std::string&,
                        nn::Embedding& embedding) { block_matrix[&embedding.weight] = false; }});
  model->visit({.attention = [&](const std::string&, nn::Attention& attention) {
    shape.latent = shape.latent || dynamic_cast<nn::LatentAttention*>(&attention);
  }});
  model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    const auto unit = unit_of.find(&p);
    const auto matrix = block_matrix.find(&p);
    shape.tensors.push_back({.name = name,
                             .shape = p.shape(),
                             .split = models::split_of(family, name),
                             .unit = unit == unit_of.end() ? -1 : unit->second,
                             .in_block = matrix != block_matrix.end() && matrix->second,
                             .matrix = matrix != block_matrix.end()});
  });
  return shape;
}

}  // namespace temper::checks
