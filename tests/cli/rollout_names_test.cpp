// Rollout files of one run in two directories name the same images by different paths.
#include "temper/cli/experiments/rollout_names.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/sha256.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::cli;

namespace {

std::string line_of(const std::string& images, const char* number) {
  return R"({"group":0,"prompt_tokens":[1,7],)" + images + R"("logprobs":[)" + number + "]}\n";
}

}  // namespace

TEST_CASE("a repeated step's rollout is the recorded one wherever images' paths begin") {
  namespace fs = std::filesystem;
  const fs::path root = temporary_directory() + "/temper_names_" + std::to_string(::getpid());
  for (const char* name : {"runs/a/rollouts", "other/rollouts", "elsewhere/b/rollouts"})
    fs::create_directories(root / name);
  const std::string kept = line_of(R"("images":["images/5.png"],)", "-0.10000000149"),
                    none = line_of("", "-1.5");
  const std::string recorded =
      line_of(R"("images":["../../../squares/1.png","images/5.png"],)", "-0.065610886") + kept +
      none;
  const auto again = [&](const char* image, const char* number) {
    const std::string path = root / "other/rollouts/step-1.jsonl";
    write_file_atomic(
        path, line_of(str(R"("images":[")", image, R"(","images/5.png"],)"), number) + kept + none);
    return path;
  };
  const std::string digest = sha256_hex(recorded), of_run = root / "runs/a/rollouts",
                    moved = root / "elsewhere/b/rollouts";
  const std::string same = again("../../squares/1.png", "-0.065610886");
  CHECK(named_from(same, of_run) == recorded);
  CHECK(is_recorded_rollout(same, digest, {of_run}, "", {}));
  CHECK(is_recorded_rollout(same, digest, {moved + "/x", of_run}, "", {}));
  CHECK_FALSE(is_recorded_rollout(same, digest, {moved + "/x"}, "", {}));
  // Rows that were moved: as the run's own file has it, but never another file's name or number.
  write_file_atomic(moved + "/step-1.jsonl", recorded);
  ReadImages read;
  const auto as_recorded = [&](const char* image, const char* number) {
    return is_recorded_rollout(again(image, number), digest, {of_run}, moved + "/step-1.jsonl",
                               read);
  };
  CHECK(as_recorded("../../moved/1.png", "-0.065610886"));
  CHECK_FALSE(as_recorded("../../moved/2.png", "-0.065610886"));
  CHECK_FALSE(as_recorded("../../squares/1.png", "-0.065610887"));
  // Where the manifest knows the image: the same bytes, whatever they are called.
  for (const char* folder : {"moved", "others"}) fs::create_directories(root / folder);
  for (const char* copy : {"moved/1.png", "moved/renamed.png"})
    write_file_atomic(root / copy, "first");
  write_file_atomic(root / "others/1.png", "another");
  const auto sees_the_same = [&] {
    CHECK(as_recorded("../../moved/1.png", "-0.065610886"));
    CHECK(as_recorded("../../moved/renamed.png", "-0.065610886"));
    CHECK_FALSE(as_recorded("../../others/1.png", "-0.065610886"));
    CHECK_FALSE(as_recorded("../../moved/gone.png", "-0.065610886"));
  };
  const std::string first = sha256_hex("first"), another = sha256_hex("another");
  read = {{root / "squares/1.png", {first}}, {root / "more/1.png", {another}}};
  sees_the_same();
  // The run named it from a place that is not known.
  read = {{"squares/1.png", {first}}, {"more/1.png", {another}}};
  sees_the_same();
  fs::remove_all(root);
}
