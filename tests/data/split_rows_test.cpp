// data.overlong: split.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/loader.h"
#include "temper/data/rows/row_survey.h"
#include "tests/data/folder.h"

using namespace temper;
using namespace temper::data;

namespace {

std::string ids_row(const std::vector<int32_t>& tokens, const std::vector<int32_t>& labels) {
  return Json{{"input_ids", tokens}, {"labels", labels}}.dump() + "\n";
}

// The file's row as rows of `length` ids, written out.
std::string pieces_of(const std::vector<int32_t>& tokens, const std::vector<int32_t>& labels,
                      size_t length) {
  std::string lines;
  for (size_t begin = 0; begin < tokens.size(); begin += length) {
    const auto part = [&](const std::vector<int32_t>& all) {
      const auto end = std::min(all.size(), begin + length);
      return std::vector<int32_t>(all.begin() + static_cast<int64_t>(begin),
                                  all.begin() + static_cast<int64_t>(end));
    };
    lines += ids_row(part(tokens), part(labels));
  }
  return lines;
}

SftFormat split_format(int64_t max_length) {
  SftFormat format = ids_format();
  format.overlong = Overlong::kSplit;
  format.max_length = max_length;
  return format;
}

// Rows of 1 to 23 ids, of which every third is not trained, whole and written out in pieces.
struct Written {
  std::string whole, pieces;
  explicit Written(size_t length) {
    for (int32_t row = 1; row < 24; ++row) {
      std::vector<int32_t> tokens, labels;
      for (int32_t i = 0; i < row; ++i) {
        tokens.push_back(100 * row + i);
        labels.push_back(i % 3 == 2 ? -100 : tokens.back());
      }
      whole += ids_row(tokens, labels);
      pieces += pieces_of(tokens, labels, length);
    }
  }
};

}  // namespace

TEST_CASE("rows that are split are the rows of a file that has them in pieces") {
  const Folder folder;
  const Written written(5);
  const SftFormat format = split_format(5);
  for (const bool shuffle : {false, true}) {
    const LoaderOptions options{.batch_size = 4, .shuffle = shuffle, .seed = 3, .epochs = 2};
    Loader<SftRow> split(
        {{.path = folder.write("whole.jsonl", written.whole), .pieces = sft_pieces(format)}},
        options, sft_reader(format));
    Loader<SftRow> file({{.path = folder.write("pieces.jsonl", written.pieces)}}, options,
                        sft_reader(ids_format()));
    CHECK(split.order().rows() == file.order().rows());
    CHECK(split.order().split_rows() == 18);
    CHECK(split.order().steps(2) == file.order().steps(2));
    for (auto expected = file.next(); !expected.empty(); expected = file.next()) {
      const auto found = split.next();
      REQUIRE(found.size() == expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        CHECK(found[i].segments[0].tokens == expected[i].segments[0].tokens);
        CHECK(found[i].segments[0].labels == expected[i].segments[0].labels);
      }
      CHECK(split.state().to_json() == file.state().to_json());
    }
    CHECK(split.next().empty());
  }
}

TEST_CASE("a loader goes on in the middle of a row that is split") {
  const Folder folder;
  const SftFormat format = split_format(3);
  const std::vector<SourceSpec> sources{
      {.path = folder.write("a.jsonl", Written(3).whole), .pieces = sft_pieces(format)}};
  const LoaderOptions options{.batch_size = 2, .shuffle = false};
  Loader<SftRow> whole(sources, options, sft_reader(format));
  for (int step = 0; step < 20; ++step) whole.next();
  Loader<SftRow> resumed(sources, options, sft_reader(format));
  resumed.restore(LoaderState::from_json(whole.state().to_json(), "state"));
  for (int step = 0; step < 20; ++step)
    CHECK(whole.next()[0].segments[0].tokens == resumed.next()[0].segments[0].tokens);
}

TEST_CASE("the survey reads every piece once, in several threads") {
  const Folder folder;
  const SftFormat format = split_format(4);
  const RowOrder order(
      {{.path = folder.write("a.jsonl", Written(4).whole), .pieces = sft_pieces(format)}}, {});
  RowSurveyor surveyor(order, RowSurveyor::counting<SftRow>(sft_reader(format)), {.threads = 4});
  const RowSurvey survey = surveyor.result();
  CHECK(survey.complete);
  CHECK(survey.rows == order.rows());
  CHECK(survey.tokens == 23 * 24 / 2);
  CHECK(survey.truncated == 0);
}

TEST_CASE("rows of other kinds are not split: a longer one is refused, a shorter one is read") {
  const Folder folder;
  const SftFormat format = split_format(3);
  const auto read = [&](const std::string& text) {
    Loader<SftRow> loader({{.path = folder.write("a.jsonl", text), .pieces = sft_pieces(format)}},
                          {.batch_size = 1, .shuffle = false}, sft_reader(format));
    while (loader.state().rows < 2) loader.next();
  };
  read("{\"input_ids\": [1, 2, 3, 4]}\n");
  CHECK_THROWS_WITH_AS(read("{\"input_ids\": [1, 2, 3, 4]}\n{\"input_ids\": [1, 20000, 3, 4]}\n"),
                       doctest::Contains("a.jsonl:2: `input_ids` holds 20000"), DataError);
  CHECK_THROWS_WITH_AS(read("{\"input_ids\": []}\n"),
                       doctest::Contains("a.jsonl:1: the row has no tokens"), DataError);
  CHECK_THROWS_WITH_AS(
      check_truncates(format, "a.jsonl:7", "", 4),
      "a.jsonl:7: 4 tokens; data.max_length is 3, and data.overlong: split divides only rows of "
      "`text` and `input_ids` under sft and distill",
      DataError);
}
