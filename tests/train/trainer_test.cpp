// The trainer with a task of its own: what a step computes however it is split.
#include "temper/train/trainer.h"

#include "tests/train/tiny.h"

using namespace temper;
using tiny::RowsTask;

namespace {

// SGD whose momentum buffer is, after the first step, the gradient.
train::OptimizerSection plain_gradient() {
  train::OptimizerSection section = tiny::constant_rate(0.1);
  section.name = "sgd";
  section.momentum = 0.5;
  section.max_grad_norm = 0;
  return section;
}

struct Step {
  tiny::Weights gradient;
  MetricsRow row;
};

// The first step of a task that `set` prepares.
Step first_step(const std::function<void(RowsTask&)>& set, dist::Group& group = tiny::alone(),
                std::optional<models::LoraConfig> lora = {}) {
  train::Roles roles(tiny::policy(lora), plain_gradient());
  RowsTask task(roles, group);
  set(task);
  train::Trainer trainer({}, 0, roles, group, task);
  REQUIRE(trainer.step());
  return {tiny::moments(roles.trainables[0]->optimizer), trainer.row()};
}

double loss_of(const Step& step) { return step.row.number("loss").value(); }

// Float32 sums over some hundred tokens, in another order: a few roundings of 6e-8 each.
constexpr double kReordered = 3e-6;
// Sums in double of the same float32 numbers.
constexpr double kReorderedDouble = 1e-13;

}  // namespace

TEST_CASE("a step in many passes is the step in one") {
  for (const bool two_terms : {false, true}) {
    CAPTURE(two_terms);
    const Step one = first_step([&](RowsTask& t) {
      t.two_terms = two_terms;
      t.max_tokens = 4096;
    });
    CHECK(one.row.number("loss/square").has_value() == two_terms);
    for (const int64_t max_tokens : {int64_t{40}, int64_t{15}, int64_t{0}}) {  // 0: without packing
      CAPTURE(max_tokens);
      const Step many = first_step([&](RowsTask& t) {
        t.two_terms = two_terms;
        t.max_tokens = max_tokens;
      });
      CHECK(loss_of(many) == doctest::Approx(loss_of(one)).epsilon(kReorderedDouble));
      CHECK(tiny::distance(many.gradient, one.gradient) < kReordered);
      CHECK(many.row.find("mean_target") != nullptr);
      CHECK(*many.row.find("mean_target") == *one.row.find("mean_target"));
    }
  }
}

TEST_CASE(
    "the loss is its terms' sums over their denominators, and a mean its sum over its count") {
  const Step step = first_step([](RowsTask& t) { t.two_terms = true; });
  const double nll = step.row.number("loss/nll").value(),
               square = step.row.number("loss/square").value();
  CHECK(loss_of(step) == doctest::Approx(nll + square).epsilon(kReorderedDouble));

  const std::unique_ptr<models::CausalLM> model = tiny::model();
  double logps = 0, squares = 0, ids = 0, count = 0;
  for (const std::vector<int32_t>& row : tiny::rows(6)) {
    train::ForwardPass pass;
    pass.add({{{-1, row, row, 0}}}, 0);
    const at::NoGradGuard no_grad;
    const at::Tensor logp_M = train::token_logp(*model, pass, {}).logp;
    for (int64_t i = 0; i < pass.num_targets(); ++i) {
      const double logp = logp_M[i].item<float>();
      const int64_t id = pass.target_M[static_cast<size_t>(i)];
      logps += logp;
      squares += static_cast<double>(id % 3) * logp * logp;
      ids += static_cast<double>(id);
      ++count;
    }
  }
  CHECK(nll == doctest::Approx(-logps / count).epsilon(1e-12));
  CHECK(square == doctest::Approx(0.1 * squares / 6).epsilon(1e-6));  // products in float32
  CHECK(step.row.number("mean_target").value() == doctest::Approx(ids / count).epsilon(1e-15));
  CHECK(step.row.number("supervised_tokens") == count);
  CHECK(step.row.number("tokens") == count + 6);
}

TEST_CASE("dropout's random numbers do not depend on the split") {
  models::LoraConfig lora;
  lora.rank = 4;
  lora.dropout = 0.3;
  const auto run = [&](int64_t max_tokens, double dropout) {
    return first_step(
        [&](RowsTask& t) {
          t.max_tokens = max_tokens;
          t.dropout = dropout;
        },
        tiny::alone(), lora);
  };
  const Step one = run(4096, 0.3);
  for (const int64_t max_tokens : {40, 15, 0}) {
    const Step many = run(max_tokens, 0.3);
    CHECK(loss_of(many) == doctest::Approx(loss_of(one)).epsilon(kReorderedDouble));
    CHECK(tiny::distance(many.gradient, one.gradient) < kReordered);
  }
  CHECK(tiny::distance(run(4096, 0).gradient, one.gradient) > 1e-2);
}

TEST_CASE("ranks make the step that one makes, and end with the same weights as each other" *
          doctest::test_suite("exact")) {
  const auto set = [](RowsTask& t) {
    t.two_terms = true;
    t.batch = 7;
  };
  const Step one = first_step(set);
  for (const int size : {2, 3, 8}) {  // of eight, one has no row
    CAPTURE(size);
    std::vector<Step> steps(static_cast<size_t>(size));
    tiny::ThreadRanks(size).run([&](dist::Group& group) {
      steps[static_cast<size_t>(group.rank())] = first_step(set, group);
    });
    for (const Step& step : steps) {
      CHECK(loss_of(step) == doctest::Approx(loss_of(one)).epsilon(kReorderedDouble));
      CHECK(step.row.number("loss/square").value() ==
            doctest::Approx(one.row.number("loss/square").value()).epsilon(kReorderedDouble));
      CHECK(*step.row.find("mean_target") == *one.row.find("mean_target"));
      CHECK(*step.row.find("tokens_computed") == *one.row.find("tokens_computed"));
      CHECK(tiny::distance(step.gradient, one.gradient) < kReordered);
      CHECK(step.gradient == steps[0].gradient);
    }
  }
}

TEST_CASE(
    "a loss that is no number leaves the weights as they were, and the step can be made again") {
  for (const bool fails : {false, true}) {
    CAPTURE(fails);
    train::Roles roles(tiny::policy(), tiny::constant_rate(1e-3));
    RowsTask task(roles, tiny::alone());
    task.max_tokens = 20;
    train::Trainer trainer({}, 0, roles, tiny::alone(), task);
    REQUIRE(trainer.step());
    const tiny::Weights before = tiny::weights(*roles.policy.model);
    const tiny::Weights moments = tiny::moments(roles.trainables[0]->optimizer);
    if (fails)
      task.fail_at_loss = {2};  // at its second pass
    else
      task.nan_at = {2};
    CHECK_THROWS_AS(trainer.step(), RunError);
    CHECK(trainer.steps_made() == 1);
    CHECK((tiny::weights(*roles.policy.model) == before));
    CHECK((tiny::moments(roles.trainables[0]->optimizer) == moments));
    task.nan_at = task.fail_at_loss = {};
    REQUIRE(trainer.step());

    train::Roles other_roles(tiny::policy(), tiny::constant_rate(1e-3));
    RowsTask other_task(other_roles, tiny::alone());
    other_task.max_tokens = 20;
    train::Trainer other({}, 0, other_roles, tiny::alone(), other_task);
    REQUIRE(other.step());
    REQUIRE(other.step());
    CHECK(tiny::numbers(trainer.row()) == tiny::numbers(other.row()));
    CHECK((tiny::weights(*roles.policy.model) == tiny::weights(*other_roles.policy.model)));
  }
}

TEST_CASE("a program's own loop learns, and ends with the plan") {
  train::Roles roles(tiny::policy(), tiny::constant_rate(1e-2));
  RowsTask task(roles, tiny::alone());
  task.batch = 12;
  task.steps = 25;
  train::TrainSection section;
  train::Trainer trainer(section, 0, roles, tiny::alone(), task);
  CHECK(trainer.planned_steps() == 25);
  std::vector<double> losses;
  while (trainer.step()) losses.push_back(trainer.row().number("loss").value());
  REQUIRE(losses.size() == 25);
  CHECK(losses.back() < losses.front() - 1);
  CHECK_FALSE(trainer.step());
  section.max_steps = 2;
  CHECK(train::Trainer(section, 0, roles, tiny::alone(), task).planned_steps() == 2);
}
