// Every strategy against torch and transformers (tests/golden/make_distill_goldens.py): losses,
// gradient norms, and a tensor after a step.
#include <cstring>

#include "temper/distill/task.h"
#include "tests/differences.h"
#include "tests/distill/runs.h"

using namespace temper;

namespace {

void check_near(const std::vector<float>& found, const Json& expected) {
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    CHECK(found[i] == doctest::Approx(expected[i].get<double>()).epsilon(2e-5));
}

std::vector<float> numbers(const at::Tensor& x) {
  const at::Tensor flat = x.detach().contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

void set_maps(distill::Strategy& strategy, const Json& maps) {
  size_t next = 0;
  strategy.maps()->each_parameter([&](const std::string&, nn::Parameter& parameter) {
    const auto values = maps[next++].get<std::vector<float>>();
    const at::NoGradGuard no_grad;
    REQUIRE(static_cast<int64_t>(values.size()) == parameter.value().numel());
    std::memcpy(parameter.value().mutable_data_ptr(), values.data(), values.size() * sizeof(float));
  });
}

}  // namespace

TEST_CASE("losses, gradient norms and steps are those of torch") {
  const tiny::Folder folder;
  const Json golden = read_json_file(golden_path("distill.json"), size_t{1} << 24);
  std::string lines;
  for (const Json& row : golden["rows"]) lines += row.dump() + "\n";
  write_file_atomic(folder / "rows.jsonl", lines);
  const std::string rate = golden["rate"].dump();
  for (const Json& one : golden["cases"]) {
    const std::string what = one["keys"].dump();
    CAPTURE(what);
    runs::Arguments arguments{
        "output_dir=" + (folder / "out"), "data.train=" + (folder / "rows.jsonl"),
        "train={max_steps: 1, batch_size: 6, micro_batch_tokens: 40}", "data.shuffle=false",
        "optimizer={name: sgd, schedule: constant, max_grad_norm: 0, learning_rate: " + rate + "}"};
    for (const auto& [key, value] : one["keys"].items())
      if (key == "student")
        arguments.push_back("model.path=" + runs::model(value));
      else if (key == "teacher")
        arguments.push_back("distill.teacher=" + runs::model(value));
      else
        arguments.push_back("distill." + key + "=" + tiny::as_yaml(value));
    distill::DistillConfig config = runs::config(arguments);
    train::Roles roles(config);
    const distill::Teachers teachers(config, roles);
    const auto strategy = distill::make_strategy(config, roles);
    if (one.contains("maps")) set_maps(*strategy, one["maps"]);
    tiny::Silent messages;
    distill::DistillTask task(config, roles, tiny::alone(), messages, *strategy, &teachers);
    train::Trainer trainer(config.train, 0, roles, tiny::alone(), task);
    REQUIRE(trainer.step());
    for (const char* name : {"loss", "distill_loss", "task_loss", "grad_norm"}) {
      CAPTURE(name);
      Differences::add("distill " + what, trainer.row().number(name).value_or(-1),
                       one[name].get<double>());
      CHECK(trainer.row().number(name).value_or(-1) ==
            doctest::Approx(one[name].get<double>()).epsilon(2e-5));
    }
    roles.policy.model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
      if (name == one["tensor"]) check_near(numbers(parameter.value()), one["values"]);
    });
    if (!one.contains("maps")) continue;
    CHECK(trainer.row().number("projection_grad_norm").value_or(-1) ==
          doctest::Approx(one["maps_grad_norm"].get<double>()).epsilon(2e-5));
    size_t next = 0;
    strategy->maps()->each_parameter([&](const std::string&, nn::Parameter& parameter) {
      check_near(numbers(parameter.value()), one["maps_after"][next++]);
    });
  }
}
