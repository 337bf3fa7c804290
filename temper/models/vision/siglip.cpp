#include "temper/models/vision/siglip.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/models/config_values.h"
#include "temper/ops/layers/embedding.h"

namespace temper::models {

SiglipConfig::SiglipConfig(const HfConfig& c, int64_t usual_image_size) {
  constexpr int64_t kMostWidth = 1 << 20;
  hidden_size = c.integer("hidden_size", 768, kMostWidth);
  intermediate_size = c.integer("intermediate_size", 3072, kMostWidth);
  num_layers = c.integer("num_hidden_layers", 12, 1000);
  num_heads = c.integer("num_attention_heads", 12, hidden_size);
  patch_size = c.integer("patch_size", 16, 1024);
  channels = c.integer("num_channels", 3, 64);
  image_size = c.integer("image_size", usual_image_size, 1 << 16);
  norm_eps = number_from(c, "layer_norm_eps", 0, 1e-6);
  activation = c.activation("hidden_act", "gelu_pytorch_tanh");
  if (hidden_size % num_heads != 0)
    c.fail("num_attention_heads", str(num_heads, " heads of ", hidden_size, " features"));
  if (image_size < patch_size)
    c.fail("image_size", str("found ", image_size, ", and a patch has ", patch_size));
}

struct SiglipMlp : nn::Module {
  SiglipMlp(nn::Module& parent, const SiglipConfig& c)
      : Module(parent, "mlp"),
        layers(*this, {"fc1", "fc2"}, c.hidden_size, c.intermediate_size, c.hidden_size,
               c.activation) {
    set_role(nn::Role::kMlp);
  }
  TwoLayers layers;
};

class SiglipLayer : public nn::Module {
 public:
  SiglipLayer(nn::Module& parent, std::string name, const SiglipConfig& c)
      : Module(parent, std::move(name)),
        norm1_(*this, "layer_norm1", c.hidden_size, c.norm_eps),
        attention_(*this, "self_attn",
                   {.hidden_size = c.hidden_size,
                    .num_heads = c.num_heads,
                    .head_dim = c.hidden_size / c.num_heads}),
        norm2_(*this, "layer_norm2", c.hidden_size, c.norm_eps),
        mlp_(*this, c) {}
  at::Tensor forward(const at::Tensor& x, const nn::Context& context) {
    const at::Tensor h = ops::add_scaled(x, attention_.forward(norm1_.forward(x), context, {}));
    return ops::add_scaled(h, mlp_.layers.forward(norm2_.forward(h), context));
  }

 private:
  LayerNorm norm1_;
  TowerAttention attention_;
  LayerNorm norm2_;
  SiglipMlp mlp_;
};

struct SiglipTower::Parts {
  struct Embeddings : nn::Module {
    Embeddings(nn::Module& parent, const SiglipConfig& c, int64_t positions)
        : Module(parent, "embeddings"),
          patch(*this, "patch_embedding", c.patch_width(), c.hidden_size, true, 0.02),
          position(*this, "position_embedding", positions, c.hidden_size) {}
    nn::Linear patch;
    PositionTable position;
  };
  struct Layers : nn::Module {
    Layers(nn::Module& parent, const SiglipConfig& c)
        : Module(parent, "encoder"), list(*this, "layers") {
      for (int64_t i = 0; i < c.num_layers; ++i) list.emplace(c);
    }
    nn::ModuleList<SiglipLayer> list;
  };
  Parts(nn::Module& parent, const SiglipConfig& c, int64_t positions)
      : embeddings(parent, c, positions),
        encoder(parent, c),
        post_norm(parent, "post_layernorm", c.hidden_size, c.norm_eps) {}
  Embeddings embeddings;
  Layers encoder;
  LayerNorm post_norm;
};

SiglipTower::SiglipTower(nn::Module& parent, std::string name, const SiglipConfig& config,
                         int64_t positions)
    : Module(parent, std::move(name)), parts_(std::make_unique<Parts>(*this, config, positions)) {}

SiglipTower::~SiglipTower() = default;

at::Tensor SiglipTower::forward(const at::Tensor& patches, const at::Tensor& position,
                                const std::vector<int64_t>& tiles, int adapter) {
  const nn::Context context{.forest = all_open(tiles), .adapter = adapter};
  at::Tensor x = ops::add_scaled(parts_->embeddings.patch.forward(patches, context), position);
  for (auto& layer : parts_->encoder.list) x = layer->forward(x, context);
  return parts_->post_norm.forward(x);
}

at::Tensor SiglipTower::square_tiles(const at::Tensor& patches, const SiglipConfig& config,
                                     const std::vector<int64_t>& place, int adapter) {
  const int64_t of_tile = std::ssize(place);
  check<DataError>(patches.defined() && patches.dim() == 2 && patches.scalar_type() == at::kFloat &&
                       patches.size(0) > 0 && patches.size(0) % of_tile == 0 &&
                       patches.size(1) == config.patch_width(),
                   "an image's pixels of another form, expected [tiles · ", of_tile, ", ",
                   config.patch_width(), "] float32");
  const int64_t count = patches.size(0) / of_tile;
  std::vector<int64_t> ids;
  for (int64_t tile = 0; tile < count; ++tile) ids.insert(ids.end(), place.begin(), place.end());
  return forward(patches.to(device()), ops::embedding(positions().value(), ids),
                 std::vector<int64_t>(static_cast<size_t>(count), of_tile), adapter);
}

const nn::Parameter& SiglipTower::positions() const { return parts_->embeddings.position.weight; }

at::Device SiglipTower::device() const { return positions().device(); }

at::Tensor merged_cells(const at::Tensor& x, int64_t tiles, int64_t rows, int64_t columns,
                        int64_t s) {
  std::vector<int64_t> order;
  for (int64_t tile = 0; tile < tiles; ++tile)
    for (int64_t r = 0; r + s <= rows; r += s)
      for (int64_t c = 0; c + s <= columns; c += s)
        for (int64_t i = 0; i < s * s; ++i)
          order.push_back((tile * rows + r + i / s) * columns + c + i % s);
  return ops::select_rows(x, order).view({-1, s * s * x.size(1)});
}

}  // namespace temper::models
