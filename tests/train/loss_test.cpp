// Sums of terms and means over passes and ranks.
#include "temper/train/loss.h"

#include "tests/train/tiny.h"

using namespace temper;

namespace {

at::Tensor numbers(const std::vector<float>& values) {
  return at::tensor(values, at::TensorOptions(at::kFloat));
}

}  // namespace

TEST_CASE("terms are summed by name over passes, each by its denominator, means by their counts") {
  train::LossSums sums;
  const at::Tensor first =
      sums.add({.terms = {{.name = "a", .value = numbers({1, 2}), .denominator = 4},
                          {.name = "b",
                           .coefficient = -0.5,
                           .value = numbers({4, 8}),
                           .weight = numbers({1, 0.25F}),
                           .denominator = 2}},
                .means = {{"m", 10, 4}}});
  CHECK(first.item<float>() == 0.75F - 1.5F);
  sums.add({.terms = {{.name = "a", .value = numbers({5}), .denominator = 4}},
            .means = {{"m", 2, 0}, {"n", 0, 0}}});
  REQUIRE(sums.terms.size() == 2);
  CHECK(sums.terms[0].value() == 2);
  CHECK(sums.terms[1].value() == -1.5);
  CHECK(sums.total() == 0.5);
  CHECK(sums.means[0].value() == 3);
  CHECK(sums.means[1].value() == 0);  // nothing was counted
  CHECK_FALSE(sums.add({}).defined());
}

TEST_CASE("ranks sum by name; one may lack a term, and what is no number stays none") {
  for (const bool broken : {false, true}) {
    CAPTURE(broken);
    std::vector<train::LossSums> of_rank(3);
    tiny::ThreadRanks(3).run([&](dist::Group& group) {
      train::LossSums& sums = of_rank[static_cast<size_t>(group.rank())];
      const float value = broken ? std::nanf("") : 6;
      if (group.rank() == 1)
        sums.add(
            {.terms = {{.name = "b", .coefficient = 2, .value = numbers({value}), .denominator = 3},
                       {.name = "a", .value = numbers({0.1F}), .denominator = 1}},
             .means = {{"m", 0.1, 1}}});
      if (group.rank() == 2)
        sums.add({.terms = {{.name = "a", .value = numbers({0.2F}), .denominator = 1}},
                  .means = {{"m", 0.2, 1}}});
      sums.reduce(group);
    });
    for (const train::LossSums& sums : of_rank) {
      REQUIRE(sums.terms.size() == 2);
      CHECK(sums.terms[1].value() == static_cast<double>(0.1F) + static_cast<double>(0.2F));
      CHECK(sums.means.at(0).value() == (0.1 + 0.2) / 2);
      if (broken)
        CHECK(std::isnan(sums.total()));
      else
        CHECK(sums.terms[0].value() == 4);
    }
  }
}
