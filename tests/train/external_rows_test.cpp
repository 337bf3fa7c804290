// Passes of training with rows in place of tokens' embeddings.
#include "tests/external_rows.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <memory>

#include "temper/base/error.h"
#include "temper/distill/teacher_file.h"
#include "temper/models/files/load.h"
#include "temper/preference/sides.h"
#include "temper/rl/batch.h"
#include "temper/train/forward_pass.h"
#include "temper/train/sft/sft_evaluation.h"
#include "temper/train/task.h"
#include "tests/golden.h"
#include "tests/models/golden.h"

using namespace temper;
using external_rows::replaced;
using external_rows::Row;

namespace {

constexpr const char* kTable = "model.embed_tokens.weight";

std::vector<int32_t> row_of(int64_t count, int64_t seed) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<int32_t>(3 + (i * i * 5 + seed * 17 + i) % 55));
  return tokens;
}

using Gradients = std::map<std::string, at::Tensor>;
using LossOf = std::function<at::Tensor(const train::ForwardPass&, const at::Tensor& logp_M)>;

// The loss over passes of the units, and the gradients of all parameters.
struct Outcome {
  double loss = 0;
  std::vector<at::Tensor> logp;
  Gradients gradients;
};
Outcome trained(models::CausalLM& model, const std::vector<train::PackUnit>& units,
                const LossOf& loss_of, bool recompute = false) {
  model.each_parameter(
      [](const std::string&, nn::Parameter& p) { p.value().mutable_grad() = at::Tensor(); });
  Outcome out;
  for (const train::ForwardPass& pass : train::plan_passes(units, 80)) {
    const at::Tensor logp = train::token_logp(model, pass, {.recompute = recompute}).logp,
                     loss = loss_of(pass, logp);
    torch::autograd::backward({loss}, {at::Tensor()});
    out.loss += loss.item<double>();
    out.logp.push_back(logp.detach());
  }
  model.each_parameter([&](const std::string& name, nn::Parameter& p) {
    if (p.value().grad().defined()) out.gradients[name] = p.value().grad().clone();
  });
  return out;
}

// All but the gradient of the table, which rows have no part in.
void check_same(const Outcome& found, const Outcome& expected) {
  CHECK(found.loss == expected.loss);
  REQUIRE(found.logp.size() == expected.logp.size());
  for (size_t i = 0; i < found.logp.size(); ++i) CHECK(at::equal(found.logp[i], expected.logp[i]));
  REQUIRE(found.gradients.size() == expected.gradients.size());
  CHECK(expected.gradients.size() > 10);
  for (const auto& [name, gradient] : expected.gradients) {
    CAPTURE(name);
    if (name != kTable) CHECK(at::equal(found.gradients.at(name), gradient));
  }
}

at::Tensor nll(const train::ForwardPass& pass, const at::Tensor& logp_M) {
  return -logp_M.sum() / static_cast<double>(pass.num_targets());
}

}  // namespace

TEST_CASE("supervised rows: embeddings handed in give the bits of their tokens, and gradients") {
  for (const std::string& name : external_rows::kModels) {
    CAPTURE(name);
    const auto model = models::load_model(golden_model(name));
    train_all(*model);
    data::SftRow a, b;
    a.segments.push_back({-1, row_of(30, 1), row_of(30, 1)});
    a.segments.push_back({0, row_of(12, 2), row_of(12, 2)});
    a.segments.push_back({0, row_of(9, 3), row_of(9, 3)});
    b.segments.push_back({-1, row_of(17, 4), row_of(17, 4)});
    std::vector<train::PackUnit> units{train::unit_of(a), train::unit_of(b)};
    const Outcome expected = trained(*model, units, nll);

    // Rows in a root, at a child's beginning, and in all of a root.
    std::vector<Row> rows{replaced(*model, row_of(30, 1), 4, 21, "a"),
                          replaced(*model, row_of(12, 2), 0, 5, "b"),
                          replaced(*model, row_of(17, 4), 0, 17, "c")};
    const auto put = [&](train::PackUnit::Segment& segment, const Row& row) {
      segment.tokens = row.tokens;
      segment.rows = row.rows;
    };
    put(units[0].segments[0], rows[0]);
    put(units[0].segments[1], rows[1]);
    put(units[1].segments[0], rows[2]);
    check_same(trained(*model, units, nll), expected);
    check_same(trained(*model, units, nll, true), expected);

    // What flows to the features is what the table would have got from their tokens.
    for (const Row& row : rows) row.rows[0].features.set_requires_grad(true);
    const Outcome found = trained(*model, units, nll);
    check_same(found, expected);
    at::Tensor table = found.gradients.at(kTable).clone();
    const double scale = model->body().embedding().scale;
    const std::vector<std::vector<int32_t>> tokens{row_of(30, 1), row_of(12, 2), row_of(17, 4)};
    for (size_t i = 0; i < rows.size(); ++i) {
      const ExternalRows& r = rows[i].rows[0];
      const at::Tensor gradient = r.features.grad();
      REQUIRE(gradient.defined());
      CHECK(gradient[0].abs().max().item<float>() == 0);  // a row that no token reads
      // The last token of a row predicts nothing.
      CHECK(gradient.abs().sum(1).narrow(0, r.first, r.count - 1).min().item<float>() > 0);
      for (int64_t t = 0; t < r.count; ++t)
        table[tokens[i][static_cast<size_t>(r.begin + t)]] += scale * gradient[r.first + t];
    }
    const at::Tensor& whole = expected.gradients.at(kTable);
    CHECK(difference(table, whole) < 1e-5 * whole.abs().max().item<double>());
    CHECK(difference(found.gradients.at(kTable), whole) > 1e-3 * whole.abs().max().item<double>());
  }
}

TEST_CASE("preference pairs: rows in what both sides share give the bits of their tokens") {
  for (const char* name : {"llama", "gemma", "mixtral", "lfm2"}) {
    CAPTURE(name);
    const auto model = models::load_model(golden_model(name));
    train_all(*model);
    std::vector<preference::PreferenceRow> pairs(3);
    std::vector<train::PackUnit> units;
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto seed = static_cast<int64_t>(i);
      const std::vector<int32_t> prompt = row_of(25, 3 * seed), chosen = row_of(8, 3 * seed + 1),
                                 rejected = row_of(5, 3 * seed + 2);
      pairs[i].segments = {
          {-1, true, true, true, prompt, std::vector<int32_t>(prompt.size(), -100)},
          {0, true, false, false, chosen, chosen},
          {0, false, true, false, rejected, rejected}};
      units.push_back(preference::unit_of(pairs[i], seed, preference::Targets::kCompletions));
    }
    const LossOf dpo = [](const train::ForwardPass& pass, const at::Tensor& logp_M) {
      const auto sum = [&](preference::Side side) {
        return preference::side_targets(pass, side).sum(logp_M);
      };
      return -at::log_sigmoid(0.1 *
                              (sum(preference::Side::kChosen) - sum(preference::Side::kRejected)))
                  .sum();
    };
    const Outcome expected = trained(*model, units, dpo);
    std::vector<Row> rows;
    for (size_t i = 0; i < units.size(); ++i)
      rows.push_back(replaced(*model, pairs[i].segments[0].tokens, 2, 19, str("digest ", i)));
    for (size_t i = 0; i < units.size(); ++i) {
      units[i].segments[0].tokens = rows[i].tokens;
      units[i].segments[0].rows = rows[i].rows;
    }
    check_same(trained(*model, units, dpo), expected);
  }
}

TEST_CASE("a group's completions read the rows of their prompt to the bits of its tokens") {
  for (const char* name : {"llama", "gemma", "mixtral", "qwen3_next"}) {
    CAPTURE(name);
    const auto model = models::load_model(golden_model(name));
    train_all(*model);
    std::vector<rl::EpisodeGroup> groups(2);
    for (size_t g = 0; g < groups.size(); ++g) {
      const auto seed = static_cast<int64_t>(g);
      groups[g].segments.push_back({.tokens = row_of(20 + 5 * seed, seed)});
      for (int32_t e = 0; e < 3; ++e) {
        groups[g].segments.push_back(
            {.parent = 0, .tokens = row_of(6 + e, 7 * seed + e), .sampled = true});
        groups[g].episodes.push_back({.sample = e, .path = {e + 1}});
      }
    }
    const rl::TrainingBatch batch(std::move(groups));
    std::vector<train::PackUnit> units = batch.units(0, 6, 80);
    REQUIRE(units.size() == 2);
    const LossOf policy_gradient = [](const train::ForwardPass& pass, const at::Tensor& logp_M) {
      at::Tensor advantage_M = at::empty({pass.num_targets()});
      for (const train::ForwardPass::Span& span : pass.spans)
        advantage_M.narrow(0, span.begin, span.end - span.begin)
            .fill_(static_cast<double>(span.tag % 3) - 1.2);
      return -((logp_M - logp_M.detach()).exp() * advantage_M).sum();
    };
    const Outcome expected = trained(*model, units, policy_gradient);
    std::vector<Row> rows;
    for (const train::PackUnit& unit : units) {
      const std::vector<int32_t> prompt(unit.segments[0].tokens.begin(),
                                        unit.segments[0].tokens.end());
      rows.push_back(replaced(*model, prompt, 5, 18, str("digest ", rows.size())));
    }
    for (size_t u = 0; u < units.size(); ++u) {
      units[u].segments[0].tokens = rows[u].tokens;
      units[u].segments[0].rows = rows[u].rows;
    }
    check_same(trained(*model, units, policy_gradient), expected);
  }
}

TEST_CASE("a teacher's file tells prefixes with the same placeholders apart by their digests") {
  const std::vector<int32_t> tokens(9, 60);
  const auto prefixes = [&](std::vector<ExternalRows> rows) {
    train::PackUnit unit;
    unit.segments.push_back({-1, std::span(tokens).first(5), {}, 0});
    unit.segments.push_back({0, std::span(tokens).last(4), std::span(tokens).last(4), 1});
    unit.segments[0].rows = rows;
    train::ForwardPass pass;
    pass.add(unit, 0);
    return distill::prefixes_of(pass);
  };
  const at::Tensor features = at::zeros({9, 4});
  const std::vector<std::vector<int64_t>> all{
      prefixes({}), prefixes({{1, 3, features, 0, "a"}}), prefixes({{1, 3, features, 0, "b"}}),
      prefixes({{1, 3, features, 1, "a"}}), prefixes({{1, 2, features, 0, "a"}})};
  CHECK(all[1] == prefixes({{1, 3, at::zeros({3, 4}), 0, "a"}}));
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) CHECK(all[i].front() != all[j].front());
}

TEST_CASE("rows are what the first layer reads: not scaled, without noise; layers look tokens up") {
  const auto model = models::load_model(golden_model("gemma4_text"));
  const std::vector<int32_t> tokens = row_of(8, 1);
  const at::Tensor features = at::arange(60.0).view({3, 20}).to(at::kFloat);
  auto forest = std::make_shared<Forest>(), plain = std::make_shared<Forest>();
  const std::vector<ExternalRows> rows{{2, 3, features, 0, "x"}};
  forest->add_root(tokens);
  forest->add_root(tokens, 0, rows);
  for (int i = 0; i < 2; ++i) plain->add_root(tokens);
  nn::DropoutKeys noise;
  noise.noise_alpha = 5;
  for (uint64_t t = 0; t < 16; ++t) {
    noise.token.push_back(t);
    noise.row_tokens.push_back(8);
  }
  nn::Embedding& embedding = model->body().embedding();
  const at::Tensor x = embedding.forward({.forest = forest, .dropout = &noise}),
                   all = embedding.forward({.forest = plain, .dropout = &noise});
  CHECK(at::equal(x.narrow(0, 10, 3), features));
  CHECK(at::equal(x.narrow(0, 0, 10), all.narrow(0, 0, 10)));
  CHECK(at::equal(x.narrow(0, 13, 3), all.narrow(0, 13, 3)));

  const auto hidden = [&](int32_t placeholder) {
    auto one = std::make_shared<Forest>();
    std::vector<int32_t> placed = tokens;
    std::fill(placed.begin() + 2, placed.begin() + 5, placeholder);
    one->add_root(placed, 0, rows);
    return model->forward({.forest = one});
  };
  CHECK(at::equal(hidden(9), hidden(9)));
  CHECK_FALSE(at::equal(hidden(9), hidden(10)));  // the embeddings of layers are the placeholder's

  const std::vector<ExternalRows> narrow{{2, 3, features.narrow(1, 0, 19), 0, "x"}};
  auto wrong = std::make_shared<Forest>();
  wrong->add_root(tokens, 0, narrow);
  CHECK_THROWS_WITH_AS(model->forward({.forest = wrong}),
                       doctest::Contains("external rows of 19 numbers"), RunError);
}

TEST_CASE("a step counts the images that begin in its units, and all tokens that stand for them") {
  const std::shared_ptr<const Image> image = Image::open({"grey.png"}, golden_path("images/files"));
  // Two tiles of one image, with other tokens between; the end of an image that began before.
  const ImageSpans root{{1, 3, 0, image, nullptr}, {6, 3, 3, image, nullptr}},
      child{{0, 2, 1, image, nullptr}, {4, 1, 0, image, nullptr}};
  const std::vector<int32_t> tokens = row_of(12, 1);
  train::PackUnit unit;
  unit.segments.push_back({.tokens = tokens, .images = root});
  unit.segments.push_back({.parent = 0, .tokens = tokens, .images = child});
  const std::vector<train::PackUnit> units{unit, unit};
  train::StepPlan plan;
  plan.count_images(units);
  CHECK(plan.images == 4);
  CHECK(plan.image_tokens == 18);
}
