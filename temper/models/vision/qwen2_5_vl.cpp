// Qwen2.5-VL's tower (arXiv 2502.13923). Patches come by merged cell, and go through in the order
// of windows of cells:
//   x = patch_embed.proj(patch)
//   h = x + attn.proj(attend(rotate(qkv(norm1 x))))   over a window, in some blocks over the image
//   y = h + down(silu(gate(norm2 h)) * up(norm2 h))
//   rows = merger.mlp.2(gelu(merger.mlp.0(ln_q y, of a cell's patches side by side)))
#include <ATen/ATen.h>

#include <algorithm>

#include "temper/base/error.h"
#include "temper/models/vision/patches.h"
#include "temper/nn/blocks.h"
#include "temper/ops/layers/embedding.h"

namespace temper::models {
namespace {

constexpr double kQwen25Eps = 1e-6;

struct Qwen25VlConfig : QwenVisionConfig {
  explicit Qwen25VlConfig(const VisionConfig& config)
      : QwenVisionConfig(config, 14, 3584, 3420, 32, "silu"),
        window(config.vision.integer("window_size", 112, 1 << 16) / merge / patch_size),
        whole_layers(
            listed_layers(config.vision, "fullatt_block_indexes", depth, {7, 15, 23, 31})) {
    if (window < 1)
      config.vision.fail("window_size", str("expected at least ", merge * patch_size, " pixels"));
  }
  int64_t window;  // a side's cells
  std::vector<int64_t> whole_layers;
};

struct Qwen25Block : nn::Module {
  Qwen25Block(nn::Module& parent, std::string name, const Qwen25VlConfig& c)
      : Module(parent, std::move(name)),
        norm1(*this, "norm1", c.hidden_size, kQwen25Eps),
        norm2(*this, "norm2", c.hidden_size, kQwen25Eps),
        attn(*this, "attn", c.attention()),
        mlp(*this, "mlp", c.hidden_size, c.intermediate_size, /*bias=*/true, c.activation, 0.02) {}
  at::Tensor forward(const at::Tensor& x, const nn::Context& context,
                     const ops::RotaryTable& rotary) {
    const at::Tensor h = ops::add_scaled(x, attn.forward(norm1.forward(x), context, rotary));
    return ops::add_scaled(h, mlp.forward(norm2.input(h), context));
  }
  nn::RmsNorm norm1, norm2;
  TowerAttention attn;
  nn::GatedMlp mlp;
};

struct Qwen25Merger : nn::Module {
  struct Mlp : nn::Module {
    Mlp(nn::Module& parent, int64_t width, int64_t out)
        : Module(parent, "mlp"),
          layers(*this, {"0", "2"}, width, width, out, ops::Activation::kGelu) {}
    TwoLayers layers;
  };
  Qwen25Merger(nn::Module& parent, const Qwen25VlConfig& c)
      : Module(parent, "merger"),
        width(c.merged_width()),
        norm(*this, "ln_q", c.hidden_size, kQwen25Eps),
        mlp(*this, width, c.out_hidden_size) {}
  at::Tensor forward(const at::Tensor& x, const nn::Context& context) {
    return mlp.layers.forward(norm.forward(x).view({-1, width}), context);
  }
  int64_t width;
  nn::RmsNorm norm;
  Mlp mlp;
};

struct Qwen25Visual : nn::Module {
  Qwen25Visual(nn::Module& parent, const Qwen25VlConfig& c)
      : Module(parent, "visual"),
        patch_embed(*this, c.patch_width, c.hidden_size, false),
        blocks(*this, "blocks"),
        merger(*this, c) {
    for (int64_t i = 0; i < c.depth; ++i) blocks.emplace(c);
  }
  PatchEmbed patch_embed;
  nn::ModuleList<Qwen25Block> blocks;
  Qwen25Merger merger;
};

// The cells of an image in the order of their windows.
struct CellWindows {
  CellWindows(int64_t rows, int64_t columns, int64_t window) {
    for (int64_t r = 0; r < rows; r += window)
      for (int64_t c = 0; c < columns; c += window) {
        const size_t before = cells.size();
        for (int64_t i = r; i < std::min(r + window, rows); ++i)
          for (int64_t j = c; j < std::min(c + window, columns); ++j)
            cells.push_back(i * columns + j);
        counts.push_back(static_cast<int64_t>(cells.size() - before));
      }
  }
  std::vector<int64_t> cells, counts;  // of all windows, and how many each has
};

class Qwen25VlTower : public Tower {
 public:
  explicit Qwen25VlTower(const Qwen25VlConfig& c)
      : config_(c), visual_(*this, c), rotary_({.theta = c.theta}, c.head_dim() / 2) {}

  ImageFeatures forward(const ImagePixels& image, int adapter) override {
    check_patches(image, config_.merge, config_.patch_width);
    const int64_t of_cell = config_.merge * config_.merge;
    const int64_t rows = image.grid_rows / config_.merge,
                  columns = image.grid_columns / config_.merge;
    const CellWindows windows(rows, columns, config_.window);
    PatchPlaces places(image.grid_rows, image.grid_columns, config_.merge);
    std::vector<int64_t> order, counts, back(windows.cells.size());
    for (size_t i = 0; i < windows.cells.size(); ++i) {
      back[static_cast<size_t>(windows.cells[i])] = static_cast<int64_t>(i);
      for (int64_t j = 0; j < of_cell; ++j) order.push_back(windows.cells[i] * of_cell + j);
    }
    for (const int64_t cells : windows.counts) counts.push_back(cells * of_cell);
    const PatchPlaces by_cell = places;
    for (size_t i = 0; i < order.size(); ++i) {
      places.row[i] = by_cell.row[static_cast<size_t>(order[i])];
      places.column[i] = by_cell.column[static_cast<size_t>(order[i])];
    }
    const at::Tensor pixels =
        ops::select_rows(image.values.to(visual_.patch_embed.proj.weight.device()), order);
    const nn::Context whole{.forest = all_open({pixels.size(0)}), .adapter = adapter},
        parts{.forest = all_open(counts), .adapter = adapter};
    at::Tensor x = visual_.patch_embed.proj.forward(pixels, whole);
    const ops::RotaryTable rotary = axial_table(rotary_, places.row, places.column, x.options());
    for (size_t i = 0; i < visual_.blocks.size(); ++i) {
      const bool all = std::ranges::find(config_.whole_layers, static_cast<int64_t>(i)) !=
                       config_.whole_layers.end();
      x = visual_.blocks[i].forward(x, all ? whole : parts, rotary);
    }
    return {ops::select_rows(visual_.merger.forward(x, whole), back), {}, rows, columns};
  }

 private:
  Qwen25VlConfig config_;
  Qwen25Visual visual_;
  nn::Rotary rotary_;
};

std::unique_ptr<Tower> make_qwen2_5_vl(const VisionConfig& config) {
  return std::make_unique<Qwen25VlTower>(Qwen25VlConfig(config));
}

const RegisteredVisionFamily kQwen25Vl({.model_type = "qwen2_5_vl",
                                        .help = "Qwen2.5-VL: a ViT that attends within windows",
                                        .prefixes = {"visual."},
                                        .projector = {"visual.merger."},
                                        .make = &make_qwen2_5_vl});

}  // namespace
}  // namespace temper::models
