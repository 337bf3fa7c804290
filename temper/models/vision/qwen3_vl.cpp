// The tower of Qwen3-VL (arXiv 2511.21631) and, without the deep features, of Qwen 3.5. Patches
// come by merged cell: its four, then the next cell's.
//   x = patch_embed.proj(patch) + positions(row, column)   a learned table, read between its points
//   h = x + attn.proj(attend(rotate(qkv(norm1 x))))        both ways, over the image; half of a
//   y = h + mlp.linear_fc2(gelu(mlp.linear_fc1(norm2 h)))  head rotates by row, half by column
//   rows = merger.linear_fc2(gelu(merger.linear_fc1(norm y, of a cell's patches side by side)))
//   deep = the same after some blocks, with the norm over a cell's patches at once
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "temper/models/vision/patches.h"

namespace temper::models {
namespace {

constexpr double kQwenEps = 1e-6;

struct Qwen3VlConfig : QwenVisionConfig {
  explicit Qwen3VlConfig(const VisionConfig& config)
      : QwenVisionConfig(config, 16, 1152, 4304, 27, "gelu_pytorch_tanh") {
    const int64_t places = config.vision.integer("num_position_embeddings", 2304, 1 << 20);
    side = static_cast<int64_t>(std::sqrt(static_cast<double>(places)));
    if (config.whole.model_type() == "qwen3_vl")
      deep_layers = listed_layers(config.vision, "deepstack_visual_indexes", depth, {8, 16, 24});
  }

  int64_t side;  // of the table of positions
  std::vector<int64_t> deep_layers;
};

// A side of the table resampled to `size` points, ends on ends, in float32 as transformers does: of
// point i the two points of the table around it, and their shares.
struct Between {
  int64_t first, second;
  float of_first, of_second;
};
Between between(int64_t i, int64_t size, int64_t side) {
  const float at = static_cast<float>(i) * static_cast<float>(side - 1) /
                   static_cast<float>(std::max<int64_t>(size - 1, 1));
  const float floor = std::floor(at);
  const auto share = [&](float offset) {
    return std::max(0.0F, 1 - std::abs(at - floor - offset));
  };
  const auto first = static_cast<int64_t>(floor);
  return {std::min(first, side - 1), std::min(first + 1, side - 1), share(0), share(1)};
}

std::vector<PositionTable::Tap> taps_of(const PatchPlaces& places, int64_t side) {
  std::vector<PositionTable::Tap> taps(4);
  for (size_t i = 0; i < places.row.size(); ++i) {
    const Between r = between(places.row[i], places.rows, side),
                  c = between(places.column[i], places.columns, side);
    const auto add = [&](size_t tap, int64_t row, float of_row, int64_t column, float of_column) {
      taps[tap].id.push_back(row * side + column);
      taps[tap].weight.push_back(of_row * of_column);
    };
    add(0, r.first, r.of_first, c.first, c.of_first);
    add(1, r.first, r.of_first, c.second, c.of_second);
    add(2, r.second, r.of_second, c.first, c.of_first);
    add(3, r.second, r.of_second, c.second, c.of_second);
  }
  return taps;
}

struct QwenMlp : nn::Module {
  QwenMlp(nn::Module& parent, const Qwen3VlConfig& c)
      : Module(parent, "mlp"),
        layers(*this, {}, c.hidden_size, c.intermediate_size, c.hidden_size, c.activation) {
    set_role(nn::Role::kMlp);
  }
  TwoLayers layers;
};

struct QwenBlock : nn::Module {
  QwenBlock(nn::Module& parent, std::string name, const Qwen3VlConfig& c)
      : Module(parent, std::move(name)),
        norm1(*this, "norm1", c.hidden_size, kQwenEps),
        norm2(*this, "norm2", c.hidden_size, kQwenEps),
        attn(*this, "attn", c.attention()),
        mlp(*this, c) {}
  at::Tensor forward(const at::Tensor& x, const nn::Context& context,
                     const ops::RotaryTable& rotary) {
    const at::Tensor h = ops::add_scaled(x, attn.forward(norm1.forward(x), context, rotary));
    return ops::add_scaled(h, mlp.layers.forward(norm2.forward(h), context));
  }
  LayerNorm norm1, norm2;
  TowerAttention attn;
  QwenMlp mlp;
};

struct QwenMerger : nn::Module {
  QwenMerger(nn::Module& parent, std::string name, const Qwen3VlConfig& c, bool norm_merged)
      : Module(parent, std::move(name)),
        width(c.merged_width()),
        norm_merged(norm_merged),
        norm(*this, "norm", norm_merged ? width : c.hidden_size, kQwenEps),
        layers(*this, {}, width, width, c.out_hidden_size, ops::Activation::kGelu) {}
  at::Tensor forward(const at::Tensor& x, const nn::Context& context) {
    const at::Tensor normed = norm.forward(norm_merged ? x.view({-1, width}) : x);
    return layers.forward(normed.view({-1, width}), context);
  }
  int64_t width;
  bool norm_merged;
  LayerNorm norm;
  TwoLayers layers;
};

struct QwenVisual : nn::Module {
  QwenVisual(nn::Module& parent, const Qwen3VlConfig& c)
      : Module(parent, "visual"),
        patch_embed(*this, c.patch_width, c.hidden_size, true),
        pos_embed(*this, "pos_embed", c.side * c.side, c.hidden_size),
        blocks(*this, "blocks"),
        merger(*this, "merger", c, false),
        deep(*this, "deepstack_merger_list") {
    for (int64_t i = 0; i < c.depth; ++i) blocks.emplace(c);
    for (size_t i = 0; i < c.deep_layers.size(); ++i) deep.emplace(c, true);
  }
  PatchEmbed patch_embed;
  PositionTable pos_embed;
  nn::ModuleList<QwenBlock> blocks;
  QwenMerger merger;
  nn::ModuleList<QwenMerger> deep;
};

class Qwen3VlTower : public Tower {
 public:
  explicit Qwen3VlTower(const Qwen3VlConfig& c)
      : config_(c), visual_(*this, c), rotary_({.theta = c.theta}, c.head_dim() / 2) {}

  ImageFeatures forward(const ImagePixels& image, int adapter) override {
    check_patches(image, config_.merge, config_.patch_width);
    const PatchPlaces places(image.grid_rows, image.grid_columns, config_.merge);
    const at::Tensor pixels = image.values.to(visual_.patch_embed.proj.weight.device());
    const nn::Context context{.forest = all_open({pixels.size(0)}), .adapter = adapter};
    at::Tensor x = ops::add_scaled(visual_.patch_embed.proj.forward(pixels, context),
                                   visual_.pos_embed.forward(taps_of(places, config_.side)));
    const ops::RotaryTable rotary = axial_table(rotary_, places.row, places.column, x.options());
    std::vector<at::Tensor> deep(config_.deep_layers.size());
    for (size_t i = 0; i < visual_.blocks.size(); ++i) {
      x = visual_.blocks[i].forward(x, context, rotary);
      for (size_t d = 0; d < deep.size(); ++d)
        if (config_.deep_layers[d] == static_cast<int64_t>(i))
          deep[d] = visual_.deep[d].forward(x, context);
    }
    return {visual_.merger.forward(x, context), deep.empty() ? at::Tensor() : at::stack(deep),
            image.grid_rows / config_.merge, image.grid_columns / config_.merge};
  }

 private:
  Qwen3VlConfig config_;
  QwenVisual visual_;
  nn::Rotary rotary_;
};

std::unique_ptr<Tower> make_qwen3_vl(const VisionConfig& config) {
  return std::make_unique<Qwen3VlTower>(Qwen3VlConfig(config));
}

const RegisteredVisionFamily kQwen3Vl({.model_type = "qwen3_vl",
                                       .help = "Qwen3-VL: a ViT whose deep features are added "
                                               "after the language model's first blocks",
                                       .prefixes = {"visual."},
                                       .projector = {"visual.merger.",
                                                     "visual.deepstack_merger_list."},
                                       .make = &make_qwen3_vl});
const RegisteredVisionFamily kQwen35Vl({.model_type = "qwen3_5",
                                        .help = "Qwen 3.5: Qwen3-VL's tower without deep features",
                                        .prefixes = {"visual."},
                                        .projector = {"visual.merger.",
                                                      "visual.deepstack_merger_list."},
                                        .make = &make_qwen3_vl});
const RegisteredVisionFamily kQwen35MoeVl({.model_type = "qwen3_5_moe",
                                           .help = "Qwen 3.5's mixtures of experts: the same",
                                           .prefixes = {"visual."},
                                           .projector = {"visual.merger.",
                                                         "visual.deepstack_merger_list."},
                                           .make = &make_qwen3_vl});

}  // namespace
}  // namespace temper::models
