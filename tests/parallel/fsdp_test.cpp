// A model whose weights ranks share out computes what the whole model computes, with whatever else
// changes how its blocks run.
#include "temper/parallel/fsdp.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include "temper/dist/mesh.h"
#include "temper/models/adapters/adapter.h"
#include "temper/nn/unit.h"
#include "tests/train/tiny.h"

using namespace temper;

namespace {

struct Kind {
  const char* name;
  std::optional<ops::WeightFormat> frozen = {};  // under an adapter; none: all weights train
  bool recompute = false;
};

const Kind kKinds[] = {{"all weights"},
                       {"all weights, recomputed", {}, true},
                       {"LoRA", ops::WeightFormat::kFloat32},
                       {"LoRA on bfloat16", ops::WeightFormat::kBFloat16},
                       {"LoRA on nf4, recomputed", ops::WeightFormat::kNf4, true}};

std::unique_ptr<models::CausalLM> make(const Kind& kind) {
  auto model = tiny::model();
  if (!kind.frozen) return model;
  model->each_parameter([](const std::string&, nn::Parameter& p) { p.set_trainable(false); });
  models::set_storage(*model, {.blocks = kind.frozen});
  models::add_lora(*model, {.rank = 3, .alpha = 6}, 7);
  model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (name.find("lora_B") == name.npos) return;
    p.set_value(0.02 * at::arange(p.value().numel()).reshape(p.shape()).remainder(7) - 0.05);
  });
  return model;
}

at::Tensor log_probabilities(models::CausalLM& model, bool recompute, int64_t first) {
  auto forest = std::make_shared<Forest>();
  std::vector<int64_t> rows, target;
  for (const std::vector<int32_t>& tokens : tiny::rows(3, first)) {
    const int64_t start = forest->num_tokens();
    forest->add_root(tokens);
    for (size_t i = 1; i < tokens.size(); ++i) {
      rows.push_back(start + static_cast<int64_t>(i) - 1);
      target.push_back(tokens[i]);
    }
  }
  const at::Tensor hidden = model.forward({.forest = forest, .recompute = recompute});
  return model.token_logp(hidden, rows, target).logp;
}

// Gradients of the whole model, by name, of rows [first, first + 3); with ranks, of all of their
// rows.
tiny::Weights gradients(models::CausalLM& model, bool recompute, int64_t first) {
  log_probabilities(model, recompute, first).sum().backward();
  tiny::Weights out;
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (!p.trainable()) return;
    const at::Tensor& grad = p.trained().grad();
    at::Tensor whole = grad.defined() ? grad.clone() : at::zeros_like(p.trained());
    if (p.placement()) whole = p.placement()->whole(whole);
    whole = whole.contiguous();
    out[name].assign(whole.const_data_ptr<float>(), whole.const_data_ptr<float>() + whole.numel());
  });
  return out;
}

void on_two_ranks(
    const std::function<void(dist::Group&, const std::shared_ptr<dist::Group>&)>& work) {
  tiny::ThreadRanks(2, true).run([&](dist::Group& group) {
    const dist::Mesh mesh(group);
    work(group, mesh.data_parallel);
  });
}

}  // namespace

TEST_CASE("ranks that share out a model compute the bits of the whole model") {
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    const at::Tensor expected = log_probabilities(*make(kind), kind.recompute, 0).detach();
    on_two_ranks([&](dist::Group&, const std::shared_ptr<dist::Group>& fsdp) {
      const auto model = make(kind);
      parallel::shard(*model, fsdp);
      for (int again = 0; again < 3; ++again)  // from the second pass on the order is known
        CHECK(tiny::same_bits(log_probabilities(*model, kind.recompute, 0), expected));
    });
  }
}

TEST_CASE("gradients of parts are sums over the ranks, in the ranks' order") {
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    const tiny::Weights one = gradients(*make(kind), kind.recompute, 0),
                        two = gradients(*make(kind), kind.recompute, 3);
    on_two_ranks([&](dist::Group& group, const std::shared_ptr<dist::Group>& fsdp) {
      const auto model = make(kind);
      parallel::shard(*model, fsdp);
      const tiny::Weights found = gradients(*model, kind.recompute, 3 * group.rank());
      REQUIRE(found.size() == one.size());
      for (const auto& [name, values] : found) {
        CAPTURE(name);
        nn::Parameter* parameter = nullptr;
        model->each_parameter([&, wanted = name](const std::string& own, nn::Parameter& p) {
          if (own == wanted) parameter = &p;
        });
        // What belongs to no unit is whole, and the trainer sums its gradients.
        const tiny::Weights& mine = group.rank() == 0 ? one : two;
        // The tied weight has two gradients, of embedding and head, which are summed apart.
        const double rounding = name == "model.embed_tokens.weight" ? 1e-5 : 0;
        bool same = true;
        for (size_t i = 0; i < values.size(); ++i) {
          const float expected =
              parameter->placement() ? one.at(name)[i] + two.at(name)[i] : mine.at(name)[i];
          same = same && std::abs(double{values[i]} - expected) <= rounding;
        }
        CHECK(same);
      }
    });
  }
}

TEST_CASE("of a tensor that joins several each rank has its part of each") {
  // Three joined along rows, of 4, 2 and 2, and the same along columns.
  const at::Tensor rows = at::arange(8 * 3, at::kFloat).view({8, 3}),
                   columns = rows.t().contiguous();
  on_two_ranks([&](dist::Group& group, const std::shared_ptr<dist::Group>& ranks) {
    for (const int64_t dim : {0, 1}) {
      nn::Module owner;
      const at::Tensor whole = dim == 0 ? rows : columns;
      nn::Parameter parameter(owner, "weight", whole.sizes().vec(), {});
      parameter.set_divides(dim);
      parameter.split(ranks, {4, 2, 2});
      parameter.set_whole_value(whole);
      const std::vector<int64_t> mine =
          group.rank() == 0 ? std::vector<int64_t>{0, 1, 4, 6} : std::vector<int64_t>{2, 3, 5, 7};
      const at::Tensor part = whole.index_select(dim, at::tensor(mine));
      CHECK(at::equal(parameter.value(), part));
      CHECK(at::equal(parameter.whole_value(), whole));
      const at::Tensor flat = whole.flatten(), own = part.contiguous().flatten();
      int64_t elements = 0;
      parameter.placement()->each_run([&](int64_t from, int64_t to, int64_t count) {
        CHECK(at::equal(own.narrow(0, from, count), flat.narrow(0, to, count)));
        elements += count;
      });
      CHECK(elements == own.numel());
      nn::Parameter odd(owner, "odd", {8, 8}, {});
      odd.set_divides(dim);
      CHECK_THROWS_WITH_AS(odd.split(ranks, {3, 5}), "3 is not divisible by 2", ConfigError);
    }
  });
}

TEST_CASE("a rank keeps half of the blocks' weights, and has them whole while they are gathered") {
  on_two_ranks([](dist::Group&, const std::shared_ptr<dist::Group>& fsdp) {
    const auto model = tiny::model();
    const tiny::Weights before = tiny::weights(*model);
    parallel::shard(*model, fsdp);
    int64_t kept = 0, whole = 0;
    model->each_parameter([&](const std::string&, nn::Parameter& p) {
      if (!p.placement()) return;
      kept += p.trained().numel();
      whole += at::empty(p.whole_shape()).numel();
    });
    std::vector<double> together{static_cast<double>(kept)};
    fsdp->all_reduce_sum(together);
    CHECK(static_cast<int64_t>(together[0]) == whole);  // each element on one rank
    CHECK(kept < 0.7 * static_cast<double>(whole));
    CHECK(tiny::distance(tiny::weights(*model), before) == 0);
    const nn::Gathered gathered(*model);
    model->each_parameter([&](const std::string& name, nn::Parameter& p) {
      const float* values = p.value().const_data_ptr<float>();
      CHECK(std::equal(values, values + p.value().numel(), before.at(name).begin()));
    });
  });
}

TEST_CASE("a whole value that is set reaches the next pass, though it was gathered ahead") {
  on_two_ranks([](dist::Group&, const std::shared_ptr<dist::Group>& fsdp) {
    const auto model = tiny::model(), plain = tiny::model();
    parallel::shard(*model, fsdp);
    for (int pass = 0; pass < 3; ++pass) {
      CAPTURE(pass);
      const uint64_t changes = model->changes();
      for (models::CausalLM* one : {model.get(), plain.get()})
        one->each_parameter([&](const std::string&, nn::Parameter& p) {
          p.set_whole_value(p.whole_value().detach() * 0.75);
        });
      CHECK(model->changes() > changes);
      const at::NoGradGuard no_grad;
      CHECK(tiny::same_bits(log_probabilities(*model, false, 0),
                            log_probabilities(*plain, false, 0)));
    }
  });
}
