#include "temper/data/rows/row_survey.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/rows/row_fields.h"
#include "tests/data/folder.h"

using namespace temper;
using namespace temper::data;

namespace {

SftFormat dropping(int64_t max_length) {
  SftFormat format = ids_format();
  format.overlong = Overlong::kDrop;
  format.max_length = max_length;
  return format;
}

RowSurveyor::Count counting(const SftFormat& format) {
  return RowSurveyor::counting<SftRow>(sft_reader(format));
}

// `count` rows of 2, 3, 5 or 9 tokens.
std::string mixed_rows(const Folder& folder, const std::string& name, int count, int salt) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    constexpr int kLengths[] = {2, 9, 3, 5, 9};
    text += "{\"input_ids\": [" + std::to_string(i);
    for (int k = 1; k < kLengths[(i * 7 + salt) % 5]; ++k) text += ", 1";
    text += "]}\n";
  }
  return folder.write(name, text);
}

int64_t steps_of(Loader<SftRow>& loader) {
  int64_t steps = 0;
  while (!loader.next().empty()) ++steps;
  return steps;
}

}  // namespace

TEST_CASE("a row that trains any token at which sampling ends teaches to stop") {
  const Folder folder;
  SftFormat format = ids_format();
  format.eos = 1;  // as Gemma's: its chats end with another one
  const auto with_end = [&] {
    const RowOrder order({{folder.write("c.jsonl", "{\"input_ids\": [9, 8, 6]}\n")}}, {});
    RowSurveyor surveyor(order, counting(format), {});
    return surveyor.result().with_eos;
  };
  CHECK(with_end() == 0);
  format.ends = {1, 6};
  CHECK(with_end() == 1);
}

TEST_CASE("prompts that are the JSON text of messages are counted") {
  const auto is_counted = [](const std::string& prompt) {
    return has_text_messages({{"prompt", prompt}}, {});
  };
  CHECK(is_counted(R"([{"role": "user", "content": "Hi"}])"));
  CHECK(
      is_counted(R"( [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": ""}])"));
  for (const char* text : {"[1, 2]", "[]", "[note] Hi", R"({"role": "user", "content": "Hi"})",
                           R"([{"role": "user"}])", R"([{"role": "user", "content": "Hi"}] or)"})
    CHECK_FALSE(is_counted(text));
  const Json renamed{{"question", R"([{"role": "user", "content": "Hi"}])"}};
  CHECK(has_text_messages(renamed, {{"prompt", "question"}}));
  CHECK_FALSE(has_text_messages(renamed, {}));
  for (const char* field : {"completion", "chosen", "rejected"})
    CHECK(has_text_messages({{field, R"([{"role": "assistant", "content": "Hi"}])"}}, {}));

  const Folder folder;
  const std::string row = R"({"prompt": "[{\"role\": \"user\", \"content\": \"Hi\"}]", )";
  const std::string rows =
      folder.write("m.jsonl", row + R"("input_ids": [1, 2], "labels": [1, 2]})" + "\n" +
                                  R"({"prompt": "Hi", "input_ids": [1, 2]})");
  const RowOrder order({{rows}}, {});
  RowSurveyor surveyor(order, counting(ids_format()), {});
  CHECK(surveyor.result().notices.text_messages.rows == 1);
}

TEST_CASE("a survey counts every row once, whatever the number of threads") {
  const Folder folder;
  SftFormat format = dropping(5);
  format.eos = 4;
  const RowOrder order(
      {{folder.rows("a.jsonl", 0, 300, 4)},
       {folder.rows("b.jsonl", 0, 70, 6)},
       {folder.write("c.jsonl", "{\"input_ids\": [9]}\n{\"input_ids\": [1, 4]}\n")}},
      {});
  for (const int threads : {1, 3}) {
    RowSurveyor surveyor(order, counting(format), {.threads = threads});
    const RowSurvey survey = surveyor.result();
    CHECK(surveyor.done());
    CHECK(survey.complete);
    CHECK(survey.rows == 372);
    CHECK(survey.dropped == 70);
    CHECK(survey.tokens == 300 * 4 + 3);
    CHECK(survey.untrained == 1);
    CHECK(survey.with_eos >= 1);
    CHECK(survey.dropped_rows[0].empty());
    CHECK(survey.dropped_rows[1].size() == 70);
    CHECK(survey.dropped_rows[1].back() == 69);
  }
}

TEST_CASE("with a survey the planned steps are those that the loader makes of the rows") {
  const Folder folder;
  const std::string a = mixed_rows(folder, "a.jsonl", 53, 1),
                    b = mixed_rows(folder, "b.jsonl", 31, 2),
                    c = mixed_rows(folder, "c.jsonl", 7, 3);
  const std::vector<std::vector<SourceSpec>> cases{{{a}}, {{a}, {b}, {c}}, {{a, 3}, {b, 1}}, {{c}}};
  for (const auto& sources : cases) {
    for (const double epochs : {0.3, 1.0, 2.0, 2.5}) {
      for (const int64_t batch : {1, 4, 7}) {
        for (const int64_t max_length : {2, 5, 9}) {
          CAPTURE(sources.size());
          CAPTURE(epochs);
          CAPTURE(batch);
          CAPTURE(max_length);
          const SftFormat format = dropping(max_length);
          Loader<SftRow> loader(sources, {.batch_size = batch, .seed = 7, .epochs = epochs},
                                sft_reader(format));
          RowSurveyor surveyor(loader.order(), counting(format));
          const int64_t planned = loader.order().steps(epochs, surveyor.result());
          int64_t made = 1;  // where no row is given, the first step says so
          try {
            made = steps_of(loader);
          } catch (const DataError& e) {
            CHECK(std::string(e.what()).find("every row is left out") != std::string::npos);
          }
          CHECK(planned == made);
        }
      }
    }
  }
}

TEST_CASE("a survey finds the first wrong row") {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 2000; ++i)
    text +=
        i == 700 || i == 701 || i > 900 ? "{\"input_ids\": [oops]}\n" : "{\"input_ids\": [1, 2]}\n";
  const RowOrder order({{folder.rows("a.jsonl", 0, 10)}, {folder.write("b.jsonl", text)}}, {});
  for (int round = 0; round < 5; ++round) {
    RowSurveyor surveyor(order, counting(ids_format()), {.threads = 4});
    CHECK_THROWS_WITH_AS(surveyor.result(), doctest::Contains("b.jsonl:701: not valid JSON"),
                         DataError);
  }
}

TEST_CASE("of more than the bound the first part of each source is read") {
  const Folder folder;
  const RowOrder order({{folder.rows("a.jsonl", 0, 1000, 9)}, {folder.rows("b.jsonl", 0, 100)}},
                       {});
  RowSurveyor surveyor(order, counting(dropping(5)), {.max_bytes = 6000});
  const RowSurvey survey = surveyor.result();
  CHECK_FALSE(survey.complete);
  CHECK(survey.rows > 100);
  CHECK(survey.rows < 300);
  CHECK(survey.rows - survey.dropped == 100);
  CHECK(order.steps(1, survey) ==
        std::llround(static_cast<double>(order.steps(1)) * 100 / static_cast<double>(survey.rows)));
}

TEST_CASE("a survey can be stopped, and stops when it goes") {
  const Folder folder;
  const RowOrder order({{folder.rows("a.jsonl", 0, 1000)}}, {});
  std::atomic<int> read = 0;
  const RowSurveyor::Count slow = [&](const RowOrder::Drawn&, LoaderState&) {
    ++read;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // 20 s for all
    return std::optional<int64_t>(1);
  };
  {
    RowSurveyor surveyor(order, slow, {.threads = 1});
    while (read == 0) std::this_thread::yield();
    surveyor.stop();
    CHECK_FALSE(surveyor.result().complete);
  }
  {
    RowSurveyor surveyor(order, slow, {.threads = 2});
  }
  CHECK(read < 1000);
}
