#include "temper/data/loader.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/data/config.h"
#include "temper/data/rows/preference_row.h"
#include "tests/data/folder.h"

using namespace temper;
using namespace temper::data;

namespace {

std::vector<int32_t> first_ids(const std::vector<SftRow>& rows) {
  std::vector<int32_t> ids;
  for (const SftRow& row : rows) ids.push_back(row.segments[0].tokens[0]);
  return ids;
}

std::string message_of(const SftFormat& format, const std::string& row) {
  bool truncated = false;
  try {
    read_sft_row(format, Json::parse(row), "rows.jsonl:7", &truncated);
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a shuffle is a bijection for any number of rows, and another one in the next pass") {
  for (const int64_t n : {1, 2, 3, 5, 16, 17, 100, 1000}) {
    std::set<int64_t> seen;
    bool moved = false, differs = false;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t p = permuted(i, n, 3, 0, 0);
      CHECK(p >= 0);
      CHECK(p < n);
      seen.insert(p);
      moved = moved || p != i;
      differs = differs || p != permuted(i, n, 3, 0, 1);
    }
    CHECK(static_cast<int64_t>(seen.size()) == n);
    if (n >= 16) {
      CHECK(moved);
      CHECK(differs);
    }
  }
}

TEST_CASE("without shuffling the rows come in the file's order and go around") {
  const Folder folder;
  Loader<SftRow> loader({{folder.rows("a.jsonl", 0, 5), 1, ""}},
                        {.batch_size = 3, .shuffle = false}, sft_reader(ids_format()));
  CHECK(first_ids(loader.next()) == std::vector<int32_t>{0, 1, 2});
  CHECK(first_ids(loader.next()) == std::vector<int32_t>{3, 4, 0});
}

TEST_CASE("an epoch sees each row once and its last step may have fewer rows") {
  const Folder folder;
  Loader<SftRow> loader({{folder.rows("a.jsonl", 0, 7), 1, ""}},
                        {.batch_size = 3, .shuffle = true, .seed = 5, .epochs = 2},
                        sft_reader(ids_format()));
  CHECK(loader.order().steps(2) == 6);
  std::vector<size_t> sizes;
  std::multiset<int32_t> seen;
  while (true) {
    const auto rows = loader.next();
    if (rows.empty()) break;
    sizes.push_back(rows.size());
    for (const int32_t id : first_ids(rows)) seen.insert(id);
  }
  CHECK(sizes == std::vector<size_t>{3, 3, 1, 3, 3, 1});
  for (int32_t id = 0; id < 7; ++id) CHECK(seen.count(id) == 2);
}

TEST_CASE("an epoch's last rows join the step before where they are too few for one") {
  const Folder folder;
  SftFormat format = ids_format();
  format.overlong = Overlong::kDrop;
  format.max_length = 9;
  const std::vector<SourceSpec> sources{{folder.rows("a.jsonl", 0, 7), {}, "a"},
                                        {folder.rows("b.jsonl", 100, 2, 12), {}, "b"}};
  const LoaderOptions options{
      .batch_size = 3, .shuffle = true, .seed = 5, .epochs = 2, .smallest_batch = 2};
  Loader<SftRow> loader(sources, options, sft_reader(format));
  std::vector<size_t> sizes;
  std::multiset<int32_t> seen;
  while (true) {
    Loader<SftRow> resumed(sources, options, sft_reader(format));
    resumed.restore(loader.state());
    const auto rows = loader.next();
    CHECK(first_ids(resumed.next()) == first_ids(rows));
    if (rows.empty()) break;
    sizes.push_back(rows.size());
    for (const int32_t id : first_ids(rows)) seen.insert(id);
  }
  CHECK(sizes == std::vector<size_t>{3, 4, 3, 4});
  for (int32_t id = 0; id < 7; ++id) CHECK(seen.count(id) == 2);
  const RowOrder order({sources[0]}, options);
  CHECK(order.steps(2) == 4);
  CHECK(order.steps(1.15) == 3);  // one row alone is a step
  RowSurvey survey{.rows = 9, .dropped = 2, .complete = true, .dropped_rows = {{}, {0, 1}}};
  CHECK(loader.order().steps(2, survey) == 4);
}

TEST_CASE("restoring a state gives the rows that the uninterrupted loader gives, at every step") {
  const Folder folder;
  const std::vector<SourceSpec> sources{{folder.rows("a.jsonl", 0, 11), 2, "a"},
                                        {folder.rows("b.jsonl", 100, 5, 9), 1, "b"}};
  SftFormat format = ids_format();
  format.overlong = Overlong::kDrop;
  format.max_length = 9;
  const LoaderOptions options{.batch_size = 4, .shuffle = true, .seed = 9};
  Loader<SftRow> whole(sources, options, sft_reader(format));
  for (int step = 0; step < 12; ++step) {
    const LoaderState state = LoaderState::from_json(whole.state().to_json(), "state");
    const auto expected = first_ids(whole.next());
    Loader<SftRow> resumed(sources, options, sft_reader(format));
    resumed.restore(state);
    CHECK(first_ids(resumed.next()) == expected);
  }
}

TEST_CASE("sources are drawn by their weights, exactly") {
  const Folder folder;
  Loader<SftRow> loader(
      {{folder.rows("a.jsonl", 0, 10), 3, "a"}, {folder.rows("b.jsonl", 100, 10), 1, "b"}},
      {.batch_size = 8}, sft_reader(ids_format()));
  for (int step = 1; step <= 10; ++step) {
    loader.next();
    CHECK(loader.state().counts == std::vector<int64_t>{6 * step, 2 * step});
  }
}

TEST_CASE("weights count where they are written, equal ones too; without any, rows do") {
  const Folder folder;
  const std::string a = folder.rows("a.jsonl", 0, 90), b = folder.rows("b.jsonl", 100, 10);
  const auto drawn = [&](std::optional<double> of_a, std::optional<double> of_b) {
    Loader<SftRow> loader({{a, of_a, "a"}, {b, of_b, "b"}}, {.batch_size = 100},
                          sft_reader(ids_format()));
    loader.next();
    return loader.state().counts;
  };
  CHECK(drawn({}, {}) == std::vector<int64_t>{90, 10});
  CHECK(drawn(0.5, 0.5) == std::vector<int64_t>{50, 50});
  CHECK(drawn(1, 1) == std::vector<int64_t>{50, 50});
  CHECK(drawn(3, {}) == std::vector<int64_t>{75, 25});  // one without a weight has 1
  // A run that an earlier version began goes on as it did.
  DataSection section;
  section.train = {{.path = a, .weight = 0.5}, {.path = b, .weight = 0.5}};
  CHECK(training_sources(section, 1)[0].weight == 0.5);
  section.earlier_rules = true;
  CHECK_FALSE(training_sources(section, 1)[0].weight);
  CHECK(about_earlier_rules(section).find("in proportion to their rows") != std::string::npos);
  section.train[1].weight = 0.25;
  CHECK(training_sources(section, 1)[1].weight == 0.25);
  CHECK(about_earlier_rules(section).empty());
}

TEST_CASE("sources of one name are told apart") {
  const Folder folder;
  const RowOrder order({{folder.rows("a.jsonl", 0, 3), {}, "x"},
                        {folder.rows("b.jsonl", 0, 3), {}, "x"},
                        {folder.rows("c.jsonl", 0, 3), {}, "x-2"}},
                       {});
  CHECK(order.sources()[0].name == "x");
  CHECK(order.sources()[1].name == "x-2");
  CHECK(order.sources()[2].name == "x-2-2");
}

TEST_CASE("overlong rows are cut, left out or refused, and counted") {
  const Folder folder;
  const std::vector<SourceSpec> sources{
      {folder.write("a.jsonl", "{\"input_ids\": [5, 1, 1, 1, 1]}\n\n{\"input_ids\": [6, 1]}\n"), 1,
       ""}};
  SftFormat format = ids_format();
  format.max_length = 3;
  {
    Loader<SftRow> loader(sources, {.batch_size = 2, .shuffle = false}, sft_reader(format));
    CHECK(loader.next()[0].segments[0].tokens == std::vector<int32_t>{5, 1, 1});
    CHECK(loader.state().truncated == 1);
  }
  format.overlong = Overlong::kDrop;
  {
    Loader<SftRow> loader(sources, {.batch_size = 1, .shuffle = false}, sft_reader(format));
    CHECK(first_ids(loader.next()) == std::vector<int32_t>{6});
    CHECK(loader.state().dropped == 1);
  }
  format.overlong = Overlong::kError;
  Loader<SftRow> loader(sources, {.batch_size = 1, .shuffle = false}, sft_reader(format));
  CHECK_THROWS_WITH_AS(loader.next(),
                       doctest::Contains("a.jsonl:1: 5 tokens; data.max_length is 3"), DataError);
}

TEST_CASE("row errors name the file, the line and what was expected") {
  const SftFormat format = ids_format();
  CHECK(message_of(format, "{\"question\": \"a\", \"answer\": \"b\"}") ==
        "rows.jsonl:7: the row has [question, answer]; expected messages, prompt and completion, "
        "text, or input_ids; data.columns (--columns) renames "
        "fields, as in {prompt: question, completion: answer}");
  CHECK(message_of(format, "{\"input_ids\": [1, 20000]}") ==
        "rows.jsonl:7: `input_ids` holds 20000; ids of this model are 0 to 9999");
  CHECK(message_of(format, "{\"input_ids\": [1, 2], \"labels\": [1]}") ==
        "rows.jsonl:7: `labels` has 1 entries, `input_ids` 2");
  CHECK(message_of(format, "{\"input_ids\": []}") == "rows.jsonl:7: the row has no tokens");
  CHECK(message_of(format, "{\"messages\": \"[]\"}") ==
        "rows.jsonl:7: `messages` is empty, expected at least one message");
  CHECK(message_of(format, "{\"messages\": \"hello\"}") ==
        "rows.jsonl:7: `messages` must be a list of messages, found text; is it the JSON text of "
        "one?");
  CHECK(message_of(format, "{\"messages\": []}") ==
        "rows.jsonl:7: `messages` is empty, expected at least one message");
  CHECK(message_of(format, "{\"prompt\": [], \"completion\": []}") ==
        "rows.jsonl:7: `completion` is empty, expected at least one message");
  const auto preference_error = [](const char* row, bool unpaired) -> std::string {
    PreferenceFormat preferences;
    preferences.unpaired = unpaired;
    bool truncated = false;
    try {
      read_preference_row(preferences, Json::parse(row), "rows.jsonl:7", &truncated);
    } catch (const DataError& e) {
      return e.what();
    }
    return "no error";
  };
  CHECK(preference_error(R"({"prompt": "a", "chosen": null, "rejected": "b"})", false) ==
        "rows.jsonl:7: `chosen` is null");
  CHECK(preference_error(R"({"prompt": "a", "rejected": "b"})", false) ==
        "rows.jsonl:7: the pair has no `chosen`, only [prompt, rejected]");
  CHECK(preference_error(R"({"prompt": "a", "completion": "b", "label": true})", false)
            .find("(rows with a `label` are for preference.loss: kto)") != std::string::npos);
  const Folder folder;
  Loader<SftRow> loader(
      {{folder.write("bad.jsonl", "{\"input_ids\": [1, 2]}\n\n{\"input_ids\": oops}\n"), 1, ""}},
      {.batch_size = 2, .shuffle = false}, sft_reader(format));
  CHECK_THROWS_WITH_AS(loader.next(), doctest::Contains("bad.jsonl:3: not valid JSON"), DataError);
}

TEST_CASE("passes are filled best fit, a longer row stands alone, nothing is lost") {
  const std::vector<int64_t> lengths{50, 60, 40, 200, 30, 20};
  const auto passes = pack_rows(lengths, 100);
  CHECK(passes == std::vector<std::vector<size_t>>{{3}, {1, 2}, {0, 4, 5}});
  const auto shares = split_rows(lengths, 2);
  CHECK(shares.size() == 2);
  CHECK(shares[0].size() + shares[1].size() == lengths.size());
}
