// What changes logits before a choice, against sums by hand and against transformers' wording.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>

#include "temper/generate/sampling/logit_rules.h"

using namespace temper::generate;

namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
using Ids = std::vector<int32_t>;

struct Row {
  std::vector<float> logits;
  float max = 0, sum = 0;
  LogitsRow row() const { return {logits.data(), static_cast<int64_t>(logits.size()), &max, &sum}; }
};

}  // namespace

TEST_CASE("presence and frequency count what the completion has, the prompt does not") {
  const Row r{{4, 3, 2, 1}};
  const Ids prompt{0, 0, 3}, completion{1, 2, 1};
  const SampleContext context{.prompt = prompt, .completion = completion};
  const auto x =
      apply_rules({.presence_penalty = 0.5, .frequency_penalty = 0.25}, r.row(), context);
  CHECK(x == std::vector<float>{4, 3 - 0.5 - 2 * 0.25, 2 - 0.5 - 0.25, 1});
  // As if before the division by the temperature.
  const Row halved{{2, 1.5, 1, 0.5}};
  const auto y = apply_rules({.temperature = 2, .presence_penalty = 0.5, .frequency_penalty = 0.25},
                             halved.row(), context);
  for (size_t i = 0; i < 4; ++i) CHECK(y[i] == doctest::Approx(x[i] / 2));
}

TEST_CASE("bias comes first, then the repetition penalty") {
  const Row r{{1, -1, 2, 0}};
  const Ids completion{0, 1};
  const auto x = apply_rules({.repetition_penalty = 2, .logit_bias = {{0, 3.0f}, {1, -2.0f}}},
                             r.row(), {.completion = completion});
  CHECK(x == std::vector<float>{2, -6, 2, 0});
  const auto y =
      apply_rules({.temperature = 0.5, .logit_bias = {{3, 1.0f}, {99, 1.0f}}}, r.row(), {});
  CHECK(y == std::vector<float>{1, -1, 2, 2});
}

TEST_CASE("no run of tokens comes twice") {
  const Ids prompt{1, 2, 3, 1, 2}, completion{4, 1, 2};
  CHECK(repeating(3, prompt, completion) == Ids{3, 4});
  CHECK(repeating(2, prompt, completion) == Ids{3, 4});
  CHECK(repeating(1, {}, Ids{5, 6}) == Ids{5, 6});
  CHECK(repeating(9, prompt, completion).empty());
  CHECK(repeating(4, prompt, completion).empty());
  const Row r{{0, 0, 0, 9, 8, 1}};
  const auto x =
      apply_rules({.no_repeat_ngram = 3}, r.row(), {.prompt = prompt, .completion = completion});
  CHECK(x == std::vector<float>{0, 0, 0, kNever, kNever, 1});
}

TEST_CASE("a mask is always obeyed, a ban where it leaves something") {
  const Row r{{1, 2, 3, 4}};
  const Ids ends{3, 1};
  const uint32_t some = 0b1010, all = 0b1111;
  CHECK(apply_rules({}, r.row(), {.banned = ends}) == std::vector<float>{1, kNever, 3, kNever});
  CHECK(apply_rules({}, r.row(), {.mask = {&some, 1}}) == std::vector<float>{kNever, 2, kNever, 4});
  CHECK(apply_rules({}, r.row(), {.banned = ends, .mask = {&some, 1}}) ==
        std::vector<float>{kNever, 2, kNever, 4});
  CHECK(apply_rules({}, r.row(), {.banned = ends, .mask = {&all, 1}}) ==
        std::vector<float>{1, kNever, 3, kNever});
}

TEST_CASE("what is ruled out is never chosen, and the rest keeps its shares") {
  std::vector<float> logits(40, -3.0f);
  logits[5] = std::log(0.5f);
  logits[9] = std::log(0.3f);
  logits[33] = std::log(0.2f);
  const LogitsRow row{logits.data(), 40, nullptr, nullptr};
  const uint32_t mask[] = {1u << 9, 1u << 1};  // 9 and 33
  for (const SamplingOptions& options :
       {SamplingOptions{.seed = 3}, SamplingOptions{.top_p = 0.999, .seed = 3},
        SamplingOptions{.top_k = 30, .seed = 3}, SamplingOptions{.min_p = 0.01, .seed = 3}}) {
    std::map<int32_t, int> count;
    constexpr int kDraws = 4000;
    for (uint64_t i = 0; i < kDraws; ++i) ++count[choose(options, {i, 0, 0}, row, {.mask = mask})];
    CHECK(count.size() == 2);
    CHECK(count[9] / double{kDraws} == doctest::Approx(0.6).epsilon(0.06));
  }
  const Ids ends{5};
  CHECK(choose({.temperature = 0}, {0, 0, 0}, row, {.banned = ends}) == 9);
}
