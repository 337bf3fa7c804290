#include "temper/check/row_sizes.h"

#include <doctest/doctest.h>

#include "temper/base/error.h"
#include "tests/data/folder.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::checks;

namespace {

RunShape planned(const std::vector<RowSize>& units, int64_t batch, int64_t max_tokens,
                 int64_t ranks) {
  RunShape run;
  plan_passes(units, batch, max_tokens, ranks, run);
  return run;
}

// Two steps, of 18 and of 4 tokens; a target for each token but one.
const std::vector<RowSize> kUnits{{6, 5}, {5, 4}, {4, 3}, {3, 2}, {2, 1}, {2, 1}};

}  // namespace

TEST_CASE("passes of a rank: as many as the tokens need, the largest first and later one") {
  const RunShape run = planned(kUnits, 4, 8, 1);  // {6}, {5, 3}, {4}, then {2, 2}
  CHECK(run.passes == 3);
  CHECK(run.step_tokens == 11);
  REQUIRE(run.largest.size() == 2);
  CHECK(run.largest[0].first);
  CHECK(run.largest[0].longest == 6);
  CHECK(run.largest[0].tokens == 6);
  CHECK(run.largest[0].targets == 5);
  CHECK_FALSE(run.largest[1].first);
  CHECK(run.largest[1].tokens == 8);
  CHECK(run.largest[1].targets == 6);
}

TEST_CASE("ranks share a step's tokens, a limit of 0 is a unit a pass") {
  const RunShape two = planned(kUnits, 4, 9, 2);  // {6, 3} and {5, 4}
  CHECK(two.passes == 1);
  REQUIRE(two.largest.size() == 1);
  CHECK(two.largest[0].tokens == 9);
  CHECK(two.step_tokens == 11);  // of all ranks
  CHECK(planned(kUnits, 4, 0, 1).passes == 4);
  CHECK(planned(kUnits, 4, 2, 1).passes == 4);  // a unit that is longer is a pass of its own
  CHECK(planned({}, 4, 8, 1).largest.empty());
}

TEST_CASE("rows are measured once, and drawn in the run's order without those left out") {
  const data::Folder folder;
  const std::string path = folder.write("rows.jsonl", "{}\n{}\n{}\n{}\n");
  const data::RowOrder order({data::SourceSpec{path}}, {.shuffle = false});
  int64_t read = 0;
  const RowSizes sizes = measure_rows<int64_t>(
      order,
      [&](const data::RowOrder::Drawn& drawn, data::LoaderState&) -> std::optional<int64_t> {
        ++read;
        if (drawn.row == 1) return {};
        return 10 * (drawn.row + 1);
      },
      [](int64_t tokens) { return RowSize{tokens, tokens - 1}; });
  CHECK(read == 4);
  CHECK(sizes.longest() == 40);
  CHECK(sizes.longer_than(10) == 2);
  CHECK(sizes.longer_than(40) == 0);
  const std::vector<RowSize> drawn = drawn_rows(order, sizes, 4);
  REQUIRE(drawn.size() == 4);
  CHECK(drawn[0].tokens == 10);
  CHECK(drawn[1].tokens == 30);
  CHECK(drawn[2].targets == 39);
  CHECK(drawn[3].tokens == 10);  // around again
}

TEST_CASE("equal rows are found, among themselves and in others") {
  const auto row = [](std::vector<int32_t> tokens, std::vector<int32_t> labels) {
    return data::row_of({std::move(tokens), std::move(labels)});
  };
  const auto size = [](const data::SftRow& r) {
    return RowSize{.tokens = r.num_tokens(), .key = key_of(r)};
  };
  RowSizes train, eval;
  train.of = {{size(row({1, 2}, {1, 2})), size(row({1, 2, 3}, {1, 2, 3})),
               size(row({1, 2}, {-100, 2})),                      // other labels: another row
               size(row({1, 2}, {1, 2})), RowSize{}, RowSize{}},  // the last two are left out
              {size(row({1, 2, 3}, {1, 2, 3}))}};
  eval.of = {{size(row({7}, {7})), size(row({1, 2, 3}, {1, 2, 3})), RowSize{}}};
  const auto repeated = train.repeated();
  REQUIRE(repeated.size() == 2);
  CHECK(repeated[0].first.row == 3);
  CHECK(repeated[0].second.row == 0);
  CHECK(repeated[1].first.source == 1);
  const auto shared = train.found_in(eval);
  REQUIRE(shared.size() == 1);
  CHECK(shared[0].first.row == 1);
  CHECK(shared[0].second.row == 1);
  CHECK(eval.repeated().empty());
}

TEST_CASE("rows with the prompt of a training row are found, unless they are that row") {
  const auto size = [](std::vector<int32_t> tokens, std::vector<int32_t> labels) {
    const data::SftRow row = data::row_of({std::move(tokens), std::move(labels)});
    return RowSize{.tokens = row.num_tokens(), .key = key_of(row), .asked = asked_key_of(row)};
  };
  RowSizes train, eval;
  train.of = {{size({1, 2, 3}, {-100, -100, 3}), size({1, 5, 6}, {-100, 5, 6}),
               size({7, 8}, {7, 8}), size({4, 4}, {-100, -100})}};
  eval.of = {{size({1, 2, 3}, {-100, -100, 3}),  // the row itself
              size({1, 2, 9}, {-100, -100, 9}),  // its prompt
              size({1, 6, 6}, {-100, 6, 6}),     // one token is no prompt
              size({7, 9}, {7, 9}), size({4, 4, 4}, {-100, -100, 4})}};
  const auto found = train.prompts_found_in(eval);
  REQUIRE(found.size() == 1);
  CHECK(found[0].first.row == 1);
  CHECK(found[0].second.row == 0);
  // The first path of a tree, as far as it is not trained.
  const data::SftRow tree =
      data::tree_of({{{1, 2, 3}, {-100, -100, 3}}, {{1, 2, 4, 5}, {-100, -100, -100, 5}}});
  CHECK(asked_key_of(tree) == size({1, 2, 3}, {-100, -100, 3}).asked);
}

TEST_CASE("images are counted and decoded once each, and rows with others are other rows") {
  const auto open = [](const char* name) {
    return Image::open({name}, golden_path("images/files"), {}, "rows.jsonl:1: image 1");
  };
  const auto row = [](const std::shared_ptr<const Image>& image) {
    data::SftRow out = data::row_of({{1, 2, 2, 3}, {-100, -100, -100, 3}});
    out.segments[0].images = {{1, 2, 0, image, nullptr}};
    return out;
  };
  const data::SftRow grey = row(open("grey.png")), rgb = row(open("rgb.png"));
  CHECK(key_of(grey) == key_of(row(open("grey.png"))));
  CHECK(key_of(grey) != key_of(rgb));
  CHECK(asked_key_of(grey) != asked_key_of(rgb));
  CHECK(asked_key_of(grey) == asked_key_of(row(open("grey.png"))));
  ImageChecks checks;
  for (const data::SftRow* one : {&grey, &rgb, &grey}) checks.add(images_of(*one));
  CHECK_THROWS_WITH_AS(checks.add(images_of(row(open("bad_cut.png")))),
                       doctest::Contains("rows.jsonl:1: image 1: "), DataError);
  RowSizes sizes;
  checks.put(sizes);
  CHECK(sizes.images == 4);
  CHECK(sizes.image_tokens == 8);
  CHECK(sizes.different_images == 2);
}
