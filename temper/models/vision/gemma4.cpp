// Gemma 4's tower: patches of any shape of image, by rows.
//   x = patch_embedder.input_proj(2 (patch - 0.5)) + table[0][column] + table[1][row]
//   h = x + n2 o(attend(rotate(nq q(n1 x)), rotate(nk k(n1 x)), norm(v(n1 x))))   both ways
//   y = h + n4 down(gelu(gate(n3 h)) * up(n3 h))
//   rows = embedding_projection(norm(sqrt(hidden_size) · averages of squares of patches))
// One half of each head rotates by column, the other by row. Linear layers may clip what they read
// and give, to bounds that the files hold.
#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <optional>

#include "temper/base/error.h"
#include "temper/models/config_values.h"
#include "temper/models/vision/layers.h"
#include "temper/models/vision/tower.h"
#include "temper/nn/rotary.h"
#include "temper/ops/autograd.h"
#include "temper/ops/backend.h"
#include "temper/ops/layers/embedding.h"

namespace temper::models {
namespace {

struct Gemma4VisionConfig {
  explicit Gemma4VisionConfig(const VisionConfig& config) {
    constexpr int64_t kMostWidth = 1 << 20;
    const HfConfig& c = config.vision;
    hidden_size = c.integer("hidden_size", 768, kMostWidth);
    intermediate_size = c.integer("intermediate_size", 3072, kMostWidth);
    num_layers = c.integer("num_hidden_layers", 16, 1000);
    num_heads = c.integer("num_attention_heads", 12, 4096);
    num_kv_heads = c.integer("num_key_value_heads", 12, 4096);
    head_dim = c.integer("head_dim", 64, 1 << 16);
    patch_size = c.integer("patch_size", 16, 1024);
    pool = c.integer("pooling_kernel_size", 3, 64);
    places = c.integer("position_embedding_size", 10240, kMostWidth);
    clips = c.boolean("use_clipped_linears", false);
    standardizes = c.boolean("standardize", false);
    norm_eps = number_from(c, "rms_norm_eps", 0, 1e-6);
    activation = c.activation("hidden_activation", "gelu_pytorch_tanh");
    const std::optional<HfConfig> rope = c.rope_section();
    theta = rope ? number_above(*rope, "rope_theta", 0, 100) : 100;
    out = config.text_hidden_size;
    open = config.text.text("use_bidirectional_attention", "") == "vision";
    if (num_heads % num_kv_heads != 0)
      c.fail("num_key_value_heads", str(num_heads, " heads are not a multiple of ", num_kv_heads));
    if (head_dim % 4 != 0)
      c.fail("head_dim", str("found ", head_dim, ", expected a multiple of four"));
  }
  int64_t hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim, patch_size,
      pool, places, out;
  bool clips, standardizes, open;
  double norm_eps, theta;
  ops::Activation activation;
};

at::Tensor clipped(const at::Tensor& x, double low, double high) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  if (low == -kNone && high == kNone) return x;
  ops::Recording call({x});
  call.reads({x});
  return call.output(ops::backend_of(x).clamp_scaled(x, low, high, 0, 1),
                     [=](const ops::Gradients& d) -> ops::Tensors {
                       return {d[0].masked_fill(x.lt(low).logical_or_(x.gt(high)), 0)};
                     });
}

// What transformers keeps as a buffer.
struct Constant {
  Constant(nn::Module& owner, const char* name, std::vector<int64_t> shape)
      : value(owner, name, std::move(shape), {nn::Init::Kind::kZeros, 0}) {
    value.set_constant();
  }
  double number() const { return static_cast<double>(value.value().to(at::kCPU).item<float>()); }
  nn::Parameter value;
};

class ClippedLinear : public nn::Module {
 public:
  ClippedLinear(nn::Module& parent, const char* name, int64_t in, int64_t out, bool clips)
      : Module(parent, name), linear(*this, "linear", in, out, false, 0.02) {
    if (!clips) return;
    for (const char* bound : {"input_min", "input_max", "output_min", "output_max"})
      bounds_.push_back(std::make_unique<Constant>(*this, bound, std::vector<int64_t>{}));
  }
  at::Tensor forward(const at::Tensor& x, const nn::Context& context) {
    if (bounds_.empty()) return linear.forward(x, context);
    const at::Tensor y =
        linear.forward(clipped(x, bounds_[0]->number(), bounds_[1]->number()), context);
    return clipped(y, bounds_[2]->number(), bounds_[3]->number());
  }
  nn::Linear linear;

 private:
  std::vector<std::unique_ptr<Constant>> bounds_;
};

// x [N, heads · head_dim] by halves of heads: the first half's pairs (i, i + head_dim / 4) and the
// second half's become pairs (i, i + head_dim / 2) of the whole head.
at::Tensor joined_halves(const at::Tensor& x, int64_t head_dim) {
  std::vector<int64_t> order;
  for (const int64_t quarter : {0, 2, 1, 3})
    for (int64_t i = 0; i < head_dim / 4; ++i) order.push_back(quarter * head_dim / 4 + i);
  return x.reshape({-1, head_dim})
      .index_select(1, at::tensor(order, at::kLong).to(x.device()))
      .view(x.sizes());
}

at::Tensor normed_alone(const at::Tensor& x, double eps) {
  const at::Tensor ones = at::ones({x.size(1)}, x.options().requires_grad(false));
  return ops::materialize(ops::LinearInput::rms_norm(x, ones, eps));
}

class Gemma4VisionAttention : public nn::Module {
 public:
  Gemma4VisionAttention(nn::Module& parent, const Gemma4VisionConfig& c)
      : Module(parent, "self_attn"),
        c_(c),
        q_(*this, "q_proj", c.hidden_size, c.num_heads * c.head_dim, c.clips),
        k_(*this, "k_proj", c.hidden_size, c.num_kv_heads * c.head_dim, c.clips),
        v_(*this, "v_proj", c.hidden_size, c.num_kv_heads * c.head_dim, c.clips),
        o_(*this, "o_proj", c.num_heads * c.head_dim, c.hidden_size, c.clips),
        q_norm_(*this, "q_norm", c.head_dim, c.norm_eps),
        k_norm_(*this, "k_norm", c.head_dim, c.norm_eps) {
    set_role(nn::Role::kAttention);
  }
  at::Tensor forward(const at::Tensor& x, const nn::Context& context,
                     const ops::RotaryTable& rotary) {
    const int64_t d = c_.head_dim;
    const auto weight = [&](const nn::RmsNorm& norm) {
      return joined_halves(norm.weight.value().view({1, d}), d).view({d});
    };
    const at::Tensor v = v_.forward(x, context);
    const ops::AttentionSpec spec{.num_heads = c_.num_heads,
                                  .num_kv_heads = c_.num_kv_heads,
                                  .head_dim = d,
                                  .scale = 1,
                                  .q_norm = weight(q_norm_),
                                  .k_norm = weight(k_norm_),
                                  .norm_eps = c_.norm_eps};
    return o_.forward(
        ops::attention(spec, rotary, context.forest, joined_halves(q_.forward(x, context), d),
                       joined_halves(k_.forward(x, context), d),
                       normed_alone(v.view({-1, d}), c_.norm_eps).view(v.sizes())),
        context);
  }

 private:
  Gemma4VisionConfig c_;
  ClippedLinear q_, k_, v_, o_;
  nn::RmsNorm q_norm_, k_norm_;
};

struct Gemma4VisionMlp : nn::Module {
  Gemma4VisionMlp(nn::Module& parent, const Gemma4VisionConfig& c)
      : Module(parent, "mlp"),
        gate(*this, "gate_proj", c.hidden_size, c.intermediate_size, c.clips),
        up(*this, "up_proj", c.hidden_size, c.intermediate_size, c.clips),
        down(*this, "down_proj", c.intermediate_size, c.hidden_size, c.clips),
        activation(c.activation) {
    set_role(nn::Role::kMlp);
  }
  at::Tensor forward(const at::Tensor& x, const nn::Context& context) {
    const at::Tensor inner = ops::materialize(
        ops::LinearInput::gated(gate.forward(x, context), up.forward(x, context), activation));
    return down.forward(inner, context);
  }
  ClippedLinear gate, up, down;
  ops::Activation activation;
};

struct Gemma4VisionLayer : nn::Module {
  Gemma4VisionLayer(nn::Module& parent, std::string name, const Gemma4VisionConfig& c)
      : Module(parent, std::move(name)),
        attention(*this, c),
        mlp(*this, c),
        n1(*this, "input_layernorm", c.hidden_size, c.norm_eps),
        n2(*this, "post_attention_layernorm", c.hidden_size, c.norm_eps),
        n3(*this, "pre_feedforward_layernorm", c.hidden_size, c.norm_eps),
        n4(*this, "post_feedforward_layernorm", c.hidden_size, c.norm_eps) {}
  at::Tensor forward(const at::Tensor& x, const nn::Context& context,
                     const ops::RotaryTable& rotary) {
    const at::Tensor h =
        ops::add_scaled(x, n2.forward(attention.forward(n1.forward(x), context, rotary)));
    return ops::add_scaled(h, n4.forward(mlp.forward(n3.forward(h), context)));
  }
  Gemma4VisionAttention attention;
  Gemma4VisionMlp mlp;
  nn::RmsNorm n1, n2, n3, n4;
};

struct Gemma4VisionModel : nn::Module {
  struct Embedder : nn::Module {
    Embedder(nn::Module& parent, const Gemma4VisionConfig& c)
        : Module(parent, "patch_embedder"),
          proj(*this, "input_proj", 3 * c.patch_size * c.patch_size, c.hidden_size, false, 0.02),
          table(*this, "position_embedding_table", {2, c.places, c.hidden_size}, {}) {}
    nn::Linear proj;
    nn::Parameter table;
  };
  struct Layers : nn::Module {
    Layers(nn::Module& parent, const Gemma4VisionConfig& c)
        : Module(parent, "encoder"), list(*this, "layers") {
      for (int64_t i = 0; i < c.num_layers; ++i) list.emplace(c);
    }
    nn::ModuleList<Gemma4VisionLayer> list;
  };
  Gemma4VisionModel(nn::Module& parent, const Gemma4VisionConfig& c)
      : Module(parent, "vision_tower"), embedder(*this, c), encoder(*this, c) {
    if (!c.standardizes) return;
    bias.emplace(*this, "std_bias", std::vector<int64_t>{c.hidden_size});
    scale.emplace(*this, "std_scale", std::vector<int64_t>{c.hidden_size});
  }
  Embedder embedder;
  Layers encoder;
  std::optional<Constant> bias, scale;
};

struct Gemma4Projector : nn::Module {
  Gemma4Projector(nn::Module& parent, const Gemma4VisionConfig& c)
      : Module(parent, "embed_vision"),
        projection(*this, "embedding_projection", c.hidden_size, c.out, false, 0.02) {}
  nn::Linear projection;
};

at::Tensor times(const at::Tensor& x, const at::Tensor& by) {
  return ops::materialize(ops::LinearInput::gated(x, by, ops::Activation::kIdentity));
}

class Gemma4Tower : public Tower {
 public:
  explicit Gemma4Tower(const Gemma4VisionConfig& c)
      : c_(c),
        model_(*this, c),
        projector_(*this, c),
        rotary_({.theta = c.theta}, c.head_dim / 2) {}

  // [patches, 3 · p · p], row by row.
  ImageFeatures forward(const ImagePixels& image, int adapter) override {
    check_image(image);
    const int64_t rows = image.grid_rows, columns = image.grid_columns, n = rows * columns;
    const at::Tensor patches = image.values.to(model_.embedder.table.device());
    const nn::Context context{.forest = all_open({n}), .adapter = adapter};
    constexpr double kNone = std::numeric_limits<double>::infinity();
    std::vector<int64_t> column, row, of_row;
    for (int64_t i = 0; i < n; ++i) {
      column.push_back(i % columns);
      row.push_back(i / columns);
      of_row.push_back(c_.places + i / columns);
    }
    const at::Tensor table = model_.embedder.table.value().view({2 * c_.places, c_.hidden_size});
    at::Tensor x = model_.embedder.proj.forward(
        ops::backend_of(patches).clamp_scaled(patches, -kNone, kNone, -0.5, 2), context);
    x = ops::add_scaled(
        x, ops::add_scaled(ops::embedding(table, column), ops::embedding(table, of_row)));
    const ops::RotaryTable rotary = axial_table(rotary_, column, row, x.options());
    for (auto& layer : model_.encoder.list) x = layer->forward(x, context, rotary);
    x = times(pooled(x, rows, columns),
              at::full({n / (c_.pool * c_.pool), c_.hidden_size},
                       std::sqrt(static_cast<double>(c_.hidden_size)), patches.options()));
    if (model_.bias) x = standardized(x);
    ImageFeatures features{projector_.projection.forward(normed_alone(x, c_.norm_eps), context)};
    features.open = c_.open;
    return features;
  }

 private:
  void check_image(const ImagePixels& image) const {
    const int64_t rows = image.grid_rows, columns = image.grid_columns,
                  width = 3 * c_.patch_size * c_.patch_size;
    check<DataError>(rows > 0 && columns > 0 && rows <= c_.places && columns <= c_.places &&
                         rows % c_.pool == 0 && columns % c_.pool == 0,
                     "an image of ", rows, " rows and ", columns,
                     " columns of patches, expected multiples of ", c_.pool, " up to ", c_.places);
    check<DataError>(image.values.defined() && image.values.dim() == 2 &&
                         image.values.scalar_type() == at::kFloat &&
                         image.values.size(0) == rows * columns && image.values.size(1) == width,
                     "an image's pixels of another form, expected [", rows * columns, ", ", width,
                     "] float32");
  }
  // Averages of squares: each patch's share, then their sum in the order of the patches.
  at::Tensor pooled(const at::Tensor& x, int64_t rows, int64_t columns) const {
    const int64_t s = c_.pool;
    at::Tensor sum;
    for (int64_t i = 0; i < s * s; ++i) {
      std::vector<int64_t> patch;
      for (int64_t r = 0; r < rows; r += s)
        for (int64_t c = 0; c < columns; c += s) patch.push_back((r + i / s) * columns + c + i % s);
      const at::Tensor part = ops::select_rows(x, patch);
      const at::Tensor share =
          times(part, at::full_like(part, 1 / static_cast<double>(s * s)).requires_grad_(false));
      sum = sum.defined() ? ops::add_scaled(sum, share) : share;
    }
    return sum;
  }
  at::Tensor standardized(const at::Tensor& x) const {
    const std::vector<int64_t> each(static_cast<size_t>(x.size(0)), 0);
    const auto rows = [&](const Constant& c) {
      return ops::embedding(c.value.value().view({1, -1}), each);
    };
    return times(ops::add_scaled(x, rows(*model_.bias), -1), rows(*model_.scale));
  }

  Gemma4VisionConfig c_;
  Gemma4VisionModel model_;
  Gemma4Projector projector_;
  nn::Rotary rotary_;
};

std::unique_ptr<Tower> make_gemma4(const VisionConfig& config) {
  return std::make_unique<Gemma4Tower>(Gemma4VisionConfig(config));
}

const RegisteredVisionFamily kGemma4Vision(
    {.model_type = "gemma4",
     .help = "Gemma 4: a ViT over images of any shape; the larger models see an image both ways",
     .prefixes = {"vision_tower.", "embed_vision."},
     .projector = {"embed_vision."},
     .make = &make_gemma4});

}  // namespace
}  // namespace temper::models
