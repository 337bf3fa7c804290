// A teacher that is a file of its likeliest tokens.
#include "temper/distill/teacher_file.h"

#include <filesystem>

#include "temper/distill/run.h"
#include "tests/distill/runs.h"

using namespace temper;
using runs::Arguments;
using runs::with;

namespace {

std::string precompute(const Arguments& arguments) {
  distill::DistillConfig config = runs::config(arguments);
  std::ostringstream console;
  distill::precompute_teacher(config, console);
  return console.str();
}

}  // namespace

TEST_CASE("a run reads the teacher's log-probabilities from a file instead of the teacher") {
  const tiny::Folder folder;
  const Arguments keys{"model.path=" + runs::model("gemma2"),
                       "data.train=" + runs::write_rows(folder / "rows.jsonl", 9),
                       "data.eval=" + runs::write_rows(folder / "eval.jsonl", 4, 30),
                       "train={max_steps: 3, batch_size: 4, eval_every: 3}",
                       "distill.temperature=2"},
      teacher{"distill.teacher=" + runs::model("qwen3")},
      file{"distill.teacher_logprobs=" + (folder / "teacher.safetensors")};
  const std::string said = precompute(
      with(with(with(keys, teacher), file), {"output_dir=" + (folder / "out"), "distill.top_k=6"}));
  CHECK(said.find("the teacher's 6 most likely tokens at") != std::string::npos);
  CHECK(!std::filesystem::exists(folder / "out"));
  for (const char* top_k : {"6", "4"}) {
    const Arguments of_k{std::string("distill.top_k=") + top_k};
    const std::string name = std::string("top") + top_k;
    const auto exact = runs::run(folder / (name + "-teacher"), with(with(keys, teacher), of_k)),
               recorded = runs::run(folder / (name + "-file"), with(with(keys, file), of_k));
    REQUIRE(recorded.size() == exact.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      const std::string loss = exact[i].is_eval() ? "eval/loss" : "loss";
      CHECK(recorded[i].number(loss).value() ==
            doctest::Approx(exact[i].number(loss).value()).epsilon(1e-6));
    }
  }
  const auto error = [&](const Arguments& more) {
    return runs::error_of(folder / "wrong", with(with(keys, file), more));
  };
  CHECK(error({"distill.top_k=7"}).find("6 most likely tokens, distill.top_k asks for 7") !=
        std::string::npos);
  CHECK(error({"data.train=" + runs::write_rows(folder / "others.jsonl", 4, 100)})
            .find("write it anew with temper distill --precompute") != std::string::npos);
  CHECK(error({"distill.strategy=feature_pooling"}).find("expected distill.strategy: logit") !=
        std::string::npos);
}

TEST_CASE("a prediction is known by the tokens before it, wherever they stand") {
  train::ForwardPass one, two;
  const std::vector<int32_t> a{3, 4, 5, 6}, head{3, 4}, tail{5, 6};
  one.add({{{-1, a, a, 0}}}, 0);
  two.add({{{-1, a, {}, 0}}}, 0);
  two.add({{{-1, head, head, 0}, {0, tail, tail, 1}}}, 1);
  CHECK(distill::prefixes_of(one) == distill::prefixes_of(two));
}
