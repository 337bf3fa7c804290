// Several teachers.
#include <cmath>
#include <filesystem>

#include "temper/base/error.h"
#include "temper/distill/task.h"
#include "tests/distill/runs.h"

using namespace temper;
using runs::Arguments;
using runs::with;

namespace {

const tiny::Folder kTeachers;

// Rows of the field `task`: "x" and "y" in turn.
std::string rows_of_tasks(const std::string& path) {
  std::string lines;
  int64_t number = 0;
  for (const std::vector<int32_t>& ids : tiny::rows(12)) {
    std::vector<int32_t> labels(ids);
    std::fill_n(labels.begin(), ids.size() / 3, -100);
    const std::vector<int32_t> prompt(ids.begin(), ids.begin() + ids.size() / 3);
    lines += Json{{"input_ids", ids},
                  {"labels", labels},
                  {"prompt_ids", prompt},
                  {"task", number++ % 2 == 0 ? "x" : "y"}}
                 .dump() +
             "\n";
  }
  write_file_atomic(path, lines);
  return path;
}

Arguments keys(const std::string& teacher) {
  const std::string rows = rows_of_tasks(kTeachers / "rows.jsonl");
  return {"model.path=" + runs::model("gemma2"),
          "distill.teacher=" + teacher,
          "rollout={max_new_tokens: 6, ignore_eos: true}",
          "data.train=" + rows,
          "data.eval=" + rows,
          "data.balance={mode: report, field: task}",
          "train={max_steps: 3, batch_size: 4, eval_every: 3}",
          "optimizer.learning_rate=1e-3"};
}

std::string teachers(const std::string& a, const std::string& b, const std::string& of_a = "",
                     const std::string& of_b = "") {
  return "[{path: " + runs::model(a) + of_a + "}, {path: " + runs::model(b) + of_b + "}]";
}

std::vector<std::string> rows_of(const std::string& output, const Arguments& arguments) {
  std::vector<std::string> out;
  for (const MetricsRow& row : runs::run(output, arguments)) out.push_back(tiny::numbers(row));
  return out;
}

double number(const MetricsRow& row, const std::string& name) {
  CAPTURE(name);
  REQUIRE(row.number(name).has_value());
  return *row.number(name);
}

}  // namespace

// Half of a number is exact, and so is the sum of two halves. With distill.alpha below 1 the
// gradient of the task's loss is added to the first half alone, which rounds otherwise.
TEST_CASE("two halves of one teacher are the teacher, to the bit") {
  for (const Arguments& more :
       {Arguments{"distill.strategy=on_policy"},
        {"distill.alpha=1", "distill.divergence=jsd", "distill.temperature=2"},
        {"distill.alpha=1", "distill.top_k=5", "train.micro_batch_tokens=32"}}) {
    CAPTURE(more.back());
    const auto one = rows_of(kTeachers / "one", with(keys(runs::model("qwen3")), more));
    const auto two = rows_of(kTeachers / "two", with(keys(teachers("qwen3", "qwen3")), more));
    REQUIRE(one.size() > 3);
    CHECK(two == one);
    CHECK(read_file(kTeachers / "two/final/model.safetensors") ==
          read_file(kTeachers / "one/final/model.safetensors"));
    std::filesystem::remove_all(kTeachers / "one");
    std::filesystem::remove_all(kTeachers / "two");
  }
}

TEST_CASE("the loss is the teachers' mean by weight, each teacher's on its groups") {
  const auto first = [&](const std::string& teacher) {
    const MetricsRow row = runs::run(kTeachers / "first", keys(teacher), 1).at(0);
    std::filesystem::remove_all(kTeachers / "first");
    return row;
  };
  const MetricsRow a = first(runs::model("qwen3")), b = first(runs::model("llama_linear"));
  const std::string in_x = train::group_metric("distill_loss", "x"),
                    in_y = train::group_metric("distill_loss", "y");
  REQUIRE(std::abs(number(a, in_x) - number(b, in_x)) > 1e-3);

  const MetricsRow twice = first(teachers("qwen3", "qwen3"));
  CHECK(number(twice, "distill_loss") == number(a, "distill_loss"));
  CHECK(number(twice, "grad_norm") == doctest::Approx(number(a, "grad_norm")).epsilon(1e-6));

  const MetricsRow both = first(teachers("qwen3", "llama_linear", ", weight: 3"));
  for (const std::string& name : {std::string("distill_loss"), in_x, in_y})
    CHECK(number(both, name) ==
          doctest::Approx(0.75 * number(a, name) + 0.25 * number(b, name)).epsilon(1e-6));
  CHECK(number(both, "task_loss") == number(a, "task_loss"));

  const MetricsRow split =
      first(teachers("qwen3", "llama_linear", ", groups: x", ", groups: [y, z]"));
  CHECK(number(split, in_x) == number(a, in_x));
  CHECK(number(split, in_y) == number(b, in_y));

  // A teacher without groups has all rows.
  const MetricsRow more = first(teachers("qwen3", "llama_linear", "", ", groups: y"));
  CHECK(number(more, in_x) == number(a, in_x));
  CHECK(number(more, in_y) ==
        doctest::Approx((number(a, in_y) + number(b, in_y)) / 2).epsilon(1e-6));
}

TEST_CASE("ranks that share out several teachers have one rank's losses") {
  const Arguments arguments =
      with(keys(teachers("qwen3", "llama_linear", ", groups: x", ", groups: y")),
           {"output_dir=" + (kTeachers / "ranks")});
  const auto steps = [&](dist::Group& group) {
    distill::DistillConfig config = runs::config(arguments);
    train::Roles roles(config);
    const distill::Teachers loaded(config, roles);
    const auto made = distill::make_strategy(config, roles);
    tiny::Silent messages;
    distill::DistillTask task(config, roles, group, messages, *made, &loaded);
    train::Trainer trainer(config.train, 0, roles, group, task);
    std::vector<double> losses;
    while (trainer.step()) losses.push_back(trainer.row().number("loss").value());
    return losses;
  };
  const std::vector<double> alone = steps(tiny::alone());
  tiny::ThreadRanks(2).run([&](dist::Group& group) {
    const std::vector<double> shared = steps(group);
    REQUIRE(shared.size() == alone.size());
    for (size_t i = 0; i < alone.size(); ++i)
      CHECK(shared[i] == doctest::Approx(alone[i]).epsilon(1e-6));
  });
}

TEST_CASE("what several teachers cannot do is said") {
  const auto error = [](const std::string& teacher, const Arguments& more = {}) {
    return runs::error_of(kTeachers / "error", with(keys(teacher), more));
  };
  const auto says = [](const std::string& what, const std::string& part) {
    CAPTURE(what);
    CHECK(what.find(part) != what.npos);
  };
  const std::string two = teachers("qwen3", "qwen3");
  says(error(two, {"distill.strategy=feature_pooling"}),
       "distill.teacher: found 2 teachers, expected one: layers are paired");
  says(error(two, {"distill.cross_tokenizer=gold"}), "spans of two tokenizers");
  says(error(two, {"distill.teacher_logprobs=x"}),
       "distill.teacher_logprobs: found a file with 2 teachers");
  says(error(two, {"distill.strategy=on_policy", "distill.lambda=0.5", "distill.seq_kd=true"}),
       "distill.seq_kd: found true with 2 teachers");
  says(error("[{path: " + runs::model("qwen3") + "}, {weight: 2}]"),
       "distill.teacher: found a teacher without `path`");
  says(error(teachers("qwen3", "qwen3", ", weight: 0")), "distill.teacher[0].weight");
  says(error(teachers("qwen3", "nothing")), "nothing");
  says(error(teachers("qwen3", "qwen3", ", groups: x", ", groups: z")),
       "distill.teacher: no teacher has the group `y`");
  says(error(teachers("qwen3", "qwen3", ", groups: x"), {"data.balance.mode=none"}),
       "distill.teacher: found `groups`, which data.balance makes");
}

TEST_CASE("an evaluation's row that no teacher has is named before the first step") {
  const std::string eval = kTeachers / "eval.jsonl";
  write_file_atomic(eval, R"({"input_ids": [3, 4, 5], "labels": [-100, 4, 5], "prompt_ids": [3],)"
                          R"( "task": "x"})"
                          "\n"
                          R"({"input_ids": [3, 4, 5], "labels": [-100, 4, 5], "prompt_ids": [3],)"
                          R"( "task": "other"})"
                          "\n");
  for (const std::string strategy : {"logit", "on_policy"}) {
    CAPTURE(strategy);
    const std::string output = kTeachers / "without";
    const std::string said =
        runs::error_of(output, with(keys(teachers("qwen3", "qwen3", ", groups: x", ", groups: y")),
                                    {"data.eval=" + eval, "distill.strategy=" + strategy}));
    CHECK(said.find(eval + ":2: distill.teacher: no teacher has the group `other`") != said.npos);
    CHECK(!std::filesystem::exists(output + "/checkpoints"));
    CHECK((!std::filesystem::exists(output + "/metrics.jsonl") ||
           read_file(output + "/metrics.jsonl").empty()));
    std::filesystem::remove_all(output);
  }
}
