// Layers with a state where ranks divide the tokens of each row (mesh.context): each rank computes
// some heads or channels of all tokens, with the bits of one rank.
#include <ATen/ATen.h>

#include "temper/nn/state_layers.h"
#include "temper/nn/token_share.h"
#include "tests/train/tiny.h"

using namespace temper;

namespace {

constexpr int64_t kHidden = 24;

at::Tensor waves(at::IntArrayRef shape, double from) {
  return at::sin(at::arange(c10::multiply_integers(shape), at::kFloat) * 0.37 + from).view(shape);
}

// A long row, a prompt with completions, and short rows.
std::shared_ptr<const Forest> state_forest() {
  const auto blank = [](int64_t n) { return std::vector<int32_t>(static_cast<size_t>(n), 5); };
  auto forest = std::make_shared<Forest>();
  forest->add_root(blank(500));
  const int64_t prompt = forest->add_root(blank(9));
  for (const int64_t n : {30, 7}) forest->add_child(prompt, blank(n));
  for (const int64_t n : {3, 1}) forest->add_root(blank(n));
  return forest;
}

struct StateRun {
  at::Tensor out, dx;
  std::map<std::string, at::Tensor> gradients;
  std::vector<int64_t> tokens;  // that are this rank's
};

using MakeLayer = std::function<std::unique_ptr<nn::StateLayer>(nn::Module&)>;
StateRun run_layer(const MakeLayer& make, const std::shared_ptr<const Forest>& forest,
                   const std::shared_ptr<const nn::TokenShare>& share) {
  nn::Module root;
  const std::unique_ptr<nn::StateLayer> layer = make(root);
  root.each_parameter([&](const std::string& name, nn::Parameter& p) {
    p.set_value(waves(p.shape(), static_cast<double>(name.size())) * 0.4);
    p.set_trainable(true);
  });
  const int64_t n = forest->num_tokens();
  StateRun run;
  for (int64_t i = 0; i < (share ? 0 : n); ++i) run.tokens.push_back(i);
  if (share) run.tokens = share->tokens();
  const at::Tensor own = at::tensor(run.tokens, at::kLong);
  const at::Tensor x = waves({n, kHidden}, 1).index_select(0, own).requires_grad_(true);
  const nn::Context context{.forest = share ? share->own() : forest, .share = share};
  const at::Tensor out = layer->forward(ops::LinearInput::plain(x), context);
  // A rank without a token has one that stands in, and counts nowhere.
  at::Tensor dout = waves({n, kHidden}, 2).index_select(0, own);
  if (share && share->has_none()) dout.zero_();
  out.backward(dout);
  run.out = out.detach();
  run.dx = x.grad();
  root.each_parameter([&](const std::string& name, nn::Parameter& p) {
    run.gradients[name] = p.value().grad().clone();
  });
  return run;
}

void check_divided(const MakeLayer& make, const std::shared_ptr<const Forest>& forest, int ranks,
                   const std::vector<std::string>& of_heads) {
  CAPTURE(ranks);
  const StateRun one = run_layer(make, forest, nullptr);
  std::vector<StateRun> parts(static_cast<size_t>(ranks));
  std::vector<int> none(static_cast<size_t>(ranks));
  tiny::ThreadRanks(ranks).run([&](dist::Group& group) {
    const auto share = std::make_shared<nn::TokenShare>(
        forest, std::shared_ptr<dist::Group>(&group, [](dist::Group*) {}));
    const auto rank = static_cast<size_t>(group.rank());
    none[rank] = share->has_none();
    parts[rank] = run_layer(make, forest, share);
  });
  for (size_t r = 0; r < parts.size(); ++r) {
    if (none[r]) continue;
    const at::Tensor own = at::tensor(parts[r].tokens, at::kLong);
    CHECK(tiny::same_bits(parts[r].out, one.out.index_select(0, own)));
    CHECK(tiny::same_bits(parts[r].dx, one.dx.index_select(0, own)));
  }
  for (const auto& [name, whole] : one.gradients) {
    CAPTURE(name);
    at::Tensor sum = parts[0].gradients.at(name).clone();
    for (size_t r = 1; r < parts.size(); ++r) sum += parts[r].gradients.at(name);
    CHECK(at::allclose(sum, whole, 1e-4, 1e-4));
    CHECK(whole.abs().max().item<double>() > 1e-3);
    if (std::ranges::find(of_heads, name) != of_heads.end()) CHECK(at::equal(sum, whole));
  }
}

}  // namespace

TEST_CASE("ranks that divide a delta net's heads compute what one rank does, to the bit") {
  for (const bool joined : {false, true}) {
    CAPTURE(joined);
    const MakeLayer make = [&](nn::Module& root) {
      return std::make_unique<nn::GatedDeltaNet>(
          root, "net", 0,
          nn::DeltaNetConfig{
              .hidden_size = kHidden,
              .taps = 4,
              .rule = {.key_heads = 3, .value_heads = 6, .key_dim = 8, .value_dim = 5},
              .joined = joined});
    };
    // 2: uneven; 4: one rank has no head.
    for (const int ranks : {2, 3, 4})
      check_divided(make, state_forest(), ranks, {"net.A_log", "net.dt_bias", "net.conv1d.weight"});
  }
}

TEST_CASE("ranks that divide a short convolution's channels compute what one rank does") {
  const MakeLayer make = [](nn::Module& root) {
    return std::make_unique<nn::ShortConvolution>(root, "conv", 0, kHidden, 3, true, 0.02);
  };
  for (const int ranks : {2, 5})
    check_divided(make, state_forest(), ranks, {"conv.conv.weight", "conv.conv.bias"});
  auto few = std::make_shared<Forest>();  // fewer tokens than ranks
  few->add_root(std::vector<int32_t>{1, 2});
  check_divided(make, few, 3, {"conv.conv.weight"});
}
