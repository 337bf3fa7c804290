// Which rollout batches leave a file, and in which form.
#include "temper/rl/rollout/rollout_files.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/file.h"
#include "temper/data/read/compress.h"
#include "temper/data/read/row_set.h"
#include "temper/rl/rollout/rollout_lines.h"
#include "tests/golden.h"
#include "tests/train/tiny.h"

using namespace temper;
using namespace temper::rl;
using tiny::Folder;

namespace {

std::vector<EpisodeGroup> some_groups(int64_t id) {
  std::vector<EpisodeGroup> groups{{.id = id}};
  for (const int32_t token : {4, 5})
    add_episode(groups[0], {1, 2, 3}, {.sample = token, .reward = 0.5},
                {.tokens = {token, 6},
                 .sampled = {true, true},
                 .logprobs = {-0.5F, -0.25F},
                 .old_logp = {},
                 .ref_logp = {},
                 .value = {},
                 .version = {},
                 .branches = {}});
  return groups;
}

std::shared_ptr<const Image> image_of(const char* name) {
  const std::string bytes = read_file(golden_path("images/files/") + name);
  return Image::open({.text = data_uri(bytes)}, "");
}

// A prompt that shows these, of data: URIs.
std::vector<EpisodeGroup> groups_with(const std::vector<const char*>& images) {
  std::vector<EpisodeGroup> groups{{.id = 1}};
  std::vector<int32_t> prompt{1};
  ImageSpans spans;
  for (const char* name : images) {
    spans.push_back({std::ssize(prompt), 1, 0, image_of(name), nullptr});
    prompt.push_back(7);
  }
  add_episode(groups[0], prompt, {}, {.tokens = {4}, .sampled = {true}, .logprobs = {-0.5F}}, 0,
              spans);
  return groups;
}

std::set<std::string> names_in(const std::string& directory, const char* folder = "/rollouts") {
  std::set<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory + folder, none))
    names.insert(entry.path().filename().string());
  return names;
}

// The files of a run of six batches of two updates each.
std::set<std::string> after_six(const std::string& retention, bool compress = false) {
  const Folder folder;
  RolloutFiles files(folder.path.string(), *RolloutRetention::parse(retention), compress);
  for (int64_t batch = 1; batch <= 6; ++batch)
    files.write(batch, 2 * batch - 1, some_groups(batch));
  return names_in(folder.path.string());
}

using Names = std::set<std::string>;

}  // namespace

TEST_CASE("rl.save_rollouts: all, none, every K or last K, and nothing else") {
  CHECK(RolloutRetention::parse("all"));
  CHECK(RolloutRetention::parse("every  10")->count == 10);
  CHECK(RolloutRetention::parse("last 3")->kind == RolloutRetention::Kind::kLast);
  for (const char* text : {"", "every", "every ", "every 0", "every -1", "last 1.5", "10", "some",
                           "every 3 batches", "last", "All", "every 99999999999999999999"})
    CHECK_MESSAGE(!RolloutRetention::parse(text), text);
}

TEST_CASE("rollout files that are kept") {
  CHECK(after_six("all").size() == 6);
  CHECK(after_six("none").empty());
  CHECK(after_six("every 3") == Names{"step-5.jsonl", "step-11.jsonl"});
  CHECK(after_six("every 7").empty());
  CHECK(after_six("last 2") == Names{"step-9.jsonl", "step-11.jsonl"});
  CHECK(after_six("last 2", true) == Names{"step-9.jsonl.zst", "step-11.jsonl.zst"});
  for (const char* text : {"all", "none", "every 3", "every 7", "last 2", "last 9"})
    CHECK(RolloutRetention::parse(text)->files_of(6) ==
          static_cast<int64_t>(after_six(text).size()));
}

TEST_CASE("a resumed run removes the files of later steps, and writes what the whole one has") {
  for (const bool compress : {false, true}) {
    const Folder folder;
    RolloutFiles files(folder.path.string(), *RolloutRetention::parse("last 2"), compress);
    for (int64_t batch = 1; batch <= 4; ++batch) files.write(batch, batch, some_groups(batch));
    write_file_atomic(folder.path.string() + "/rollouts/step-x.jsonl", "not a step's");
    files.remove_after(3);  // a checkpoint of step 3
    const std::string ending = compress ? ".jsonl.zst" : ".jsonl";
    CHECK(names_in(folder.path.string()) == Names{"step-3" + ending, "step-x.jsonl"});
    for (int64_t batch = 4; batch <= 5; ++batch) files.write(batch, batch, some_groups(batch));
    CHECK(names_in(folder.path.string()) ==
          Names{"step-4" + ending, "step-5" + ending, "step-x.jsonl"});
  }
}

TEST_CASE("images beside rollout files are kept for as long as a file names them") {
  const auto name = [](const char* file) { return image_of(file)->digest() + ".png"; };
  const std::string grey = name("grey.png"), rgb = name("rgb.png"), alpha = name("palette.png");
  for (const bool compress : {false, true}) {
    CAPTURE(compress);
    const Folder folder;
    const std::string run = folder.path.string(), pictures = run + "/rollouts/images";
    const auto kept = [&] { return names_in(run, "/rollouts/images"); };
    const RolloutRetention last = *RolloutRetention::parse("last 2");
    std::optional<RolloutFiles> files(std::in_place, run, last, compress);
    files->write(1, 1, groups_with({"grey.png"}));
    files->write(2, 2, groups_with({"rgb.png", "palette.png"}));
    CHECK(kept() == Names{grey, rgb, alpha});
    files->write(3, 3, groups_with({"rgb.png"}));
    CHECK(kept() == Names{rgb, alpha});
    // A resumed run, which was killed between an image and its file.
    files.emplace(run, last, compress);
    write_file_atomic(pictures + "/" + grey, "left");
    write_file_atomic(pictures + "/own.png", "of someone else");
    files->write(4, 4, some_groups(4));
    CHECK(kept() == Names{rgb, "own.png"});
    // A copy of a file that someone keeps, and one that cannot be read.
    const std::string copy = R"({"images":["images/)" + rgb + "\"]}\n";
    write_file_atomic(run + "/rollouts/mine.jsonl.zst", data::compress_zstd(copy));
    files->write(5, 5, some_groups(5));
    files->write(6, 6, some_groups(6));
    CHECK(kept() == Names{rgb, "own.png"});
    write_file_atomic(run + "/rollouts/mine.jsonl.zst", "damaged");
    files.emplace(run, last, compress);
    files->write(7, 7, some_groups(7));
    CHECK(kept() == Names{rgb, "own.png"});
    std::filesystem::remove(run + "/rollouts/mine.jsonl.zst");
    files->write(8, 8, some_groups(8));
    CHECK(kept() == Names{"own.png"});
  }
  const Folder folder;
  RolloutFiles all(folder.path.string(), {}, false);
  all.write(1, 1, groups_with({"grey.png"}));
  all.write(2, 2, some_groups(2));
  CHECK(names_in(folder.path.string(), "/rollouts/images") == Names{grey});
}

TEST_CASE("a packed rollout file has the rows of a plain one, where rl.replay reads them") {
  const Folder folder;
  for (const bool compress : {false, true})
    RolloutFiles(folder.path.string(), {}, compress)
        .write(compress ? 2 : 1, compress ? 2 : 1, some_groups(9));
  const data::RowSet plain({folder.path.string() + "/rollouts/step-1.jsonl"}),
      packed({folder.path.string() + "/rollouts/step-2.jsonl.zst"});
  REQUIRE(plain.size() == 2);
  REQUIRE(packed.size() == 2);
  for (int64_t row = 0; row < 2; ++row) CHECK(packed.row(row) == plain.row(row));
}
