// Models that do not train, and forward passes over trees.
#include "temper/train/roles/roles.h"

#include "tests/train/tiny.h"

using namespace temper;
using Kind = train::FrozenSource::Kind;

namespace {

train::ForwardPass pass_of_rows() {
  train::ForwardPass pass;
  int64_t tag = 0;
  static const tiny::Rows rows = tiny::rows(5);
  for (const std::vector<int32_t>& row : rows) {
    pass.add({{{-1, row, row, tag}}}, static_cast<uint64_t>(tag));
    ++tag;
  }
  return pass;
}

at::Tensor logp_of(models::CausalLM& model, double temperature) {
  const at::NoGradGuard no_grad;
  return train::token_logp(model, pass_of_rows(), {.temperature = temperature}).logp;
}

// Moves every trainable weight, as training does.
void move_weights(models::CausalLM& model, double by) {
  const at::NoGradGuard no_grad;
  for (const train::NamedParameter& p : train::trainable_parameters(model)) {
    at::Tensor value = p.parameter->value();
    value.add_(by);
    p.parameter->mark_updated();
  }
}

}  // namespace

TEST_CASE("a policy without its adapter is its base to the bit; a frozen copy is what it was") {
  const std::unique_ptr<models::CausalLM> base = tiny::model();
  models::LoraConfig lora;
  lora.rank = 4;
  train::Policy policy = tiny::policy(lora);
  move_weights(*policy.model, 0.01);
  const auto without = train::FrozenSource{Kind::kBase}.load(policy);
  const auto copy = train::FrozenSource{Kind::kAdapter}.load(policy);
  const train::ForwardPass pass = pass_of_rows();
  for (const double temperature : {1.0, 0.7}) {
    const at::Tensor policy_now = logp_of(*policy.model, temperature);
    CHECK(tiny::same_bits(without->token_logp(pass, temperature), logp_of(*base, temperature)));
    CHECK(tiny::same_bits(copy->token_logp(pass, temperature), policy_now));
    CHECK_FALSE(tiny::same_bits(policy_now, logp_of(*base, temperature)));
  }
  const at::Tensor before = logp_of(*policy.model, 1);
  move_weights(*policy.model, 0.02);
  CHECK(tiny::same_bits(without->token_logp(pass, 1), logp_of(*base, 1)));
  CHECK(tiny::same_bits(copy->token_logp(pass, 1), before));
  CHECK_FALSE(tiny::same_bits(logp_of(*policy.model, 1), before));
  CHECK_FALSE(copy->token_logp(pass, 1).requires_grad());
}

TEST_CASE(
    "a tree's tokens have the log-probabilities of its paths; a parent predicts its children" *
    doctest::test_suite("exact")) {
  const std::vector<int32_t> prompt{5, 9, 14}, left{20, 21, 22, 2}, right{30, 31},
      below{40, 41, 42};
  train::ForwardPass tree;
  tree.add({{{-1, prompt, {}, 0}, {0, left, left, 1}, {0, right, {}, 2}, {2, below, below, 3}}}, 0);
  REQUIRE(tree.spans.size() == 2);
  CHECK((tree.row_M == std::vector<int64_t>{2, 3, 4, 5, 8, 9, 10}));
  CHECK((tree.target_M == std::vector<int64_t>{20, 21, 22, 2, 40, 41, 42}));
  CHECK(tree.spans[1].tag == 3);
  CHECK(tree.forest->num_tokens() == 12);

  const auto row = [](std::vector<std::vector<int32_t>> parts) {
    std::vector<int32_t> all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const std::vector<int32_t> first = row({prompt, left}), second = row({prompt, right, below});
  const auto labels = [](size_t passed, const std::vector<int32_t>& tokens) {
    std::vector<int32_t> out = tokens;
    std::fill(out.begin(), out.begin() + static_cast<int64_t>(passed), -100);
    return out;
  };
  const std::vector<int32_t> first_labels = labels(3, first), second_labels = labels(5, second);
  train::ForwardPass rows;
  rows.add({{{-1, first, first_labels, 1}}}, 0);
  rows.add({{{-1, second, second_labels, 3}}}, 1);
  const at::NoGradGuard no_grad;
  const std::unique_ptr<models::CausalLM> model = tiny::model();
  const auto of_tree = train::token_logp(*model, tree, {.entropy = true});
  const auto of_rows = train::token_logp(*model, rows, {.entropy = true});
  CHECK(tiny::same_bits(of_tree.logp, of_rows.logp));
  CHECK(tiny::same_bits(of_tree.entropy, of_rows.entropy));
}

TEST_CASE("the first label of a root has nothing before it, and units are shared out by tokens") {
  const std::vector<int32_t> row{3, 4, 5};
  train::ForwardPass pass;
  pass.add({{{-1, row, row, 7}}}, 0);
  CHECK((pass.target_M == std::vector<int64_t>{4, 5}));
  const tiny::Rows rows = tiny::rows(20);
  std::vector<train::PackUnit> units;
  for (size_t i = 0; i < rows.size(); ++i)
    units.push_back({{{-1, rows[i], rows[i], static_cast<int64_t>(i)}}});
  std::set<int64_t> seen;
  for (const int rank : {0, 1, 2})
    for (const train::ForwardPass& p : train::plan_passes(units, 30, rank, 3)) {
      CHECK(p.forest->num_tokens() <= 30);
      for (const auto& span : p.spans) CHECK(seen.insert(span.tag).second);
    }
  CHECK(seen.size() == rows.size());
  CHECK(train::plan_passes(units, 0).size() == rows.size());
}
