// Whole runs of distillation: what is promised of every verb, and that a student learns.
#include <filesystem>

#include "temper/distill/sampled_rows.h"
#include "temper/distill/strategy.h"
#include "temper/distill/task.h"
#include "temper/generate/engine.h"
#include "temper/io/safetensors.h"
#include "tests/distill/runs.h"

using namespace temper;
using runs::Arguments;
using runs::with;

namespace {

const tiny::Folder kFolder;

// Models for each strategy, and what else it needs.
Arguments keys_of(const std::string& strategy) {
  const bool features = strategy.starts_with("feature");
  return {"model.path=" + runs::model(features ? "llama_linear" : "gemma2"),
          "distill.teacher=" + runs::model(features ? "qwen2" : "qwen3"),
          "distill.strategy=" + strategy,
          "rollout={max_new_tokens: 6, ignore_eos: true}",
          "data.train=" +
              runs::write_rows(kFolder / (strategy + ".jsonl"), 14, 0, strategy == "on_policy"),
          "data.eval=" + runs::write_rows(kFolder / (strategy + "-eval.jsonl"), 5, 20,
                                          strategy == "on_policy"),
          "train={max_steps: 4, batch_size: 4, eval_every: 4}",
          "optimizer.learning_rate=1e-3"};
}

std::vector<std::string> numbers(const std::vector<MetricsRow>& rows) {
  std::vector<std::string> out;
  for (const MetricsRow& row : rows) out.push_back(tiny::numbers(row));
  return out;
}

// What a model samples from the runs' prompts, as rows.
void write_sampled_rows(const char* family, const std::string& path) {
  const auto model = models::load_model(runs::model(family));
  std::vector<std::vector<int32_t>> prompts;
  for (const auto& ids : tiny::rows(4))
    prompts.emplace_back(ids.begin(), ids.begin() + ids.size() / 3);
  generate::GenerationOptions options;
  options.max_new_tokens = 6;
  options.ignore_eos = true;
  std::string lines;
  generate::generate(*model, prompts, 1, options, [&](generate::Completion c) {
    std::vector<int32_t> ids = prompts[static_cast<size_t>(c.index)];
    std::vector<int32_t> labels(ids.size(), -100);
    ids.insert(ids.end(), c.tokens.begin(), c.tokens.end());
    labels.insert(labels.end(), c.tokens.begin(), c.tokens.end());
    lines += Json{{"input_ids", ids}, {"labels", labels}}.dump() + "\n";
  });
  write_file_atomic(path, lines);
}

}  // namespace

TEST_CASE("every strategy logs its losses, evaluates, and goes on to the same bits") {
  for (const auto& strategy : distill::strategies().list()) {
    CAPTURE(strategy.name);
    const Arguments keys = keys_of(strategy.name);
    const std::string whole = kFolder / (strategy.name + "-whole"),
                      parts = kFolder / (strategy.name + "-parts");
    const std::vector<MetricsRow> rows = runs::run(whole, keys);
    REQUIRE(rows.size() == 5);
    for (const MetricsRow& row : rows) {
      const std::string prefix = row.is_eval() ? "eval/" : "";
      const double alpha = strategy.value.samples ? 1 : 0.5;
      const double distilled = row.number(prefix + "distill_loss").value(),
                   task = row.number(prefix + "task_loss").value();
      CHECK(distilled > 0);
      CHECK(row.number(prefix + "loss").value() ==
            doctest::Approx(alpha * distilled + (1 - alpha) * task).epsilon(1e-6));
    }
    runs::run(parts, keys, 2);
    CHECK(read_metrics_file(parts + "/metrics.jsonl").size() < 5);
    CHECK(numbers(runs::run(parts, keys)) == numbers(rows));
    for (const char* file : {"/final/model.safetensors", "/projection/model.safetensors"}) {
      CHECK(std::filesystem::exists(whole + file) == std::filesystem::exists(parts + file));
      if (std::filesystem::exists(whole + file))
        CHECK(read_file(whole + file) == read_file(parts + file));
    }
    CHECK(std::filesystem::exists(whole + "/projection") == strategy.name.ends_with("_projection"));
  }
}

TEST_CASE("no strategy's losses depend on how a step is split, nor on recomputation" *
          doctest::test_suite("exact")) {
  for (const auto& strategy : distill::strategies().list()) {
    CAPTURE(strategy.name);
    const Arguments keys = with(keys_of(strategy.name), {"train.max_steps=1"});
    const auto first = [&](const Arguments& more) {
      const std::string out = kFolder / "split";
      std::filesystem::remove_all(out);
      return runs::run(out, with(keys, more)).at(0);
    };
    const MetricsRow whole = first({});
    for (const char* other :
         {"train.micro_batch_tokens=1", "train.micro_batch_tokens=20", "train.recompute=blocks"}) {
      CAPTURE(other);
      const MetricsRow row = first({other});
      for (const char* name : {"loss", "distill_loss", "task_loss"})
        CHECK(row.number(name).value() ==
              doctest::Approx(whole.number(name).value()).epsilon(1e-14));
      CHECK(row.number("grad_norm").value() ==
            doctest::Approx(whole.number("grad_norm").value()).epsilon(1e-5));
    }
  }
}

TEST_CASE("ranks have one rank's losses") {
  for (const auto& strategy : distill::strategies().list()) {
    CAPTURE(strategy.name);
    const Arguments keys = with(keys_of(strategy.name), {"output_dir=" + (kFolder / "ranks")});
    const auto steps = [&](dist::Group& group) {
      distill::DistillConfig config = runs::config(keys);
      train::Roles roles(config);
      const distill::Teachers teachers(config, roles);
      const auto made = distill::make_strategy(config, roles);
      tiny::Silent messages;
      distill::DistillTask task(config, roles, group, messages, *made, &teachers);
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
}

TEST_CASE("on_policy trains on what the student samples") {
  const Arguments keys = with(keys_of("on_policy"), {"data.shuffle=false", "train.max_steps=1"});
  const std::vector<MetricsRow> rows = runs::run(kFolder / "sampled", keys);
  CHECK(rows[0].number("completion_length_mean").value() == 6);
  CHECK(rows[0].number("supervised_tokens").value() == 24);
  // The same rows as the engine samples them, distilled off-policy.
  write_sampled_rows("gemma2", kFolder / "sampled.jsonl");
  const std::vector<MetricsRow> same =
      runs::run(kFolder / "as-rows",
                with(keys, {"data.train=" + (kFolder / "sampled.jsonl"), "data.eval=null",
                            "train.eval_every=0", "distill.strategy=logit", "distill.alpha=1"}));
  CHECK(same[0].number("loss").value() == rows[0].number("loss").value());
  CHECK(same[0].number("grad_norm").value() == rows[0].number("grad_norm").value());
}

TEST_CASE("a share of on_policy's rows is off-policy") {
  int64_t count = 0;
  for (int64_t i = 0; i < 100; ++i) count += distill::is_off_policy(0.3, i);
  CHECK(count == 30);
  CHECK(!distill::is_off_policy(0, 7));
  CHECK(distill::is_off_policy(1, 0));
  const std::string file = runs::write_rows(kFolder / "all-off.jsonl", 8);
  const Arguments keys{"model.path=" + runs::model("gemma2"),
                       "distill.teacher=" + runs::model("qwen3"), "data.train=" + file,
                       "train={max_steps: 2, batch_size: 4}"};
  const auto off = runs::run(
      kFolder / "off", with(keys, {"distill.strategy=on_policy", "distill.off_policy_fraction=1"}));
  const auto logit = runs::run(kFolder / "on", with(keys, {"distill.alpha=1"}));
  for (size_t i = 0; i < 2; ++i)
    CHECK(off[i].number("loss").value() == logit[i].number("loss").value());
}

TEST_CASE("lambda draws whole steps, by the seed and the step alone") {
  const auto mixture = [](const Arguments& more) {
    return distill::Mixture(
        runs::config(with(with(keys_of("on_policy"), {"output_dir=" + (kFolder / "none")}), more)));
  };
  using distill::Completer;
  const distill::Mixture some = mixture({"distill.lambda=0.7"});
  int64_t students = 0;
  for (int64_t step = 0; step < 1000; ++step) {
    students += some.of(step * 4, step) == Completer::kStudent;
    CHECK(some.of(step * 4, step) == some.of(step * 4 + 3, step));
  }
  CHECK(std::abs(students - 700) < 60);
  CHECK(some.uses(Completer::kStudent));
  CHECK(some.uses(Completer::kFile));
  const distill::Mixture other = mixture({"distill.lambda=0.7", "seed=5"});
  int64_t equal = 0;
  for (int64_t step = 0; step < 1000; ++step) equal += some.of(0, step) == other.of(0, step);
  CHECK(equal < 900);
  const distill::Mixture all = mixture({"distill.lambda=1"});
  const distill::Mixture none = mixture({"distill.lambda=0", "distill.seq_kd=true"});
  for (int64_t step = 0; step < 100; ++step) {
    CHECK(all.of(0, step) == Completer::kStudent);
    CHECK(none.of(0, step) == Completer::kTeacher);
  }
  CHECK_FALSE(all.uses(Completer::kFile));
  CHECK_FALSE(none.uses(Completer::kFile));
  CHECK(none.uses(Completer::kTeacher));
}

TEST_CASE("a run with lambda goes on to the same bits, and each step is one kind of step") {
  const std::string rows = runs::write_rows_with_prompts(kFolder / "gkd.jsonl", 14);
  for (const char* other : {"false", "true"}) {
    CAPTURE(other);
    const Arguments keys = with(
        keys_of("on_policy"), {"data.train=" + rows, "data.eval=null", "train.eval_every=0",
                               "train.max_steps=8", "distill.lambda=0.5", "distill.divergence=jsd",
                               "distill.jsd_beta=0.1", std::string("distill.seq_kd=") + other});
    const std::string name = std::string("gkd-") + other;
    const std::vector<MetricsRow> whole = runs::run(kFolder / name, keys);
    double students = 0;
    for (const MetricsRow& row : whole) {
      const double share = row.number("on_policy_share").value();
      CHECK((share == 0 || share == 1));
      students += share;
    }
    CHECK(students > 0);
    CHECK(students < 8);
    for (const int stop : {1, 3, 6}) {
      const std::string parts = kFolder / str(name, "-", stop);
      runs::run(parts, keys, stop);
      CHECK(read_metrics_file(parts + "/metrics.jsonl").size() < 8);
      CHECK(numbers(runs::run(parts, keys)) == numbers(whole));
    }
  }
}

TEST_CASE("lambda 1 is on_policy as it was, lambda 0 distills the file") {
  const std::string rows = runs::write_rows_with_prompts(kFolder / "ends.jsonl", 14);
  const Arguments keys =
      with(keys_of("on_policy"), {"data.train=" + rows, "data.eval=null", "train.eval_every=0"});
  const auto run = [&](const std::string& name, const Arguments& more) {
    std::vector<double> losses;
    for (const MetricsRow& row : runs::run(kFolder / name, with(keys, more)))
      losses.push_back(row.number("loss").value());
    return losses;
  };
  CHECK(run("one", {"distill.lambda=1"}) == run("plain", {}));
  CHECK(run("zero", {"distill.lambda=0"}) ==
        run("file", {"distill.strategy=logit", "distill.alpha=1"}));
}

TEST_CASE("seq_kd trains on what the teacher samples") {
  const Arguments keys =
      with(keys_of("on_policy"), {"data.shuffle=false", "train.max_steps=1", "distill.lambda=0"});
  const std::vector<MetricsRow> rows =
      runs::run(kFolder / "seq", with(keys, {"distill.seq_kd=true"}));
  CHECK(rows[0].number("completion_length_mean").value() == 6);
  CHECK(rows[0].number("on_policy_share").value() == 0);
  write_sampled_rows("qwen3", kFolder / "seq.jsonl");
  const std::vector<MetricsRow> same =
      runs::run(kFolder / "seq-as-rows", with(keys, {"data.train=" + (kFolder / "seq.jsonl")}));
  CHECK(same[0].number("loss").value() == rows[0].number("loss").value());
  CHECK(same[0].number("grad_norm").value() == rows[0].number("grad_norm").value());
}

TEST_CASE("a student comes closer to its teacher on rows that it has not seen") {
  const tiny::Folder folder;
  const Arguments keys{"data.train=" + runs::write_rows(folder / "train.jsonl", 40),
                       "data.eval=" + runs::write_rows(folder / "eval.jsonl", 10, 40),
                       "train={max_steps: 25, batch_size: 8, eval_every: 25, eval_at_start: true}",
                       "optimizer={learning_rate: 3e-3, schedule: constant}", "distill.alpha=1"};
  for (const auto& [strategy, share] : std::vector<std::pair<std::string, double>>{
           {"logit", 0.7}, {"attention_transfer", 0.9}, {"feature_projection", 0.7}}) {
    CAPTURE(strategy);
    const Arguments models = keys_of(strategy);
    const auto rows = runs::run(folder / strategy, with({models[0], models[1], models[2]}, keys));
    const double before = rows.front().number("eval/distill_loss").value(),
                 after = rows.back().number("eval/distill_loss").value();
    MESSAGE(strategy << ": eval/distill_loss " << before << " -> " << after);
    CHECK(after < share * before);
  }
}

TEST_CASE("what is wrong is said by key") {
  const tiny::Folder folder;
  const std::string rows = runs::write_rows(folder / "rows.jsonl", 8);
  const auto error = [&](const char* student, const char* teacher, const Arguments& more) {
    return runs::error_of(folder / "out",
                          with({"model.path=" + runs::model(student), "data.train=" + rows,
                                "distill.teacher=" + runs::model(teacher), "train.max_steps=1"},
                               more));
  };
  const auto says = [](const std::string& message, const std::string& part) {
    CAPTURE(message);
    CHECK(message.find(part) != std::string::npos);
  };
  says(error("gemma2", "qwen3", {"distill.strategy=logits"}), "distill.strategy");
  says(error("gemma2", "qwen3", {"distill.strategy=feature_pooling", "distill.layers=[[3, 0]]"}),
       "distill.layers: found layer 3 of the student, which has layers 0 to 2");
  says(
      error("gemma2", "qwen3", {"distill.strategy=attention_transfer", "distill.layers=[[0, -1]]"}),
      "found layer -1 of the teacher, which has layers 0 to 1");
  says(error("gemma2", "qwen3", {"distill.layers=middle"}), "expected uniform, last or a list");
  says(error("gemma2", "gemma", {"distill.strategy=attention_transfer"}),
       "its 3 are not a multiple of the student's 2; use attention_projection");
  // Uniform pairs of two layers of four: those without attention, and with a layer's before.
  says(error("lfm2", "qwen3", {"distill.strategy=attention_transfer"}),
       "distill.layers: found layer 0 of the student, which carries a state in place of attention");
  says(error("qwen3", "gemma4_text",
             {"distill.strategy=attention_projection", "distill.layers=[[0, 2]]"}),
       "distill.layers: found layer 2 of the teacher, which shares the keys and values of layer 0");
  says(error("qwen2", "qwen3", {"distill.strategy=feature_pooling"}), "use feature_projection");
  says(error("qwen2", "qwen3", {"distill.jsd_beta=1", "distill.divergence=jsd"}),
       "distill.jsd_beta");
  says(error("qwen2", "qwen3", {"train.z_loss=0.1"}), "train.z_loss");
  says(error(
           "qwen2", "qwen3",
           {"distill.strategy=on_policy", "distill.lambda=0.5", "distill.off_policy_fraction=0.5"}),
       "distill.lambda: found together with distill.off_policy_fraction");
  says(error("qwen2", "qwen3", {"distill.strategy=on_policy", "distill.seq_kd=true"}),
       "distill.seq_kd: found true, and the student completes all rows");
  says(error("qwen2", "qwen3", {"distill.strategy=on_policy", "distill.lambda=2"}),
       "distill.lambda");
  says(error("qwen2", "nothing", {}), "nothing");
  // Another vocabulary.
  auto config = read_json_file(runs::model("qwen3") + "/config.json", 1 << 20);
  config["vocab_size"] = 62;
  const auto other = models::init_model(models::HfConfig::parse(config, "other"), 1);
  std::filesystem::create_directories(folder / "other");
  write_file_atomic(folder / "other/config.json", config.dump());
  models::save_weights(*other, folder / "other", at::kFloat);
  says(runs::error_of(folder / "out",
                      {"model.path=" + runs::model("qwen2"), "data.train=" + rows,
                       "distill.teacher=" + (folder / "other"), "train.max_steps=1"}),
       "distill.teacher: the teacher's vocabulary is another one: it has 62 tokens, the "
       "student's 61");
}

// After a deliberate change: TEMPER_UPDATE_GOLDENS=1 build/tests/test_distill -tc="*schema*"
TEST_CASE("the schema of the config is the golden one") {
  distill::DistillConfig config;
  const std::string path = golden_path("config_schema/distill.txt");
  if (std::getenv("TEMPER_UPDATE_GOLDENS")) write_file_atomic(path, describe_run_config(config));
  CHECK(describe_run_config(config) == read_file(path));
}

TEST_CASE("layers are paired as the contract says") {
  using distill::LayerPair;
  const auto uniform = [](int64_t s, int64_t t) {
    std::vector<int64_t> teachers;
    for (const LayerPair& pair : distill::layer_pairs({}, s, t, "layers"))
      teachers.push_back(pair.teacher);
    return teachers;
  };
  CHECK(uniform(2, 4) == std::vector<int64_t>{1, 3});
  CHECK(uniform(4, 6) == std::vector<int64_t>{1, 2, 4, 5});  // 1.5, 3, 4.5, 6
  CHECK(uniform(3, 2) == std::vector<int64_t>{0, 0, 1});
  CHECK(uniform(7, 2) == std::vector<int64_t>{0, 0, 0, 0, 0, 1, 1});
  const auto last = distill::layer_pairs({"last", {}}, 3, 5, "layers");
  REQUIRE(last.size() == 1);
  CHECK((last[0] == LayerPair{2, 4}));
}

TEST_CASE("a teacher that is kept in bfloat16 is near one in float32") {
  const tiny::Folder folder;
  const std::string rows = runs::write_rows(folder / "rows.jsonl", 8);
  const auto loss = [&](const std::string& dtype) {
    return runs::run(folder / dtype, {"model.path=" + runs::model("gemma2"), "data.train=" + rows,
                                      "distill.teacher=" + runs::model("qwen3"),
                                      "train.max_steps=1", "distill.teacher_dtype=" + dtype})
        .at(0)
        .number("distill_loss")
        .value();
  };
  const double exact = loss("float32");
  CHECK(loss("auto") == exact);
  CHECK(loss("bfloat16") != exact);
  CHECK(loss("bfloat16") == doctest::Approx(exact).epsilon(0.02));
}
