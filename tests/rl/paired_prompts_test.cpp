// Prompts that two runs sampled in the same steps.
#include "temper/rl/rollout/paired_prompts.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/data/read/compress.h"
#include "tests/train/tiny.h"

using namespace temper;
using namespace temper::rl;

namespace {

std::string rollout_line(int group, const char* prompt, const char* completion, double reward,
                         const char* more = "") {
  return str(R"({"group":)", group, R"(,"prompt_tokens":)", prompt, R"(,"completion_tokens":)",
             completion, R"(,"reward":)", reward, more, "}\n");
}

void write_step(const tiny::Folder& run, int step, const std::string& lines, bool packed = false) {
  std::filesystem::create_directories(run.path / "rollouts");
  write_file_atomic(
      str(run.path.string(), "/rollouts/step-", step, packed ? ".jsonl.zst" : ".jsonl"),
      packed ? data::compress_zstd(lines) : lines);
}

}  // namespace

TEST_CASE("prompts are paired by step, group and tokens; what one run alone has is counted") {
  const tiny::Folder a, b;
  const std::string early = rollout_line(0, "[1]", "[5]", 7);
  write_step(a, 2, early);  // before the fork
  write_step(b, 2, early);
  write_step(a, 3,
             rollout_line(1, "[1,2]", "[5,6]", 0) + rollout_line(1, "[1,2]", "[5,6,7,8]", 1) +
                 rollout_line(2, "[3]", "[5]", 1) + rollout_line(4, "[4]", "[5]", 1));
  // Three completions, one of them with an observation; another order; another prompt as group 4.
  write_step(b, 3,
             rollout_line(2, "[3]", "[5]", 0.5) + "\n" + rollout_line(1, "[1,2]", "[5]", 1) +
                 rollout_line(1, "[1,2]", "[5]", 1) +
                 rollout_line(1, "[1,2]", "[5,6,7,8]", 0.25, R"(,"completion_mask":[1,0,0,0])") +
                 rollout_line(4, "[9]", "[5]", 1) + rollout_line(5, "[4]", "[5]", 1),
             true);
  write_step(a, 4, early);  // pruned in b
  write_step(b, 5, early);
  write_step(b, 6, early);
  // The first prompt again; with an image it is another one.
  write_step(a, 7,
             rollout_line(8, "[1,2]", "[5]", 0) +
                 rollout_line(9, "[1,2]", "[5]", 0, R"(,"images":["x.png"])"));
  write_step(b, 7,
             rollout_line(8, "[1,2]", "[5]", 0.5) +
                 rollout_line(9, "[1,2]", "[5]", 3, R"(,"images":["../x.png"])"));
  const PairedPrompts found = pair_prompts(a.path.string(), b.path.string(), 2);
  CHECK(found.steps == 2);
  CHECK(found.of_a.steps == 1);
  CHECK(found.of_b.steps == 2);
  CHECK(found.of_a.groups == 1);
  CHECK(found.of_b.groups == 2);
  REQUIRE(found.prompts.size() == 3);
  const PairedPrompt& first = found.prompts[0];
  CHECK(first.times == 2);
  CHECK(first.reward_a == 0.25);
  CHECK(first.reward_b == 0.625);
  CHECK(first.length_a == 2);
  CHECK(first.length_b == 1);
  CHECK(first.change == 0.75);
  CHECK(found.prompts[1].change == -0.5);
  CHECK(found.prompts[2].change == 3);

  const std::vector<PairedPrompt> most = most_changed(found, 2);
  REQUIRE(most.size() == 2);
  CHECK(most[0].change == 3);
  CHECK(most[1].change == 0.75);
  // Of two files, whatever the order.
  const std::vector<PairedPrompt> asked{found.prompts[2], found.prompts[1], found.prompts[0]};
  const std::vector<std::vector<int32_t>> tokens{{1, 2}, {3}, {1, 2}};
  CHECK(tokens_of(asked, a.path.string()) == tokens);
  std::filesystem::remove(a.path / "rollouts" / "step-7.jsonl");
  CHECK(tokens_of(asked, a.path.string())[0].empty());
  CHECK(tokens_of(asked, a.path.string())[1] == tokens[1]);
  CHECK(most_changed(pair_prompts(a.path.string(), a.path.string(), 0), 9).empty());
  const tiny::Folder none;
  CHECK(pair_prompts(none.path.string(), none.path.string(), 0).steps == 0);
}

TEST_CASE("broken lines of rollout files are named and left out") {
  const tiny::Folder a, b;
  const std::string good = rollout_line(1, "[1,2]", "[5]", 0);
  write_step(a, 1, good + "{\n" + rollout_line(3, "[3]", "[5]", 1));
  write_step(b, 1,
             good + "\n" + rollout_line(2, "[1,-2]", "[5]", 0) + rollout_line(3, "[3]", "[5]", 2) +
                 R"({"group":3})");
  // The end of a compressed file is lost.
  write_step(a, 2, good);
  write_step(b, 2, good, true);
  const std::string packed = (b.path / "rollouts" / "step-2.jsonl.zst").string();
  std::filesystem::resize_file(packed, std::filesystem::file_size(packed) - 4);
  const PairedPrompts found = pair_prompts(a.path.string(), b.path.string(), 0);
  CHECK(found.of_a.lines == 1);
  CHECK(found.of_b.lines == 2);
  CHECK(found.of_a.ends == 0);
  CHECK(found.of_b.ends == 1);
  CHECK(found.steps == 2);
  REQUIRE(found.prompts.size() == 2);
  CHECK(found.prompts[0].change == 0);
  CHECK(found.prompts[1].change == 1);
  CHECK(tokens_of(found.prompts, a.path.string())[1] == std::vector<int32_t>{3});
  const auto says = [&](size_t problem, const char* beginning, const char* end) {
    const std::string& text = found.problems.at(problem);
    CHECK_MESSAGE((text.find(beginning) != text.npos && text.ends_with(end)), text);
  };
  REQUIRE(found.problems.size() == 3);
  says(0, "step-1.jsonl:2: ", "; the line is left out");
  says(1, "step-1.jsonl:3: `prompt_tokens` holds -2", "; 2 such lines are left out");
  says(2, "step-2.jsonl.zst", "; the rest of the file is left out");
}
