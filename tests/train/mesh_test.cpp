// Ranks that share out weights, gradients and optimizer state: the same training, and checkpoints
// that go on under another mesh.
#include <filesystem>
#include <fstream>

#include "temper/base/file.h"
#include "temper/nn/unit.h"
#include "temper/nn/weights/placement.h"
#include "temper/train/run/checkpoint/checkpoint.h"
#include "temper/train/run/checkpoint/checkpoint_writer.h"
#include "temper/train/run/checkpoint/snapshot.h"
#include "temper/train/run/weights_check.h"
#include "tests/train/tiny.h"

using namespace temper;
using tiny::RowsTask;

namespace {

dist::Mesh fsdp_mesh(dist::Group& group) {
  dist::Mesh mesh(group);
  mesh.data = dist::alone();
  mesh.fsdp = mesh.model = mesh.data_parallel;
  return mesh;
}

struct Trained {
  std::vector<double> losses, norms;
  tiny::Weights weights, moments;
  int64_t kept = 0;  // elements of weights that a rank keeps
};

struct Setup {
  std::string optimizer = "adamw";
  std::optional<models::LoraConfig> lora = {};
  bool recompute = false;
  double dropout = 0;
  int64_t batch = 5;
  std::string load_from = {}, save_to = {};
  int64_t steps = 3;
  bool away = false;   // what the first rank writes the others do not see
  bool later = false;  // it is saved in the background, and a step is made meanwhile
};

Trained train_on(const dist::Mesh& mesh, const Setup& setup) {
  train::OptimizerSection section = tiny::constant_rate(1e-2);
  section.name = setup.optimizer;
  if (setup.optimizer == "muon") section.momentum = 0.95;
  section.weight_decay = 0.1;
  train::Roles roles(tiny::policy(setup.lora), section);
  RowsTask task(roles, *mesh.data_parallel);
  task.batch = setup.batch;
  task.max_tokens = 24;
  task.recompute = setup.recompute;
  task.dropout = setup.dropout;
  train::Trainer trainer({}, 0, roles, mesh, task);
  CHECK(train::is_shared_out(roles.trainables) == (mesh.fsdp->size() > 1));
  if (!setup.load_from.empty()) train::Checkpoints::load(setup.load_from, roles.trainables);
  Trained out;
  for (int64_t s = 0; s < setup.steps; ++s) {
    REQUIRE(trainer.step());
    out.losses.push_back(trainer.row().number("loss").value());
    out.norms.push_back(trainer.row().number("grad_norm").value());
  }
  if (!setup.save_to.empty()) {
    const bool away = setup.away && mesh.world->rank() > 0;
    const train::Checkpoints checkpoints(setup.save_to + (away ? "/away" : ""), 1);
    bool together = false;
    if (setup.later) {
      train::CheckpointWriter writer(mesh);
      train::Checkpoints::Writing writing =
          checkpoints.begin_save(setup.steps, roles.trainables, Json::object(), {}, mesh, true);
      together = writing.together;
      writing.snapshot->complete();
      REQUIRE(trainer.step());
      writer.start(setup.steps, std::move(writing));
      CHECK(writer.wait().has_value() == (mesh.world->rank() == 0));
    } else {
      together = checkpoints.save(setup.steps, roles.trainables, Json::object(), {}, mesh);
    }
    CHECK(together == (mesh.fsdp->size() > 1 && !setup.away));
  }
  roles.policy.model->each_parameter(
      [&](const std::string&, nn::Parameter& p) { out.kept += p.trained().numel(); });
  out.weights = tiny::weights(*roles.policy.model);
  out.moments = tiny::moments(roles.trainables[0]->optimizer);
  return out;
}

// Sums of gradients in another order, three steps long.
constexpr double kReorderedThreeSteps = 1e-5;

void check_same(const Trained& found, const Trained& expected) {
  for (size_t s = 0; s < expected.losses.size(); ++s) {
    CHECK(std::abs(found.losses[s] - expected.losses[s]) < 1e-6);
    CHECK(found.norms[s] == doctest::Approx(expected.norms[s]).epsilon(1e-5));
  }
  CHECK(tiny::distance(found.weights, expected.weights) < kReorderedThreeSteps);
}

Trained on_two_ranks(const Setup& setup) {
  Trained first;
  tiny::ThreadRanks(2, true).run([&](dist::Group& group) {
    Trained mine = train_on(fsdp_mesh(group), setup);
    if (group.rank() == 0) first = std::move(mine);
  });
  return first;
}

}  // namespace

TEST_CASE("ranks that share out a model train it as one rank does") {
  const models::LoraConfig lora{.rank = 3, .alpha = 6, .dropout = 0.1};
  for (const auto& adapter : {std::optional<models::LoraConfig>(), std::optional(lora)})
    for (const bool recompute : {false, true})
      for (const int64_t batch : {5, 1}) {  // of one row, a rank has shadows alone
        CAPTURE(adapter.has_value());
        CAPTURE(recompute);
        CAPTURE(batch);
        const Setup setup{.lora = adapter,
                          .recompute = recompute,
                          .dropout = adapter ? 0.1 : 0.0,
                          .batch = batch};
        const Trained one = train_on(tiny::alone(), setup), two = on_two_ranks(setup);
        check_same(two, one);
        // An even part, but for the norm of the body and what does not divide by the alignment.
        CHECK(two.kept < 0.7 * static_cast<double>(one.kept));
      }
}

TEST_CASE("every optimizer updates what ranks share out") {
  for (const auto& entry : train::optimizers().list()) {
    CAPTURE(entry.name);
    const Setup setup{.optimizer = entry.name};
    const Trained one = train_on(tiny::alone(), setup), two = on_two_ranks(setup);
    // Lion takes signs, and 8-bit moments the nearest value: near a boundary roundings show.
    if (entry.name != "lion" && entry.name != "adamw8bit") check_same(two, one);
    CHECK(tiny::distance(two.weights, one.weights) < 1e-3);
    REQUIRE(two.moments.size() == one.moments.size());
    for (const auto& [name, values] : one.moments)
      CHECK(two.moments.at(name).size() == values.size());
  }
}

TEST_CASE("a checkpoint of one mesh goes on under another, to the bit") {
  for (const std::string optimizer : {"adamw", "muon"}) {
    CAPTURE(optimizer);
    const tiny::Folder folder;
    Setup setup{.optimizer = optimizer, .save_to = folder / "two"};
    const Trained two = on_two_ranks(setup);
    const Setup resume{
        .optimizer = optimizer, .load_from = folder / "two/checkpoints/step-3", .steps = 0};
    const Trained on_one = train_on(tiny::alone(), resume), again = on_two_ranks(resume);
    CHECK((on_one.weights == two.weights));
    CHECK((on_one.moments == two.moments));
    CHECK((again.weights == two.weights));
    CHECK((again.moments == two.moments));
  }
}

namespace {

// A rank of a group that exchanges nothing.
struct Place : dist::Group {
  Place(int rank_, int size_) : r(rank_), n(size_) {}
  int rank() const override { return r; }
  int size() const override { return n; }
  void all_reduce_sum(at::Tensor&) override {}
  void barrier() override {}
  int r, n;
};

}  // namespace

TEST_CASE("the runs of the ranks' parts are the whole tensor, each element once") {
  const at::Tensor whole = at::arange(4 * 6 * 2).view({4, 6, 2});
  for (const int tensor : {1, 2})
    for (const int64_t dim : {0, 1, 2})
      for (const int fsdp : {1, 3}) {
        CAPTURE(tensor);
        CAPTURE(dim);
        CAPTURE(fsdp);
        const int64_t count = whole.numel() / tensor;
        std::vector<int> seen(static_cast<size_t>(whole.numel()));
        for (int t = 0; t < tensor; ++t)
          for (int f = 0; f < fsdp; ++f) {
            nn::Placement placement{.whole_shape = {4, 6, 2}, .dim = dim};
            if (tensor > 1) placement.tensor = std::make_shared<Place>(t, tensor);
            if (fsdp > 1) placement.fsdp = std::make_shared<Place>(f, fsdp);
            placement.bounds = {0, 7, 7, count};  // of the second nothing
            const at::Tensor part = placement.part(whole).view({-1});
            placement.each_run([&](int64_t from, int64_t to, int64_t length) {
              for (int64_t i = 0; i < length; ++i) {
                CHECK(part[from + i].item<int64_t>() == to + i);
                ++seen[static_cast<size_t>(to + i)];
              }
            });
          }
        CHECK(seen == std::vector<int>(seen.size(), 1));
      }
}

TEST_CASE("ranks write side by side what the first of them writes where it alone sees the files") {
  const std::optional<models::LoraConfig> lora{{.rank = 3, .alpha = 6}};
  for (const std::string optimizer : {"adamw", "muon", "adafactor", "adamw8bit"})
    for (const auto& adapter : {std::optional<models::LoraConfig>(), lora}) {
      CAPTURE(optimizer);
      CAPTURE(adapter.has_value());
      const tiny::Folder folder;
      for (const bool away : {false, true})
        on_two_ranks({.optimizer = optimizer,
                      .lora = adapter,
                      .save_to = folder / (away ? "away" : "together"),
                      .away = away});
      for (const bool away : {false, true})
        on_two_ranks({.optimizer = optimizer,
                      .lora = adapter,
                      .save_to = folder / (away ? "later-away" : "later"),
                      .away = away,
                      .later = true});
      CHECK_FALSE(std::filesystem::exists(folder / "away/away/checkpoints"));
      for (const std::string file : {"policy.safetensors", "policy.optimizer.safetensors"}) {
        const std::string path = "/checkpoints/step-3/" + file;
        const std::string together = read_file(folder / ("together" + path), 1 << 24);
        CHECK(together.size() > 1000);
        for (const std::string other : {"away", "later", "later-away"})
          CHECK(together == read_file(folder / (other + path), 1 << 24));
      }
    }
}

TEST_CASE("a weight that is shared out is read only while it is gathered") {
  tiny::ThreadRanks(2, true).run([&](dist::Group& group) {
    train::Roles roles(tiny::policy(), tiny::constant_rate(1e-2));
    RowsTask task(roles, group);
    const tiny::Weights before = tiny::weights(*roles.policy.model);
    train::Trainer trainer({}, 0, roles, fsdp_mesh(group), task);
    nn::Parameter& weight = roles.policy.model->body().embedding().weight;
    CHECK_THROWS_AS(weight.value(), RunError);
    CHECK_THROWS_AS(weight.stored(), RunError);
    {
      const nn::Gathered whole(*roles.policy.model), nested(*roles.policy.model);
      const float* values = weight.value().const_data_ptr<float>();
      CHECK(std::equal(values, values + weight.value().numel(),
                       before.at("model.embed_tokens.weight").begin()));
    }
    CHECK_THROWS_AS(weight.value(), RunError);
  });
}

TEST_CASE("a rank whose weights become others is found, with the parameter") {
  const auto errors_of = [](int64_t every) {
    std::vector<std::string> errors(2);
    tiny::ThreadRanks(2).run([&](dist::Group& group) {
      const dist::Mesh mesh(group);
      train::Roles roles(tiny::policy(), tiny::constant_rate(1e-2));
      RowsTask task(roles, *mesh.data_parallel);
      std::vector<std::unique_ptr<train::Hook>> hooks;
      hooks.push_back(train::weights_check(every, roles, mesh));
      train::Trainer trainer({}, 0, roles, mesh, task, std::move(hooks));
      for (int64_t s = 0; s < 2; ++s) REQUIRE(trainer.step());
      if (group.rank() == 1) {
        nn::Parameter& weight = roles.policy.model->body().embedding().weight;
        auto* bits = static_cast<uint32_t*>(weight.value().mutable_data_ptr());
        bits[7] ^= 1 << 20;  // of the mantissa: a memory fault
        weight.mark_updated();
      }
      try {
        while (trainer.steps_made() < 4) trainer.step();
      } catch (const train::WeightsDiffer& e) {
        errors[static_cast<size_t>(group.rank())] = e.what();
      }
    });
    CHECK(errors[0] == errors[1]);
    return errors[0];
  };
  const std::string each = errors_of(1), second = errors_of(2);
  CHECK(each.find("step 3: rank 1 on ") == 0);
  CHECK(each.find("(model.embed_tokens.weight)") != std::string::npos);
  CHECK(each.find("after step 2") != std::string::npos);
  CHECK(second.find("step 4: rank 1 on ") == 0);
  CHECK(errors_of(0).empty());
  CHECK(errors_of(3).find("at the start of this process") != std::string::npos);
}

namespace {

// Runs two steps on each of several ranks, of which the first one's weights, or moments, are made
// others before the second. What each rank's run threw.
std::vector<std::string> run_with_fault(const tiny::Folder& folder, int ranks, bool in_moments,
                                        bool at_start) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  tiny::ThreadRanks(ranks).run([&](dist::Group& group) {
    const dist::Mesh mesh(group);
    const bool faulty = group.rank() == 0;
    train::Roles roles(tiny::policy({}, at_start && faulty ? 4 : 3), tiny::constant_rate(1e-2));
    RowsTask task(roles, *mesh.data_parallel);
    train::RunConfig config;
    config.output_dir = folder / "run";
    config.verb = "test";
    config.metrics.sinks = {"jsonl"};
    config.train.max_steps = 2;
    config.train.save_every = 1;
    struct Fault : train::Hook {
      explicit Fault(std::function<void(int64_t)> make_fault) : make(std::move(make_fault)) {}
      void after_step(const MetricsRow& row) override { make(row.step()); }
      std::function<void(int64_t)> make;
    };
    std::vector<std::unique_ptr<train::Hook>> hooks;
    hooks.push_back(train::weights_check(100, roles, mesh));
    hooks.push_back(std::make_unique<Fault>([&](int64_t step) {
      if (!faulty || at_start || step < 2) return;
      train::Optimizer& optimizer = roles.trainables[0]->optimizer;
      if (in_moments)
        optimizer.each_own_state([](const std::string& name, const at::Tensor& state) {
          if (name == "model.norm.weight.second") at::Tensor(state).mul_(2);
        });
      else
        at::Tensor(roles.policy.model->body().embedding().weight.trained().detach()).mul_(2);
    }));
    std::ostringstream console;
    train::RunDirectory directory(config, {console, false, [] { return false; }}, mesh);
    train::Trainer trainer(config.train, 0, roles, mesh, task, std::move(hooks));
    try {
      trainer.run(directory);
    } catch (const train::WeightsDiffer& e) {
      errors[static_cast<size_t>(group.rank())] = e.what();
    }
  });
  return errors;
}

}  // namespace

TEST_CASE("what ranks hold differently is not saved, and the rank that is alone with it named") {
  for (const bool in_moments : {false, true}) {
    CAPTURE(in_moments);
    const tiny::Folder folder;
    const std::vector<std::string> errors = run_with_fault(folder, 3, in_moments, false);
    CHECK(errors[1] == errors[0]);
    CHECK(errors[2] == errors[0]);
    CHECK(errors[0].find("step 2: rank 0 on ") == 0);
    CHECK(errors[0].find("than rank 1 on ") != std::string::npos);
    CHECK(errors[0].find(" and 1 more (") != std::string::npos);
    CHECK(errors[0].find(in_moments ? "(model.norm.weight.second)"
                                    : "(model.embed_tokens.weight)") != std::string::npos);
    CHECK(errors[0].find("the same after step 1") != std::string::npos);
    CHECK(std::filesystem::exists(folder / "run/checkpoints/step-1/state.json"));
    CHECK_FALSE(std::filesystem::exists(folder / "run/checkpoints/step-2"));
    CHECK_FALSE(std::filesystem::exists(folder / "run/final"));
  }
  const tiny::Folder folder;
  const std::vector<std::string> errors = run_with_fault(folder, 3, false, true);
  CHECK(errors[0] == errors[2]);
  CHECK(errors[0].find("rank 0 on ") == 0);
  CHECK(errors[0].find("at the start: all hosts must read the same") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder / "run/checkpoints"));
}
