// Latent attention computes with latents alone what its definition says of keys and values by head.
#include "temper/nn/latent_attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <limits>

using namespace temper;

namespace {

constexpr int64_t kHeads = 3, kHidden = 24;
constexpr double kScale = 0.3, kLoraScale = 0.7;
constexpr nn::LatentConfig kLatent{
    .q_rank = 10, .kv_rank = 7, .plain_dim = 5, .rotated_dim = 4, .value_dim = 6};

at::Tensor draw(at::IntArrayRef shape, uint64_t seed) {
  const int64_t count = c10::multiply_integers(shape);
  return at::sin(at::arange(1, count + 1, at::kDouble) * (0.7 + 0.37 * static_cast<double>(seed)))
      .view(shape);
}

// One layer in float64 that trains, without positions.
struct Layer {
  nn::Module root;
  nn::LatentAttention attention;

  Layer()
      : attention(root, "self_attn",
                  {.hidden_size = kHidden,
                   .num_heads = kHeads,
                   .num_kv_heads = kHeads,
                   .head_dim = kLatent.head_dim(),
                   .scale = kScale},
                  kLatent, 0, nullptr) {}
  void fill() {
    uint64_t seed = 0;
    root.each_parameter([&](const std::string&, nn::Parameter& p) {
      p.set_value(draw(p.shape(), ++seed));
      p.set_trainable(true);
    });
  }
  // The gradient of each parameter, which is then none.
  std::vector<at::Tensor> take_gradients() {
    std::vector<at::Tensor> all;
    root.each_parameter([&](const std::string&, nn::Parameter& p) {
      at::Tensor value = p.value();
      all.push_back(value.grad().clone());
      value.mutable_grad().reset();
    });
    return all;
  }
};

at::Tensor normalized(const at::Tensor& x, const nn::RmsNorm& norm) {
  return x * (x.square().mean(1, true) + norm.eps).rsqrt() * norm.weight.value();
}

at::Tensor adapted_weight(nn::Linear& layer) {
  const at::Tensor weight = layer.weight.value();
  nn::Lora* const lora = layer.lora();
  if (!lora) return weight;
  const at::Tensor sum =
      weight + kLoraScale * at::matmul(lora->lora_B.weight.value(), lora->lora_A.weight.value());
  if (!lora->lora_magnitude_vector) return sum;
  const at::Tensor norm = sum.detach().square().sum(1).sqrt();
  return sum * (lora->lora_magnitude_vector->weight.value() / norm).unsqueeze(1);
}

// The definition, of one sequence.
at::Tensor by_heads(nn::LatentAttention& a, const at::Tensor& x) {
  const nn::LatentConfig& l = kLatent;
  const int64_t n = x.size(0);
  const auto times = [](const at::Tensor& in, nn::Linear& layer) {
    return at::matmul(in, adapted_weight(layer).t());
  };
  const at::Tensor q = times(normalized(times(x, *a.q_a_proj), *a.q_a_layernorm), *a.q_b_proj)
                           .view({n, kHeads, l.query_dim()}),
                   latent = times(x, a.kv_a_proj_with_mqa),
                   kv = times(normalized(latent.narrow(1, 0, l.kv_rank), a.kv_a_layernorm),
                              a.kv_b_proj)
                            .view({n, kHeads, l.plain_dim + l.value_dim}),
                   rotated = latent.narrow(1, l.kv_rank, l.rotated_dim)
                                 .unsqueeze(1)
                                 .expand({n, kHeads, l.rotated_dim}),
                   k = at::cat({kv.narrow(2, 0, l.plain_dim), rotated}, 2),
                   v = kv.narrow(2, l.plain_dim, l.value_dim);
  const at::Tensor later = at::ones({n, n}, at::kBool).triu(1);
  const at::Tensor p = at::matmul(q.transpose(0, 1), k.permute({1, 2, 0}))
                           .mul(kScale)
                           .masked_fill(later, -std::numeric_limits<double>::infinity())
                           .softmax(2);
  return times(at::matmul(p, v.transpose(0, 1)).transpose(0, 1).reshape({n, -1}), a.o_proj);
}

}  // namespace

TEST_CASE("attention over latents, and its gradients, are those of keys and values by head") {
  enum class Kind { kPlain, kLora, kDora, kDropped };
  for (const Kind kind : {Kind::kPlain, Kind::kLora, Kind::kDora, Kind::kDropped}) {
    CAPTURE(static_cast<int>(kind));
    Layer layer;
    // What drops nothing goes through keys and values by head, as what drops does.
    const double dropout = kind == Kind::kDropped ? 1e-14 : 0;
    if (kind != Kind::kPlain)
      layer.attention.kv_b_proj.add_lora(2, kLoraScale, dropout, 1, kind == Kind::kDora);
    layer.fill();
    auto forest = std::make_shared<Forest>();
    forest->add_root(std::vector<int32_t>(6));
    nn::DropoutKeys keys{.seed = 1, .step = 1, .token = {0, 1, 2, 3, 4, 5}};
    const nn::Context context{.forest = forest, .rows = {}, .dropout = &keys};
    const at::Tensor x = draw({6, kHidden}, 50), g = draw({6, kHidden}, 51);

    const at::Tensor y = layer.attention.forward(ops::LinearInput::plain(x), context);
    (y * g).sum().backward();
    const std::vector<at::Tensor> found = layer.take_gradients();
    const at::Tensor expected = by_heads(layer.attention, x);
    (expected * g).sum().backward();
    const std::vector<at::Tensor> exact = layer.take_gradients();
    CHECK(at::allclose(y, expected, 1e-10, 1e-10));
    REQUIRE(found.size() == exact.size());
    for (size_t i = 0; i < found.size(); ++i) {
      CAPTURE(i);
      CHECK(exact[i].abs().max().item<double>() > 1e-6);
      CHECK(at::allclose(found[i], exact[i], 1e-8, 1e-10));
    }
  }
}

TEST_CASE("what kv_b_proj makes of latents is never that of earlier weights or another adapter") {
  const at::NoGradGuard no_grad;
  Layer layer;
  nn::Linear& kv_b = layer.attention.kv_b_proj;
  kv_b.add_lora(2, kLoraScale, 0, 1);
  layer.fill();
  auto forest = std::make_shared<Forest>();
  forest->add_root(std::vector<int32_t>(6));
  const at::Tensor x = draw({6, kHidden}, 50).to(at::kFloat);
  const auto result = [&](int adapter) {
    return layer.attention.forward(ops::LinearInput::plain(x),
                                   {.forest = forest, .adapter = adapter, .rows = {}});
  };
  layer.root.each_parameter(
      [](const std::string&, nn::Parameter& p) { p.set_value(p.value().detach().to(at::kFloat)); });
  const at::Tensor before = result(0), base = result(-1);
  CHECK(!at::equal(before, base));
  CHECK(at::equal(result(0), before));
  const auto each_linear = [&](const auto& visit) {
    layer.root.visit({.linear = [&](const std::string&, nn::Linear& linear) { visit(linear); }});
  };
  const auto copy = [](nn::Linear& linear) { CHECK(linear.add_frozen_copy() == 1); };
  each_linear(copy);
  nn::Parameter& b = kv_b.lora()->lora_B.weight;
  b.set_value(b.value() * 2);
  const at::Tensor after = result(0);
  CHECK(!at::equal(after, before));
  CHECK(at::equal(result(1), before));
  each_linear([](nn::Linear& linear) { linear.remove_frozen_copy(1); });
  each_linear(copy);
  CHECK(at::equal(result(1), after));
  CHECK(at::equal(result(-1), base));
  kv_b.weight.set_value(kv_b.weight.value() * 1.5);
  CHECK(!at::equal(result(-1), base));
}
