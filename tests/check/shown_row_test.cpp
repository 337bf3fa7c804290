#include "temper/check/shown_row.h"

#include <doctest/doctest.h>

#include "tests/golden.h"

using namespace temper;
using namespace temper::checks;

TEST_CASE("a row is shown as the texts that go through the model, with what is trained") {
  const auto one = shown_paths(data::row_of({{1, 2, 3}, {1, -100, 3}}));
  REQUIRE(one.size() == 1);
  CHECK(one[0].name.empty());
  CHECK(one[0].tokens == std::vector<int32_t>{1, 2, 3});
  CHECK(one[0].trained == std::vector<bool>{false, false, true});  // nothing predicts the first
  const auto turns = shown_paths(
      data::tree_of({{{1, 2, 3}, {-100, -100, 3}}, {{1, 2, 4, 5}, {-100, -100, -100, 5}}}));
  REQUIRE(turns.size() == 2);
  CHECK(turns[0].name == "turn 1");
  CHECK(turns[0].tokens == std::vector<int32_t>{1, 2, 3});
  CHECK(turns[1].tokens == std::vector<int32_t>{1, 2, 4, 5});
  CHECK(turns[1].trained == std::vector<bool>{false, false, false, true});
}

TEST_CASE("images of a row are shown where they are in its path") {
  const std::shared_ptr<const Image> image = Image::open({"grey.png"}, golden_path("images/files"));
  data::SftRow row =
      data::tree_of({{{1, 2, 3}, {-100, -100, 3}}, {{1, 2, 4, 5}, {-100, -100, 4, 5}}});
  REQUIRE(row.segments.size() == 3);
  row.segments[0].images = {{1, 1, 0, image, nullptr}};
  row.segments[2].images = {{0, 2, 1, image, nullptr}};
  const auto turns = shown_paths(row);
  CHECK((turns[0].images == ImageSpans{{1, 1, 0, image, nullptr}}));
  CHECK((turns[1].images == ImageSpans{{1, 1, 0, image, nullptr}, {2, 2, 1, image, nullptr}}));
}
