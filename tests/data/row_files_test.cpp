// Images of rows for tools that compare and copy rows.
#include "temper/data/images/row_files.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/file.h"
#include "temper/base/sha256.h"
#include "temper/data/images/image_fields.h"
#include "temper/data/read/row_set.h"
#include "temper/data/rows/row_texts.h"
#include "tests/data/folder.h"
#include "tests/golden.h"

using namespace temper;
using namespace temper::data;

namespace {

const std::string kPictures = std::filesystem::absolute(golden_path("images/files"));

Json row_with(const Json& images) {
  return {{"messages", {{{"role", "user"}, {"content", "How many?"}}}}, {"images", images}};
}

}  // namespace

TEST_CASE("every SOURCE of a row is found, and nothing else") {
  const Json row = parse_json(
      R"({"images": ["a.png", {"path": "b"}, "data:image/png;base64,AA=="], "image": "no picture",
          "prompt": [{"role": "user", "content": [{"type": "image", "image": "c.webp"},
                      {"type": "image"}, {"type": "text", "text": "d.png"}]}],
          "conversations": [{"from": "human", "value": [{"type": "image_url",
                             "image_url": {"url": "e.jpg"}}]}], "other": "f.png"})",
      "row");
  std::vector<std::string> found;
  each_image_source(row, {}, [&](const Json& source) { found.push_back(source.dump()); });
  CHECK(found == std::vector<std::string>{R"("a.png")", R"({"path":"b"})",
                                          R"("data:image/png;base64,AA==")", R"("e.jpg")",
                                          R"("c.webp")"});
  int64_t renamed = 0;
  each_image_source(Json{{"photo", "a.png"}}, {{"image", "photo"}},
                    [&](const Json&) { ++renamed; });
  CHECK(renamed == 1);
}

TEST_CASE("rows are equal whose pictures are, however they name them") {
  const std::string digest = "sha256:" + sha256_hex(read_file(kPictures + "/grey.png"));
  Json by_path = row_with({"grey.png"}), by_other = row_with({"files/grey.png"}),
       by_struct = row_with(Json::array({{{"path", kPictures + "/grey.png"}}}));
  CHECK(replace_images_by_digests(by_path, {}, kPictures) == digest + "\n");
  replace_images_by_digests(by_other, {}, golden_path("images"));
  replace_images_by_digests(by_struct, {}, "/nowhere");
  CHECK(by_path == row_with({digest}));
  CHECK(by_other == by_path);
  CHECK(by_struct == by_path);
  CHECK(image_digests(row_with({"rgb.png"}), {}, kPictures) != digest + "\n");
  // What cannot be read is its path, which is not that of a file of the same name elsewhere.
  CHECK(image_digests(row_with({"none.png"}), {}, "/a") == "/a/none.png\n");
  CHECK(image_digests(row_with(Json::array()), {}, "/a").empty());
}

TEST_CASE("relative paths lead to the same file from another directory") {
  const Folder folder;
  const std::string from = folder.path + "/a/rows", to = folder.path + "/b";
  std::filesystem::create_directories(from + "/pictures");
  std::filesystem::create_directories(to);
  std::filesystem::copy_file(kPictures + "/grey.png", from + "/pictures/grey.png");
  Json row = row_with({"pictures/grey.png",
                       "/absolute.png",
                       "data:image/png;base64,AA==",
                       {{"path", "pictures/grey.png"}}});
  const std::string before = image_digests(row, {}, from);
  CHECK(move_image_paths(row, {}, from, to));
  CHECK(row["images"][0] == "../a/rows/pictures/grey.png");
  CHECK(row["images"][1] == "/absolute.png");
  CHECK(row["images"][3]["path"] == "../a/rows/pictures/grey.png");
  CHECK(image_digests(row, {}, to) == before);
  CHECK_FALSE(move_image_paths(row, {}, to, to));
  // ".." leads up from where a link leads to.
  std::filesystem::create_directory_symlink(to, folder.path + "/a/link");
  Json linked = row_with({"pictures/grey.png"});
  CHECK(move_image_paths(linked, {}, from, folder.path + "/a/link"));
  CHECK(linked["images"][0] == "../a/rows/pictures/grey.png");
  // The directory of a file that is named without one is that of the process.
  Json here = row_with({"grey.png"});
  CHECK(move_image_paths(here, {}, "", folder.path));
  CHECK(
      std::filesystem::weakly_canonical(folder.path + "/" + here["images"][0].get<std::string>()) ==
      std::filesystem::weakly_canonical(std::filesystem::current_path() / "grey.png"));
  CHECK_FALSE(move_image_paths(here, {}, "", "."));
  // Bytes that stand beside a path are the picture.
  Json whole = row_with(Json::array({{{"bytes", "AA=="}, {"path", "x.png"}}}));
  CHECK_FALSE(move_image_paths(whole, {}, from, to));
}

TEST_CASE("rows of one question about different pictures are held out like different prompts") {
  const Folder folder;
  std::string lines;
  for (int i = 0; i < 16; ++i)
    lines += row_with({"picture" + std::to_string(i / 2) + ".png"}).dump() + "\n";
  SourceSpec spec{folder.write("rows.jsonl", lines)};
  spec.held_out = {.fraction = 0.25, .seed = 3};
  const RowSet rest(spec);
  spec.only_held_out = true;
  const RowSet held(spec);
  CHECK(held.size() == 4);
  CHECK(rest.size() == 12);
  for (int64_t i = 0; i < held.size(); ++i)
    for (int64_t k = 0; k < rest.size(); ++k) CHECK(held.row(i)["images"] != rest.row(k)["images"]);
}

TEST_CASE("a row's texts are its words, without the parts that are images") {
  Json row = row_with({"a.png"});
  row["messages"][0]["content"] = {{{"type", "image"}, {"image", "b.png"}},
                                   {{"type", "text"}, {"text", "How many?"}}};
  CHECK(texts_of(row).prompt == "How many?");
}
