#include "temper/data/rows/token_tree.h"

#include <doctest/doctest.h>

#include <random>
#include <set>

#include "temper/base/error.h"

using namespace temper;
using namespace temper::data;

namespace {

using Ids = std::vector<int32_t>;

// A path whose tokens from `first` on are trained.
TokenPath path(Ids tokens, size_t first) {
  TokenPath p{tokens, std::move(tokens)};
  for (size_t i = 0; i < first; ++i) p.labels[i] = -100;
  return p;
}

// Every trained token with all the tokens before it.
std::set<Ids> predictions(const SftRow& row) {
  std::set<Ids> out;
  std::vector<Ids> through;  // the tokens up to each segment's end
  for (const Segment& s : row.segments) {
    Ids all = s.parent < 0 ? Ids() : through[static_cast<size_t>(s.parent)];
    for (size_t i = 0; i < s.tokens.size(); ++i) {
      all.push_back(s.tokens[i]);
      if (s.labels[i] < 0) continue;
      CHECK(s.labels[i] == s.tokens[i]);
      if (all.size() > 1) CHECK(out.insert(all).second);
    }
    through.push_back(std::move(all));
  }
  return out;
}

}  // namespace

TEST_CASE("paths part where their tokens first differ, and shared beginnings stand once") {
  const SftRow row = tree_of({path({1, 2, 3, 4}, 2), path({1, 2, 3, 5, 6}, 4), path({1, 7}, 1)});
  REQUIRE(row.segments.size() == 5);
  const std::vector<Segment> want = {{-1, {1}, {-100}},
                                     {0, {2, 3}, {-100, 3}},
                                     {1, {4}, {4}},
                                     {1, {5, 6}, {-100, 6}},
                                     {0, {7}, {7}}};
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    CHECK(row.segments[i].parent == want[i].parent);
    CHECK(row.segments[i].tokens == want[i].tokens);
    CHECK(row.segments[i].labels == want[i].labels);
  }
  CHECK(row.num_tokens() == 11);
  CHECK(row.num_computed() == 7);
  CHECK(row.supervised() == 4);
  CHECK(row.trains(6));
  CHECK_FALSE(row.trains(5));
}

TEST_CASE("a path that another begins with adds no segment, and a prediction counts once") {
  const SftRow row = tree_of({path({1, 2, 3}, 1), path({1, 2, 3, 4}, 2)});
  REQUIRE(row.segments.size() == 1);
  CHECK(row.segments[0].labels == Ids{-100, 2, 3, 4});
  CHECK(row.num_tokens() == 7);
  CHECK(row.num_computed() == 4);
  CHECK(row.supervised() == 3);
}

TEST_CASE("a root's first label is neither counted nor trained") {
  const SftRow row = tree_of({path({1, 2}, 0), path({3}, 0)});
  CHECK(row.segments.size() == 2);
  CHECK(row.segments[1].parent == -1);
  CHECK(row.supervised() == 1);
  CHECK_FALSE(row.trains(3));
  CHECK(row_of(path({5, 6}, 0)).supervised() == 1);
  CHECK(row_of(path({5, 6}, 0)).num_tokens() == 2);
  CHECK_THROWS_AS(tree_of({path({}, 0)}), RunError);
}

TEST_CASE("a tree predicts what its paths predict, depth first, whatever they share") {
  std::mt19937 random(7);
  const auto below = [&](uint32_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 500; ++round) {
    std::vector<TokenPath> paths(1 + below(6));
    std::set<Ids> want;
    int64_t tokens = 0;
    for (TokenPath& p : paths) {
      Ids ids(1 + below(8));
      for (int32_t& id : ids) id = static_cast<int32_t>(below(2));
      p = path(ids, below(8) % ids.size());
      tokens += static_cast<int64_t>(ids.size());
      for (size_t i = 1; i < ids.size(); ++i)
        if (p.labels[i] >= 0) want.insert(Ids(ids.begin(), ids.begin() + static_cast<long>(i) + 1));
    }
    const SftRow row = tree_of(paths);
    CHECK(predictions(row) == want);
    CHECK(row.supervised() == static_cast<int64_t>(want.size()));
    CHECK(row.num_tokens() == tokens);
    std::vector<int32_t> open;  // the segments from a root to the one before
    for (size_t s = 0; s < row.segments.size(); ++s) {
      const int32_t parent = row.segments[s].parent;
      while (!open.empty() && open.back() != parent) open.pop_back();
      CHECK((parent < 0) == open.empty());
      open.push_back(static_cast<int32_t>(s));
    }
  }
}
