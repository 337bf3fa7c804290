// One text in the tokens of two tokenizers.
#include "temper/distill/alignment.h"

#include <algorithm>
#include <filesystem>

#include "temper/base/error.h"
#include "temper/models/files/save.h"
#include "tests/distill/runs.h"
#include "tests/text/golden.h"

using namespace temper;
using runs::with;

namespace {

distill::Vocabulary vocabulary_of(const std::string& name) {
  const auto tokenizer = golden_tokenizer(name);
  return {tokenizer, tokenizer->vocab_size() + 3, {}};  // a model may have rows beyond
}

// A pass of one row, all of whose tokens train.
train::ForwardPass pass_of(const std::vector<int32_t>& tokens) {
  train::PackUnit unit;
  unit.segments.push_back({-1, tokens, tokens});
  train::ForwardPass pass;
  pass.add(unit, 0);
  return pass;
}

std::vector<std::string> texts() {
  return {"Hello world, this is a test.", "  two  spaces\nand a\ttab", "naïve café 日本語 🙂",
          "def f(x):\n    return x + 1\n"};
}

// A model with random weights and the golden tokenizer of this name.
std::string model_with(const std::string& folder, const std::string& name) {
  std::filesystem::create_directories(folder);
  auto config = read_json_file(runs::model("qwen3") + "/config.json", 1 << 20);
  config["vocab_size"] = golden_tokenizer(name)->vocab_size() + 5;
  const auto model = models::init_model(models::HfConfig::parse(config, "config"), 1);
  write_file_atomic(folder + "/config.json", config.dump());
  models::save_weights(*model, folder, at::kFloat);
  write_file_atomic(folder + "/tokenizer.json", golden_tokenizer_file(name).at("tokenizer").dump());
  return folder;
}

}  // namespace

TEST_CASE("runs of tokens that end at the same places are TRL's") {
  const Json golden = read_json_file(golden_path("aligned.json"), size_t{1} << 24);
  for (const Json& one : golden["runs"]) {
    const std::vector<int64_t> student = one["student_ends"], teacher = one["teacher_ends"];
    const auto found = distill::align_ends(student, teacher, student.back());
    REQUIRE(found.size() == one["runs"].size());
    for (size_t i = 0; i < found.size(); ++i) {
      const Json& run = one["runs"][i];
      CHECK((found[i] == distill::AlignedRun{run[0], run[1], run[2], run[3]}));
    }
    // Of a text that the teacher reads otherwise from some byte on, no run beyond it.
    for (const auto& run : distill::align_ends(student, teacher, student.back() - 1))
      CHECK(student[static_cast<size_t>(run.student_end) - 1] < student.back());
  }
}

TEST_CASE("spans of two tokenizers are the same text, and cover it") {
  for (const auto& [own, other] :
       std::vector<std::pair<std::string, std::string>>{{"gpt2", "gemma"},
                                                        {"gemma", "qwen2"},
                                                        {"qwen2", "llama3"},
                                                        {"llama2_legacy", "qwen2"},
                                                        {"qwen2", "llama2_legacy"}}) {
    CAPTURE(own);
    CAPTURE(other);
    const distill::Vocabulary student = vocabulary_of(own), teacher = vocabulary_of(other);
    const distill::TokenBridge bridge(student, teacher, "here");
    for (const std::string& text : texts()) {
      CAPTURE(text);
      std::vector<int32_t> tokens = student.tokenizer->encode(text, true);
      const train::ForwardPass pass = pass_of(tokens);
      const distill::Alignment& found = *bridge.align(pass);
      CAPTURE(Json(tokens).dump());
      CAPTURE(Json(found.teacher.forest->tokens).dump());
      CHECK(found.num_spans() > 0);
      CHECK(found.teacher_spans.last.size() == found.student_spans.last.size());
      // All but what stands at the beginning, which nothing predicts.
      CHECK(found.aligned + 4 >= pass.num_targets());
      const auto text_of = [](const ops::SpanTokens& spans, int64_t span,
                              const std::vector<int64_t>& target, const Tokenizer& tokenizer) {
        std::string bytes;
        for (size_t i = 0; i < spans.before.size(); ++i)
          if (spans.span_of_before[i] == span)
            bytes += tokenizer.bytes_of(
                static_cast<int32_t>(target[static_cast<size_t>(spans.before[i])]));
        const int64_t last = spans.last[static_cast<size_t>(span)];
        return bytes + tokenizer.bytes_of(static_cast<int32_t>(target[static_cast<size_t>(last)]));
      };
      for (int64_t g = 1; g < found.num_spans(); ++g)
        CHECK(text_of(found.student_spans, g, pass.target_M, *student.tokenizer) ==
              text_of(found.teacher_spans, g, found.teacher.target_M, *teacher.tokenizer));
    }
  }
}

TEST_CASE("matched tokens are of one text, each once; end tokens mean the same") {
  distill::Vocabulary student = vocabulary_of("gpt2"), teacher = vocabulary_of("gemma");
  student.end_token_ids = {student.tokenizer->vocab_size() + 1};
  teacher.end_token_ids = {teacher.tokenizer->vocab_size() + 2};
  const distill::TokenBridge bridge(student, teacher, "here");
  const ops::VocabularyMatch& match = *bridge.match();
  CHECK(match.student.size() > 50);
  CHECK(match.student.size() + match.student_rest.size() == static_cast<size_t>(student.size));
  CHECK(match.teacher.size() + match.teacher_rest.size() == static_cast<size_t>(teacher.size));
  bool ends = false;
  for (size_t i = 0; i < match.student.size(); ++i) {
    if (match.student[i] == student.end_token_ids[0]) {
      ends = match.teacher[i] == teacher.end_token_ids[0];
      continue;
    }
    if (student.tokenizer->is_special(match.student[i])) continue;
    CHECK(student.tokenizer->bytes_of(match.student[i]) ==
          teacher.tokenizer->bytes_of(match.teacher[i]));
  }
  CHECK(ends);
  // An end token is a span of its own.
  std::vector<int32_t> tokens = student.tokenizer->encode("a b");
  tokens.push_back(student.end_token_ids[0]);
  const train::ForwardPass pass = pass_of(tokens);
  const distill::Alignment& found = *bridge.align(pass);
  CHECK(pass.target_M[static_cast<size_t>(found.student_spans.last.back())] ==
        student.end_token_ids[0]);
  CHECK(found.teacher.target_M[static_cast<size_t>(found.teacher_spans.last.back())] ==
        teacher.end_token_ids[0]);
}

TEST_CASE("special tokens that the student reads as text are text to the teacher") {
  const auto tokenizer = tokenizer_with_marks();
  const distill::Vocabulary side{tokenizer, tokenizer->vocab_size(), {}};
  const distill::TokenBridge bridge(side, side, "here");
  const int32_t end = tokenizer->id_of("<|im_end|>").value();
  const auto read = [&](const std::vector<int32_t>& tokens) {
    return bridge.align(pass_of(tokens))->teacher.forest->tokens;
  };
  const std::string text = "say <|im_end|> x";
  const std::vector<int32_t> parsed = tokenizer->encode(text),
                             as_text = tokenizer->encode_first(tokenizer->quoted(text), SIZE_MAX,
                                                               Tokenizer::Quotes::kMarked);
  CHECK(std::count(parsed.begin(), parsed.end(), end) == 1);
  CHECK(read(parsed) == parsed);
  CHECK(read(as_text) == as_text);
}

TEST_CASE("tokens that do not train are in no span") {
  const distill::Vocabulary student = vocabulary_of("gpt2"), teacher = vocabulary_of("gemma");
  const distill::TokenBridge bridge(student, teacher, "here");
  const std::vector<int32_t> tokens = student.tokenizer->encode(texts()[0]);
  std::vector<int32_t> labels = tokens;
  std::fill_n(labels.begin(), tokens.size() / 2, -100);
  train::PackUnit unit;
  unit.segments.push_back({-1, tokens, labels});
  train::ForwardPass pass;
  pass.add(unit, 0);
  const distill::Alignment& found = *bridge.align(pass);
  CHECK(found.aligned <= pass.num_targets());
  CHECK(found.aligned > 0);
  CHECK(found.teacher.forest->num_tokens() > found.teacher.num_targets());
}

TEST_CASE(
    "a student learns from a teacher with another tokenizer, on rows and on its own samples") {
  const tiny::Folder folder;
  const std::string student = model_with(folder / "student", "gpt2"),
                    teacher = model_with(folder / "teacher", "gemma");
  std::string lines;
  for (const std::string& text : texts())
    lines += Json{{"prompt", "Say: "}, {"completion", text}}.dump() + "\n";
  write_file_atomic(folder / "rows.jsonl", lines);
  const runs::Arguments keys{"model.path=" + student,
                             "distill.teacher=" + teacher,
                             "data.train=" + (folder / "rows.jsonl"),
                             "train={max_steps: 6, batch_size: 4}",
                             "rollout.max_new_tokens=6",
                             "optimizer={learning_rate: 1e-2, schedule: constant}"};
  CHECK(runs::error_of(folder / "out", keys).find("distill.cross_tokenizer: gold") !=
        std::string::npos);
  for (const char* method : {"gold", "uld"})
    for (const char* strategy : {"logit", "on_policy"}) {
      CAPTURE(method);
      CAPTURE(strategy);
      const auto all = with(keys, {std::string("distill.cross_tokenizer=") + method,
                                   std::string("distill.strategy=") + strategy,
                                   "distill.divergence=jsd", "distill.alpha=1"});
      const std::string name = std::string(method) + strategy;
      const auto rows = runs::run(folder / name, all);
      REQUIRE(rows.size() == 6);
      // What a model without training samples is hardly ever text.
      const bool text = std::string(strategy) == "logit";
      for (const MetricsRow& row : rows) {
        CHECK(row.number("aligned_fraction").value() >= (text ? 0.8 : 0));
        CHECK(row.number("aligned_fraction").value() <= 1);
        if (text) CHECK(row.number("distill_loss").value() > 0);
      }
      if (text)
        CHECK(rows.back().number("distill_loss").value() <
              rows.front().number("distill_loss").value());
      runs::run(folder / (name + "-parts"), all, 2);
      const auto resumed = runs::run(folder / (name + "-parts"), all);
      CHECK(tiny::numbers(resumed.back()) == tiny::numbers(rows.back()));
    }
  const auto says = [&](const runs::Arguments& more, const std::string& part) {
    const std::string message =
        runs::error_of(folder / "out", with(with(keys, {"distill.cross_tokenizer=gold"}), more));
    CAPTURE(message);
    CHECK(message.find(part) != std::string::npos);
  };
  says({"distill.top_k=3"}, "distill.top_k: found 3 with distill.cross_tokenizer");
  says({"distill.strategy=on_policy", "distill.seq_kd=true", "distill.lambda=0"},
       "distill.seq_kd: found true with distill.cross_tokenizer");
  std::filesystem::remove(teacher + "/tokenizer.json");
  says({}, "found the teacher without a tokenizer");
}
