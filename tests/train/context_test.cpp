// Ranks that divide the tokens of each row (mesh.context): even parts, attention of one rank, and
// the same training.
#include "temper/nn/token_share.h"
#include "temper/ops/layers/attention.h"
#include "temper/train/passes/rank_pass.h"
#include "tests/train/tiny.h"

using namespace temper;
using tiny::RowsTask;

namespace {

std::vector<int32_t> blank_tokens(int64_t n) {
  return std::vector<int32_t>(static_cast<size_t>(n), 5);
}

// A long row, a prompt with long and short completions, and short rows.
std::shared_ptr<const Forest> mixed_forest() {
  auto forest = std::make_shared<Forest>();
  forest->add_root(blank_tokens(700));
  const int64_t prompt = forest->add_root(blank_tokens(411));
  for (const int64_t n : {530, 20, 7, 300}) forest->add_child(prompt, blank_tokens(n));
  for (const int64_t n : {3, 40, 1, 90}) forest->add_root(blank_tokens(n));
  return forest;
}

struct Shares {
  int64_t tokens = 0;
  double seen = 0;  // keys that the tokens see
};
std::vector<Shares> shares_of(const Forest& forest, int ranks) {
  std::vector<Shares> shares;
  std::vector<int> owners(static_cast<size_t>(forest.num_tokens()));
  for (const auto& ranges : nn::divide_tokens(forest, ranks)) {
    Shares& own = shares.emplace_back();
    int64_t last = -1;
    for (const nn::TokenRange& range : ranges) {
      CHECK(range.begin > last);  // neighbours are one range
      CHECK(range.begin < range.end);
      last = range.end;
      for (int64_t t = range.begin; t < range.end; ++t) {
        ++owners[static_cast<size_t>(t)];
        ++own.tokens;
        own.seen += static_cast<double>(forest.position[static_cast<size_t>(t)] + 1);
      }
    }
  }
  CHECK(std::ranges::all_of(owners, [](int n) { return n == 1; }));
  return shares;
}

dist::Mesh context_mesh(dist::Group& group) {
  dist::Mesh mesh(group);
  mesh.context = mesh.same_rows = mesh.tokens;
  mesh.data_parallel = dist::alone();
  return mesh;
}

struct Division {
  std::optional<models::LoraConfig> lora = {};
  bool recompute = false;
  int64_t batch = 5;
};
struct DividedRun {
  std::vector<double> losses;
  tiny::Weights weights;
};
DividedRun train_divided(const dist::Mesh& mesh, const Division& setup) {
  train::Roles roles(tiny::policy(setup.lora), tiny::constant_rate(1e-2));
  roles.policy.model->token_ranks = mesh.context;
  RowsTask task(roles, *mesh.data_parallel);
  task.batch = setup.batch;
  task.recompute = setup.recompute;
  task.dropout = setup.lora ? setup.lora->dropout : 0;
  task.two_terms = true;
  train::Trainer trainer({}, 0, roles, mesh, task);
  DividedRun out;
  for (int step = 0; step < 3; ++step) {
    REQUIRE(trainer.step());
    out.losses.push_back(trainer.row().number("loss").value());
  }
  out.weights = tiny::weights(*roles.policy.model);
  return out;
}

struct Attended {
  at::Tensor out, dq, dk, dv, dsinks;
};
ops::AttentionSpec spec_of(int64_t window, const at::Tensor& sinks) {
  return {.num_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 8,
          .scale = 0.3,
          .window = window,
          .q_norm = {},
          .k_norm = {},
          .sinks = sinks};
}

}  // namespace

TEST_CASE("ranks divide tokens and causal work evenly, and none is computed twice") {
  Forest row;
  row.add_root(blank_tokens(4099));
  for (const int ranks : {1, 2, 3, 8}) {
    CAPTURE(ranks);
    for (const auto& [tokens, seen] : shares_of(row, ranks)) {
      CHECK(std::abs(tokens - 4099.0 / ranks) <= 2);
      CHECK(seen == doctest::Approx(4099.0 * 4100 / 2 / ranks).epsilon(4e-3));
    }
  }
  const auto mixed = mixed_forest();
  const double tokens = static_cast<double>(mixed->num_tokens());
  for (const Shares& of_rank : shares_of(*mixed, 2))
    CHECK(static_cast<double>(of_rank.tokens) == doctest::Approx(tokens / 2).epsilon(0.01));
  Forest few;
  few.add_root(blank_tokens(2));
  CHECK(shares_of(few, 4)[1].tokens == 0);
}

TEST_CASE("attention of divided tokens is one rank's, its gradients up to the order of sums") {
  const std::shared_ptr<const Forest> forest = mixed_forest();
  const int64_t n = forest->num_tokens();
  const at::Tensor q = at::randn({n, 32}), k = at::randn({n, 16}), v = at::randn({n, 16}),
                   dout = at::randn({n, 32}), sinks = at::randn({4});
  const auto leaf = [](const at::Tensor& x) { return x.detach().clone().requires_grad_(true); };
  for (const int64_t window : {0, 33})
    for (const int ranks : {2, 3}) {
      CAPTURE(window);
      CAPTURE(ranks);
      const at::Tensor qw = leaf(q), kw = leaf(k), vw = leaf(v), sw = leaf(sinks);
      const at::Tensor whole = ops::attention(spec_of(window, sw), {}, forest, qw, kw, vw);
      whole.backward(dout);
      std::vector<Attended> parts(static_cast<size_t>(ranks));
      std::vector<std::vector<int64_t>> tokens(static_cast<size_t>(ranks));
      tiny::ThreadRanks(ranks).run([&](dist::Group& group) {
        const nn::TokenShare share(forest, {&group, [](dist::Group*) {}});
        const at::Tensor own = at::tensor(share.tokens(), at::kLong);
        const auto part = [&](const at::Tensor& x) { return leaf(x.index_select(0, own)); };
        const at::Tensor qs = part(q), ks = part(k), vs = part(v), ss = leaf(sinks);
        const at::Tensor out = share.attention(spec_of(window, ss), {}, qs, ks, vs);
        out.backward(dout.index_select(0, own));
        const auto rank = static_cast<size_t>(group.rank());
        tokens[rank] = share.tokens();
        parts[rank] = {out.detach(), qs.grad(), ks.grad(), vs.grad(), ss.grad()};
      });
      at::Tensor dsinks = at::zeros({4});
      for (size_t r = 0; r < parts.size(); ++r) {
        const at::Tensor own = at::tensor(tokens[r], at::kLong);
        CHECK(tiny::same_bits(parts[r].out, whole.index_select(0, own)));
        CHECK(tiny::same_bits(parts[r].dq, qw.grad().index_select(0, own)));
        CHECK(at::allclose(parts[r].dk, kw.grad().index_select(0, own), 1e-4, 1e-5));
        CHECK(at::allclose(parts[r].dv, vw.grad().index_select(0, own), 1e-4, 1e-5));
        dsinks += parts[r].dsinks;
      }
      CHECK(at::allclose(dsinks, sw.grad(), 1e-4, 1e-4));
    }
}

TEST_CASE("ranks that divide the tokens train a model as one rank does") {
  const models::LoraConfig lora{.rank = 3, .alpha = 6, .dropout = 0.1};
  for (const auto& adapter : {std::optional<models::LoraConfig>(), std::optional(lora)})
    for (const bool recompute : {false, true})
      for (const int ranks : {2, 3}) {
        CAPTURE(adapter.has_value());
        CAPTURE(recompute);
        CAPTURE(ranks);
        const Division setup{.lora = adapter, .recompute = recompute};
        const DividedRun one = train_divided(tiny::alone(), setup);
        tiny::ThreadRanks(ranks).run([&](dist::Group& group) {
          const DividedRun divided = train_divided(context_mesh(group), setup);
          CHECK(divided.losses[0] == one.losses[0]);
          for (size_t s = 0; s < one.losses.size(); ++s)
            CHECK(std::abs(divided.losses[s] - one.losses[s]) < 1e-6);
          CHECK(tiny::distance(divided.weights, one.weights) < 1e-5);
        });
      }
}

TEST_CASE("ranks without a token, or without a target, keep step") {
  const tiny::Rows rows{{4, 9}};
  std::vector<double> logp;
  const auto run = [&](const std::shared_ptr<dist::Group>& ranks) {
    const auto model = tiny::model();
    model->token_ranks = ranks;
    train::ForwardPass pass;
    pass.add({{{.tokens = rows[0], .labels = rows[0]}}}, 0);
    const at::Tensor found = train::token_logp(*model, pass, {}).logp;
    found.sum().backward();
    double norm = 0;
    model->each_parameter([&](const std::string&, nn::Parameter& p) {
      at::Tensor grad =
          p.trained().grad().defined() ? p.trained().grad() : at::zeros_like(p.trained());
      ranks->all_reduce_sum(grad);
      norm += grad.square().sum().item<double>();
    });
    return std::pair(found.item<double>(), norm);
  };
  const auto [one, norm] = run(dist::alone());
  tiny::ThreadRanks(4).run([&](dist::Group& group) {
    const auto [found, its_norm] = run({&group, [](dist::Group*) {}});
    CHECK(found == one);
    CHECK(its_norm == doctest::Approx(norm).epsilon(1e-5));
  });
}
