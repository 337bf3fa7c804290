#include "temper/data/read/row_set.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/data/config.h"
#include "temper/data/loader.h"
#include "temper/data/read/source_format.h"
#include "temper/data/rows/row_texts.h"
#include "temper/data/tools/row_split.h"
#include "tests/data/folder.h"

using namespace temper;
using namespace temper::data;

namespace {

std::vector<int> ids_of(const RowSet& rows) {
  std::vector<int> ids;
  for (int64_t i = 0; i < rows.size(); ++i) ids.push_back(rows.row(i)["input_ids"][0].get<int>());
  return ids;
}

std::string error_of(const SourceSpec& spec) {
  try {
    RowSet rows(spec);
  } catch (const DataError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a directory or a pattern is all its files in the order of their names") {
  const Folder folder;
  std::filesystem::create_directories(folder.path + "/rows/deeper.jsonl");
  folder.rows("rows/b.jsonl", 10, 2);
  folder.rows("rows/a2.jsonl", 5, 2);
  folder.rows("rows/a10.jsonl", 0, 3);
  folder.rows("rows/B.ndjson", 20, 1);
  folder.write("rows/empty.jsonl", "");
  folder.write("rows/.hidden.jsonl", "not rows");
  folder.write("rows/README.md", "not rows");
  folder.write("rows/info.json", "not rows");
  const RowSet all({folder.path + "/rows"});
  CHECK(ids_of(all) == std::vector<int>{20, 0, 1, 2, 5, 6, 10, 11});
  CHECK(all.where(1) == folder.path + "/rows/a10.jsonl:1");
  CHECK(all.where(7) == folder.path + "/rows/b.jsonl:2");
  CHECK(all.path() == folder.path + "/rows");
  CHECK(ids_of(RowSet({folder.path + "/rows/a*.jsonl"})) == std::vector<int>{0, 1, 2, 5, 6});
  CHECK(ids_of(RowSet({folder.path + "/*/[ab]*.jsonl"})) ==
        std::vector<int>{0, 1, 2, 5, 6, 10, 11});
  CHECK(error_of({folder.path + "/rows/*.txt"}) ==
        folder.path + "/rows/*.txt: no file matches this pattern");
  CHECK(error_of({folder.path + "/gone.jsonl"}) ==
        folder.path + "/gone.jsonl: cannot open: No such file or directory");
  CHECK(error_of({folder.path + "/rows/deeper.jsonl"})
            .starts_with(folder.path + "/rows/deeper.jsonl: no file of rows in this directory"));
  CHECK(error_of({folder.path + "/rows/empty.jsonl"}) ==
        folder.path + "/rows/empty.jsonl: no rows");
}

TEST_CASE("a directory's tables of text and lists of rows are files of rows") {
  const Folder folder;
  std::filesystem::create_directories(folder.path + "/rows/deeper.json");
  folder.write("rows/a.csv", "text\n1\n2\n");
  folder.write("rows/b.json", "[{\"text\": \"3\"}]");
  folder.write("rows/c.tsv", "text\n4\n");
  folder.write("rows/dataset_info.json", "{\"description\": \"\"}\n");
  const RowSet all({folder.path + "/rows"});
  std::string texts;
  for (int64_t i = 0; i < all.size(); ++i) texts += all.row(i)["text"].get<std::string>();
  CHECK(texts == "1234");
  CHECK(error_of({"gone/rows.csv"}).starts_with("gone/rows.csv: cannot open"));
}

TEST_CASE("a file whose name looks like a pattern is that file") {
  const Folder folder;
  folder.rows("a[1].jsonl", 3, 1);
  folder.rows("a1.jsonl", 7, 1);
  CHECK(ids_of(RowSet({folder.path + "/a[1].jsonl"})) == std::vector<int>{3});
}

TEST_CASE("files of one source give the loader the order that one file of their rows gives") {
  const Folder folder;
  std::filesystem::create_directories(folder.path + "/rows");
  folder.rows("rows/a.jsonl", 0, 7);
  folder.rows("rows/b.jsonl", 7, 4);
  const LoaderOptions options{.batch_size = 3, .seed = 4};
  Loader<SftRow> one({{folder.rows("one.jsonl", 0, 11), 1, "r"}}, options,
                     sft_reader(ids_format()));
  Loader<SftRow> many({{folder.path + "/rows", 1, "r"}}, options, sft_reader(ids_format()));
  for (int step = 0; step < 9; ++step) {
    const auto a = one.next(), b = many.next();
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) CHECK(a[i].segments[0].tokens == b[i].segments[0].tokens);
    CHECK(one.state().to_json() == many.state().to_json());
  }
}

TEST_CASE("a limit takes the first rows, over files too") {
  const Folder folder;
  std::filesystem::create_directories(folder.path + "/rows");
  folder.rows("rows/a.jsonl", 0, 3);
  folder.rows("rows/b.jsonl", 10, 3);
  folder.write("rows/c.jsonl", "never read");
  const auto ids = [&](int64_t limit) {
    return ids_of(RowSet({.path = folder.path + "/rows", .limit = limit}));
  };
  CHECK(ids(2) == std::vector<int>{0, 1});
  CHECK(ids(5) == std::vector<int>{0, 1, 2, 10, 11});
  CHECK(ids(6) == std::vector<int>{0, 1, 2, 10, 11, 12});
}

TEST_CASE("rows that are held out are the others, by prompt and seed alone") {
  const Folder folder;
  const std::string path = folder.rows("a.jsonl", 0, 200);
  const auto part = [&](const std::string& file, double fraction, uint64_t seed, bool held_out) {
    return ids_of(RowSet({.path = file,
                          .held_out = {.fraction = fraction, .seed = seed},
                          .only_held_out = held_out}));
  };
  const std::vector<int> training = part(path, 0.1, 3, false), held = part(path, 0.1, 3, true);
  CHECK(held.size() == 20);
  CHECK(training.size() == 180);
  std::set<int> both(training.begin(), training.end());
  both.insert(held.begin(), held.end());
  CHECK(both.size() == 200);
  CHECK(std::is_sorted(training.begin(), training.end()));
  CHECK(part(path, 0.1, 3, true) == held);
  CHECK(part(path, 0.1, 4, true) != held);
  CHECK(part(path, 0.001, 3, true).size() == 1);
  // The larger share has the smaller one's rows.
  const std::vector<int> more = part(path, 0.2, 3, true);
  CHECK(std::includes(more.begin(), more.end(), held.begin(), held.end()));
  // Neither where a row stands nor the end of its line moves it.
  std::string reversed;
  for (int i = 199; i >= 0; --i)
    reversed += "{\"input_ids\": [" + std::to_string(i) + ", 1, 1, 1]}\r\n";
  std::vector<int> again = part(folder.write("b.jsonl", reversed), 0.1, 3, true);
  std::sort(again.begin(), again.end());
  CHECK(again == held);
}

TEST_CASE("rows of the same prompt are in the same part, as data split has them") {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += R"({"q": {"text": "What is  )" + std::to_string(i % 20) + R"(?"}, "completion": ")" +
            std::to_string(i) + "\"}\n";
  const std::string path = folder.write("p.jsonl", text);
  DataSection section;
  section.train = {{.path = path}};
  section.columns = {{"prompt", "q.text"}};
  section.validation_fraction = 0.1;
  const auto numbers = [](const SourceSpec& spec) {
    const RowSet rows(spec);
    std::vector<int> out;
    for (int64_t i = 0; i < rows.size(); ++i)
      out.push_back(std::stoi(rows.row(i)["completion"].get<std::string>()));
    return out;
  };
  const std::vector<int> training = numbers(training_sources(section, 4)[0]),
                         held = numbers(evaluation_sources(section, 4)[0]);
  CHECK(held.size() == 10);
  CHECK(training.size() == 90);
  for (const int a : held)
    for (const int b : training) CHECK(a % 20 != b % 20);
  std::vector<RowHash> hashes;
  for (int i = 0; i < 100; ++i)
    hashes.push_back(hash_of_text("What is " + std::to_string(i % 20) + "?", 4));
  const std::vector<uint8_t> side = split_by_hash(hashes, {0.9, 0.1});
  for (int i = 0; i < 100; ++i)
    CHECK((std::count(held.begin(), held.end(), i) == 1) == (side[static_cast<size_t>(i)] == 1));
  // A run that an earlier version began goes on with the split by lines that it had.
  section.earlier_rules = true;
  const std::vector<int> lines = numbers(evaluation_sources(section, 4)[0]);
  CHECK(lines.size() == 10);
  CHECK(lines != held);
  CHECK(about_earlier_rules(section).find("by their lines") != std::string::npos);
  section.validation_fraction = 0;
  CHECK(about_earlier_rules(section).empty());
  // Earlier versions wrote a weight of 1 into every resolved config.
  section.earlier_rules = false;
  section.train = {{.path = path, .weight = 1}, {.path = path, .weight = 1}};
  CHECK(about_earlier_rules(section).find("drawn equally often") != std::string::npos);
  section.train[1].weight.reset();
  CHECK(about_earlier_rules(section).empty());
}

TEST_CASE("rows of one prompt are held out by their whole text") {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 20; ++i)
    text += R"({"prompt_ids": [5], "chosen_ids": [)" + std::to_string(i % 10) +
            R"(], "rejected_ids": [3]})" + "\n";
  const std::string path = folder.write("pairs.jsonl", text);
  const HeldOut share{.fraction = 0.2, .seed = 1};
  const RowSet training({.path = path, .held_out = share}),
      held({.path = path, .held_out = share, .only_held_out = true});
  CHECK(held.size() == 4);
  CHECK(training.size() == 16);
  for (int64_t a = 0; a < held.size(); ++a)
    for (int64_t b = 0; b < training.size(); ++b) CHECK(held.row(a) != training.row(b));
  CHECK(held.about_held_out().empty());
}

TEST_CASE("no more than half of the rows is held out, and a share far off is told") {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += R"({"prompt": "p)" + std::to_string(i < 95 ? 0 : i) + R"(", "completion": ")" +
            std::to_string(i) + "\"}\n";
  const std::string path = folder.write("a.jsonl", text);
  std::set<int64_t> sizes;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const SourceSpec spec{
        .path = path, .held_out = {.fraction = 0.1, .seed = seed}, .only_held_out = true};
    const RowSet held(spec);
    CHECK(held.size() <= 5);
    sizes.insert(held.size());
    CHECK(held.about_held_out().empty() == (held.size() == 5));
    if (held.size() < 5)
      CHECK(held.about_held_out().find(str(held.size(), " of 100 rows are held out, where 10")) !=
            std::string::npos);
  }
  CHECK(sizes.contains(5));
  const RowOrder order({{.path = path, .held_out = {.fraction = 0.3, .seed = 3}}}, {});
  CHECK(about_held_out(order).find("where 30 were to be") != std::string::npos);
}

TEST_CASE("sources have columns and a format of their own") {
  const Folder folder;
  DataSection section;
  section.columns = {{"text", "body"}};
  section.format = RowFormat::kMessages;
  section.train = {{.path = folder.write("a.jsonl", "{\"body\": \"x\"}\n")},
                   {.path = folder.write("b.jsonl", "{\"other\": \"y\"}\n"),
                    .columns = {{"text", "other"}},
                    .format = RowFormat::kAlpaca}};
  const auto specs = training_sources(section, 1);
  TextFormat format;
  section.apply_to(format);
  const RowSet a(specs[0]), b(specs[1]);
  CHECK(of_source(format, a, 0).columns == section.columns);
  CHECK(of_source(format, a, 0).format == RowFormat::kMessages);
  CHECK(of_source(format, b, 0).columns == section.train[1].columns);
  CHECK(of_source(format, b, 0).format == RowFormat::kAlpaca);
  CHECK(of_source(format, RowSet({.path = folder.path + "/a.jsonl"}), 0).columns ==
        section.columns);
}

TEST_CASE("rows of the same text are in the same part") {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "{\"input_ids\": [" + std::to_string(i % 10) + ", 1]}\n";
  const std::string path = folder.write("a.jsonl", text);
  const HeldOut share{.fraction = 0.15, .seed = 1};
  const auto held = ids_of(RowSet({.path = path, .held_out = share, .only_held_out = true}));
  const auto training = ids_of(RowSet({.path = path, .held_out = share}));
  CHECK(held.size() == 10);
  CHECK(training.size() == 90);
  for (const int id : held) CHECK(std::count(training.begin(), training.end(), id) == 0);
  const std::string same =
      folder.write("same.jsonl", "{\"input_ids\": [1]}\n{\"input_ids\": [1]}\n");
  CHECK(error_of({.path = same, .held_out = share}).find("no row is left to train on") !=
        std::string::npos);
  CHECK(error_of({.path = folder.rows("one.jsonl", 0, 1), .held_out = share}).find("one row") !=
        std::string::npos);
}

TEST_CASE("data.validation_fraction makes an evaluation set of what is not trained") {
  const Folder folder;
  DataSection section;
  section.train = {{.path = folder.rows("a.jsonl", 0, 50), .weight = 2, .name = "a", .limit = 40}};
  section.eval = {{.path = folder.rows("e.jsonl", 100, 9), .limit = 3}};
  CHECK(evaluation_sources(section, 1).size() == 1);
  CHECK(ids_of(RowSet(evaluation_sources(section, 1)[0])) == std::vector<int>{100, 101, 102});
  section.validation_fraction = 0.25;
  const auto training = training_sources(section, 1), evaluation = evaluation_sources(section, 1);
  REQUIRE(evaluation.size() == 2);
  CHECK(evaluation[1].name == "validation");
  CHECK(training[0].weight == 2);
  std::vector<int> all = ids_of(RowSet(training[0]));
  CHECK(all.size() == 30);
  for (const int id : ids_of(RowSet(evaluation[1]))) all.push_back(id);
  std::sort(all.begin(), all.end());
  CHECK(all.size() == 40);
  for (int i = 0; i < 40; ++i) CHECK(all[static_cast<size_t>(i)] == i);
  section.train.push_back({.path = folder.rows("b.jsonl", 0, 50)});
  CHECK(evaluation_sources(section, 1)[1].name == "validation/a");
  CHECK(evaluation_sources(section, 1)[2].name == "validation/" + folder.path + "/b.jsonl");
}

TEST_CASE("rows that data.balance reads are counted, and reading ends where that throws") {
  const Folder folder;
  DataSection section;
  section.train = {{.path = folder.write("a.jsonl", "{\"k\": 1}\n{\"k\": 2}\n{\"k\": 1}\n")}};
  section.balance.mode = BalanceSection::Mode::kUnder;
  section.balance.field = "k";
  std::vector<int64_t> of;
  section.on_balanced_row = [&of](int64_t rows) { of.push_back(rows); };
  CHECK(RowSet(training_sources(section, 1)[0]).size() == 2);
  CHECK(of == std::vector<int64_t>{3, 3, 3});
  section.on_balanced_row = [](int64_t) { throw RunError("stopped"); };
  CHECK_THROWS_AS(RowSet(training_sources(section, 1)[0]), RunError);
}
