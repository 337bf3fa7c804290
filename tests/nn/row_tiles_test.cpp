// Tiles of rows change no bit: of the values, of the gradients of inputs, norms, weights, biases
// and adapters.
#include "temper/nn/weights/row_tiles.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "temper/models/adapters/adapter.h"
#include "temper/nn/blocks.h"
#include "temper/nn/mixed_adapters.h"
#include "temper/nn/unit.h"
#include "tests/models/golden.h"
#include "tests/train/tiny.h"

using namespace temper;

namespace {

constexpr int64_t kRows = 203, kWidth = 32, kInner = 48, kTile = 64, kNoTiles = int64_t{1} << 40;

at::Tensor numbers_of(at::IntArrayRef shape, int64_t seed, at::ScalarType dtype = at::kFloat) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  const at::Tensor x = at::arange(count, at::kDouble).add(static_cast<double>(seed) * 0.37);
  return (x * 1.618).sin().mul(0.5).reshape(shape).to(dtype);
}

struct MlpKind {
  bool bias = false, joined = false, centered = false;
  bool lora = false, dora = false, trains_base = true;
  double dropout = 0;
  ops::WeightFormat format = ops::WeightFormat::kFloat32;
  ops::Arithmetic arithmetic = ops::Arithmetic::kExact;
  at::ScalarType dtype = at::kFloat;
};

// h + after(mlp(before(h))).
struct Half : nn::Module {
  explicit Half(const MlpKind& kind)
      : before(*this, "before", kWidth, 1e-6, false, kind.centered),
        after(*this, "after", kWidth, 1e-6, true),
        mlp(*this, "mlp", kWidth, kInner, kind.bias, ops::Activation::kSilu, 0.02, kind.joined) {
    int64_t seed = 0;
    each_parameter([&](const std::string&, nn::Parameter& p) {
      p.set_value(numbers_of(p.shape(), ++seed, kind.dtype));
      p.set_trainable(kind.trains_base);
    });
    const auto each_linear = [&](const std::string&, nn::Linear& layer) {
      layer.weight.set_arithmetic(kind.arithmetic);
      layer.weight.set_format(kind.format);
      if (kind.lora) layer.add_lora(4, 0.5, kind.dropout, static_cast<uint64_t>(++seed), kind.dora);
    };
    visit({.linear = each_linear});
    each_parameter([&](const std::string& name, nn::Parameter& p) {
      if (name.find("lora_") == name.npos) return;
      p.set_value(numbers_of(p.shape(), ++seed, kind.dtype));
      p.set_trainable(true);
    });
  }
  at::Tensor forward(const nn::Tensors& rows, const nn::Context& context) {
    return ops::add_scaled(rows[0], after.forward(mlp.forward(before.input(rows[0]), context)));
  }
  nn::RmsNorm before, after;
  nn::GatedMlp mlp;
};

using Named = std::map<std::string, at::Tensor>;

// Values, and gradients of the input and of what trains, of a unit that runs again.
Named run_half(Half& half, const at::Tensor& x, const nn::Context& context, int64_t tile_rows) {
  const auto forward = [&](const nn::Tensors& in) {
    const nn::RowFunction of_rows = [&](const nn::Tensors& rows, const nn::Context& c) {
      return half.forward(rows, c);
    };
    return nn::Tensors{nn::run_in_tiles({&half}, in, context, of_rows, tile_rows)};
  };
  const at::Tensor leaf = x.detach().requires_grad_(true);
  const at::Tensor y = nn::run_unit(half, {leaf}, context.adapters(), true, forward)[0];
  Named found{{"y", y.detach()}};
  torch::autograd::backward({y}, {numbers_of(y.sizes(), 77, y.scalar_type())});
  found["x"] = leaf.grad();
  const auto take = [&](const std::string& name, nn::Parameter& p) {
    if (!p.trainable()) return;
    found[name] = p.value().grad();
    p.value().mutable_grad().reset();
  };
  half.each_parameter(take);
  half.visit({.linear = [&](const std::string& path, nn::Linear& layer) {
    for (const int adapter : context.adapters())
      if (adapter > 0)
        layer.adapter(adapter)->each_parameter([&](const char* name, nn::Parameter& p) {
          take(temper::str(path, " ", adapter, " ", name), p);
        });
  }});
  return found;
}

void check_equal(const Named& found, const Named& expected) {
  REQUIRE(found.size() == expected.size());
  for (const auto& [name, value] : expected) {
    CAPTURE(name);
    REQUIRE(found.at(name).defined());
    CHECK(value.abs().max().item<double>() > 0);
    CHECK(tiny::same_bits(found.at(name), value));
  }
}

nn::DropoutKeys dropout_keys() {
  nn::DropoutKeys keys{.seed = 5, .step = 3, .token = {}};
  for (uint64_t i = 0; i < kRows; ++i) keys.token.push_back(i * 7);
  return keys;
}

}  // namespace

TEST_CASE("an MLP in tiles has the bits of one over all rows, gradients too") {
  using ops::Arithmetic;
  using ops::WeightFormat;
  const MlpKind adapted{.lora = true, .trains_base = false};
  const auto with = [](MlpKind kind, const std::function<void(MlpKind&)>& set) {
    set(kind);
    return kind;
  };
  const std::vector<MlpKind> kinds{
      {.bias = true},
      {.joined = true, .centered = true},
      {.format = WeightFormat::kRoundedBFloat16, .arithmetic = Arithmetic::kFast},
      {.bias = true, .format = WeightFormat::kRoundedBFloat16, .arithmetic = Arithmetic::kAmx},
      adapted,
      with(adapted, [](MlpKind& k) { k.bias = k.dora = true; }),
      with(adapted, [](MlpKind& k) { k.dropout = 0.2; }),
      with(adapted, [](MlpKind& k) { k.dropout = 0.2, k.dora = true; }),
      with(adapted, [](MlpKind& k) { k.format = WeightFormat::kNf4; }),
      with(adapted, [](MlpKind& k) {
        k.format = WeightFormat::kInt8, k.arithmetic = Arithmetic::kInteger;
      })};
  const nn::DropoutKeys keys = dropout_keys();
  for (size_t i = 0; i < kinds.size(); ++i) {
    CAPTURE(i);
    Half half(kinds[i]);
    nn::Context context{.forest = std::make_shared<Forest>()};
    if (kinds[i].dropout > 0) context.dropout = &keys;
    const at::Tensor x = numbers_of({kRows, kWidth}, 1000);
    check_equal(run_half(half, x, context, kTile), run_half(half, x, context, kNoTiles));
  }
}

TEST_CASE("tiles divide the rows of adapters that share a pass") {
  Half half({.lora = true, .trains_base = false});
  int copy = 0;
  half.visit({.linear = [&](const std::string&, nn::Linear& layer) {
    copy = layer.add_frozen_copy();
    layer.adapter(copy)->each_parameter([&](const char*, nn::Parameter& p) {
      p.set_value(p.value().detach() * 1.5);
      p.set_trainable(true);
    });
  }});
  const at::Tensor x = numbers_of({kRows, kWidth}, 1000);
  nn::Context context{.forest = std::make_shared<Forest>()};
  for (const int64_t border : {int64_t{70}, int64_t{128}, int64_t{190}}) {
    CAPTURE(border);
    context.adapter_rows.clear();
    nn::append_adapter_rows(context.adapter_rows, copy, border);
    nn::append_adapter_rows(context.adapter_rows, 0, kRows - border);
    check_equal(run_half(half, x, context, kTile), run_half(half, x, context, kNoTiles));
  }
  // Rows of one adapter that do not stand together have sums of their own.
  context.adapter_rows.clear();
  for (const auto& [adapter, count] : {std::pair{0, 70}, {copy, 60}, {0, 73}})
    nn::append_adapter_rows(context.adapter_rows, adapter, count);
  check_equal(run_half(half, x, context, kTile), run_half(half, x, context, kNoTiles));
}

TEST_CASE("gradients of an MLP in tiles against differences in float64") {
  for (const bool lora : {false, true}) {
    Half half({.bias = true, .lora = lora, .trains_base = !lora, .dtype = at::kDouble});
    const nn::Context context{.forest = std::make_shared<Forest>()};
    const at::Tensor x = numbers_of({kRows, kWidth}, 1000, at::kDouble);
    const Named found = run_half(half, x, context, kTile);
    // Along one direction for each tensor, whose numbers all differ.
    const auto value = [&](const at::Tensor& at_x) {
      const at::NoGradGuard no_grad;
      const at::Tensor y = half.forward({at_x}, context);
      return (y * numbers_of(y.sizes(), 77, at::kDouble)).sum().item<double>();
    };
    const auto check_along = [&](const std::string& name, const at::Tensor& direction,
                                 const std::function<double(double step)>& moved) {
      CAPTURE(name);
      constexpr double kStep = 1e-5;
      const double numeric = (moved(kStep) - moved(-kStep)) / (2 * kStep),
                   analytic = (found.at(name) * direction).sum().item<double>();
      CHECK(std::abs(numeric - analytic) < 1e-6 * std::max(1.0, std::abs(numeric)));
    };
    const at::Tensor along_x = numbers_of(x.sizes(), 5, at::kDouble);
    check_along("x", along_x, [&](double step) { return value(x + step * along_x); });
    half.each_parameter([&](const std::string& name, nn::Parameter& p) {
      if (!p.trainable()) return;
      const at::Tensor before = p.value().detach().clone(),
                       along = numbers_of(p.shape(), 9, at::kDouble);
      check_along(name, along, [&](double step) {
        p.set_value(before + step * along);
        return value(x);
      });
      p.set_value(before);
    });
  }
}

// A pass of more tokens than that in sequences that every model takes, and targets in it.
struct ShortRows {
  std::shared_ptr<Forest> forest = std::make_shared<Forest>();
  std::vector<int64_t> rows, target;

  explicit ShortRows(int64_t tokens) {
    for (int64_t r = 0; forest->num_tokens() <= tokens; ++r) {
      std::vector<int32_t> row;
      for (int64_t k = 0; k < 16 + r % 7; ++k)
        row.push_back(static_cast<int32_t>(3 + (7 * r + 3 * k) % 50));
      for (int64_t k = 0; k < 3; ++k) {
        rows.push_back(forest->num_tokens() + 7 * k);
        target.push_back(row[static_cast<size_t>(7 * k + 1)]);
      }
      forest->add_root(row);
    }
  }
};

TEST_CASE("blocks that are computed again in tiles give the same bits in every family") {
  for (const std::string& name : golden_models()) {
    CAPTURE(name);
    const auto model = models::load_model(golden_model(name));
    train_all(*model);
    const ShortRows in(model->config().experts > 0 ? nn::kExpertTileRows : nn::kTileRows);
    const auto run = [&](bool recompute) {
      nn::Context context{.forest = in.forest};
      context.recompute = recompute;
      const at::Tensor logp = model->token_logp(model->forward(context), in.rows, in.target).logp;
      (logp * at::linspace(0.5, 1.5, logp.numel())).sum().backward();
      Named found{{"logp", logp.detach()}};
      model->each_parameter([&](const std::string& parameter, nn::Parameter& p) {
        if (!p.trainable() || !p.value().grad().defined()) return;
        found[parameter] = p.value().grad();
        p.value().mutable_grad().reset();
      });
      return found;
    };
    const Named expected = run(false), found = run(true);
    REQUIRE(found.size() == expected.size());
    for (const auto& [parameter, value] : expected) {
      CAPTURE(parameter);
      CHECK(tiny::same_bits(found.at(parameter), value));
    }
  }
}
