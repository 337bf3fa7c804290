// Images of episodes: in their segments, in the lines of rollouts files, and in what an environment
// answers.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/rl/batch.h"
#include "temper/rl/episodes/live_episode.h"
#include "temper/rl/rollout/replay_source.h"
#include "temper/rl/rollout/rollout_files.h"
#include "tests/golden.h"
#include "tests/rl/heard.h"
#include "tests/text/golden.h"
#include "tests/text/templates.h"

using namespace temper;

namespace {

constexpr int32_t kPad = 7;
constexpr const char* kPadText = "<|end|>";  // a token of the tokenizer

// Three tokens an image.
class ThreeTokens : public ImageProcessor {
 public:
  explicit ThreeTokens(const char* mark) { tokens_ = {mark, mark, "", ""}; }
  ImageLayout layout(const ImageSize&) const override {
    ImageTile tile;
    tile.token_rows = 1;
    tile.token_columns = 3;
    return {.canvases = {}, .tiles = {tile}};
  }
  std::string expand(const ImageLayout&) const override {
    return tokens_.image + tokens_.image + tokens_.image;
  }
};

std::shared_ptr<const data::ImageFormat> three_tokens(int32_t token) {
  auto format = std::make_shared<data::ImageFormat>();
  format->processor = std::make_shared<const ThreeTokens>(kPadText);
  format->token = token;
  return format;
}

std::string picture_file(const char* name) { return golden_path("images/files/") + name; }
ImageSpan span_at(int64_t begin, const ImageSource& source) {
  return {begin, 3, 0, Image::open(source, ""), std::make_shared<const ThreeTokens>(kPadText)};
}

// Two completions of a prompt with an image, one of which goes on behind an image that it is shown,
// and in a branch from within the prompt, behind the first image.
rl::EpisodeGroup two_shown() {
  const ImageSource grey{picture_file("grey.png"), {}},
      rgb{data_uri(read_file(picture_file("rgb.png"))), {}};
  const std::vector<int32_t> prompt{1, 7, 7, 7, 2};
  const ImageSpans of_prompt{span_at(1, grey)};
  rl::EpisodeGroup group{.id = 3};
  rl::add_episode(group, prompt, {.sample = 0}, {.tokens = {10, 11}, .sampled = {true, true}}, 0,
                  of_prompt);
  rl::CompletionTokens turns{.tokens = {12, 7, 7, 7, 13, 14, 15},
                             .sampled = {true, false, false, false, true, false, true}};
  turns.images = {span_at(1, rgb)};
  turns.branches = {{5, -1}};
  rl::add_episode(group, prompt, {.sample = 1}, turns, 0, of_prompt);
  rl::add_episode(group, prompt, {.sample = 2}, {.tokens = {16}, .sampled = {true}}, 0, of_prompt);
  return group;
}

}  // namespace

TEST_CASE("images belong to the segments that have their tokens") {
  const rl::EpisodeGroup group = two_shown();
  REQUIRE(group.segments.size() == 8);
  CHECK(group.segments[0].images.size() == 1);
  CHECK(group.segments[1].images.empty());
  REQUIRE(group.segments[3].images.size() == 1);  // what was shown
  CHECK(group.segments[3].images[0].begin == 0);
  CHECK(group.segments[5].repeated == 4);  // the branch repeats the prompt's image
  CHECK((group.segments[5].images == group.segments[0].images));
  CHECK(group.images(group.episodes[0]).size() == 1);
  const ImageSpans all = group.images(group.episodes[1]);
  REQUIRE(all.size() == 2);
  CHECK(all[1].begin == 6);
  const rl::TrainingBatch batch({group});
  const std::vector<train::PackUnit> units = batch.units(0, 2, 0);
  REQUIRE(units.size() == 1);
  int64_t images = 0;
  for (const train::PackUnit::Segment& segment : units[0].segments)
    images += std::ssize(segment.images);
  CHECK(images == 3);
}

TEST_CASE("prompts of the same tokens with other images are other prompts") {
  rl::EpisodeGroup group{.id = 1};
  const std::vector<int32_t> prompt{7, 7, 7};
  for (const char* name : {"grey.png", "grey.png", "rgb.png"})
    rl::add_episode(group, prompt, {}, {.tokens = {10}, .sampled = {true}}, 0,
                    {span_at(0, {picture_file(name), {}})});
  CHECK(group.segments.size() == 5);
}

TEST_CASE("lines of episodes name their images, and give the same episodes back") {
  const rl::EpisodeGroup group = two_shown();
  const rl::LineFormat format(100, three_tokens(kPad));
  for (const bool each : {false, true}) {
    CAPTURE(each);
    std::string lines;
    if (each)
      for (const rl::Episode& e : group.episodes) lines += rl::to_line(group, e) + "\n";
    else
      lines = rl::to_lines({group});
    std::vector<rl::EpisodeGroup> read;
    rl::add_lines(read, lines, format, "line");
    REQUIRE(read.size() == 1);
    REQUIRE(read[0].segments.size() == group.segments.size());
    for (size_t i = 0; i < group.segments.size(); ++i)
      CHECK((read[0].segments[i].images == group.segments[i].images));
    CHECK(read[0].segments[0].images[0].processor == format.images->processor);
  }
  Json row = parse_json(rl::to_line(group, group.episodes[1]), "line");
  CHECK(row["images"].size() == 2);
  const auto wrong = [&](const Json& line, const rl::LineFormat& by) {
    std::vector<rl::EpisodeGroup> groups;
    CHECK_THROWS_AS(rl::add_line(groups, line, by, "line"), DataError);
  };
  wrong(row, 100);  // a model that sees none
  row["images"].push_back(picture_file("grey.png"));
  wrong(row, format);
  row["images"] = {picture_file("grey.png")};
  wrong(row, format);
  row["images"] = {picture_file("grey.png"), "none.png"};
  wrong(row, format);
  row.erase("images");
  wrong(row, format);
}

TEST_CASE("rollout files name images from where they lie, and keep those without a file") {
  namespace fs = std::filesystem;
  const fs::path directory = fs::temp_directory_path() / str("temper-images-", ::getpid());
  rl::RolloutFiles files(directory.string(), {}, false);
  const rl::EpisodeGroup group = two_shown();
  const std::string path = files.write(1, 1, {group});
  std::vector<rl::EpisodeGroup> read;
  rl::add_lines(read, read_file(path), {100, three_tokens(kPad), directory / "rollouts"}, path);
  CHECK((read.at(0).segments.at(3).images == group.segments[3].images));
  const Json last = parse_json(
      rl::to_line(group, group.episodes[1], false,
                  [](const Image& image) {
                    return image.path().empty() ? "images/" + image.digest() + ".png" : "";
                  }),
      "line");
  CHECK(fs::exists(directory / "rollouts" / last["images"][1].get<std::string>()));
  fs::remove_all(directory);
}

TEST_CASE("a replayed file's images are looked at before anything is trained") {
  const std::string path = temporary_directory() + str("/temper-replay-images-", ::getpid());
  const auto refusal = [&](const char* second) {
    std::string lines;
    for (const char* name : {"grey.png", second})
      lines += dump_json({{"group", lines.empty() ? 0 : 1},
                          {"prompt_tokens", {kPad, kPad, kPad}},
                          {"completion_tokens", {4}},
                          {"reward", 1},
                          {"images", {picture_file(name)}}}) +
               "\n";
    write_file_atomic(path, lines);
    rl::RlConfig config;
    config.rl.replay = path;
    config.rl.group_size = config.rl.prompts_per_rollout = 1;
    tiny::Heard heard;
    try {
      const rl::ReplaySource source(config, {100, three_tokens(kPad)}, heard);
    } catch (const DataError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(refusal("rgb.png").empty());
  CHECK(refusal("bad_cut.png").starts_with(path + ":2: image 1: "));
  CHECK(refusal("none.png").starts_with(path + ":2: image 1: "));
  std::filesystem::remove(path);
}

TEST_CASE("an environment shows images, which stand where the template writes their placeholders") {
  data::PromptFormat format;
  format.tokenizer = tokenizer_with_marks();
  format.chat = std::make_shared<const ChatTemplate>(golden_template("chatml"));
  format.vocabulary = format.tokenizer->vocab_size();
  format.max_length = 1000;
  const int32_t mark = format.tokenizer->id_of(kPadText).value(),
                end = format.tokenizer->id_of("<|im_end|>").value();
  format.images = three_tokens(mark);
  const auto said = [](const char* name) {
    return Json{{"role", "user"},
                {"content",
                 {{{"type", "image"}, {"image", picture_file(name)}},
                  {{"type", "text"}, {"text", "look"}}}}};
  };
  bool truncated = false;
  const auto row = data::read_prompt_row(format, {{"prompt", Json::array({said("grey.png")})}},
                                         "r:1", &truncated)
                       .value();
  env::Observation first;
  first.messages.push_back(said("rgb.png"));
  rl::LiveEpisode episode(format, row, first);
  REQUIRE(episode.prompt_images().size() == 2);
  CHECK(episode.prompt_images()[0].image->digest() == row.images[0].image->digest());
  generate::Completion turn;
  turn.tokens = format.tokenizer->encode("yes");
  turn.tokens.push_back(end);
  turn.logprobs.resize(turn.tokens.size());
  episode.add_turn(turn, true, env::CallFormat::kAuto);
  CHECK(episode.add_answer(Json::array({said("palette.png")}), 1000));
  const ImageSpans& all = episode.context_images();
  REQUIRE(all.size() == 3);
  for (const ImageSpan& span : all)
    for (int64_t i = 0; i < span.count; ++i)
      CHECK(episode.context().at(static_cast<size_t>(span.begin + i)) == mark);
  REQUIRE(episode.completion().images.size() == 1);
  CHECK(episode.completion().tokens.at(static_cast<size_t>(episode.completion().images[0].begin)) ==
        mark);
  episode.add_turn(turn, true, env::CallFormat::kAuto);
  CHECK_THROWS_AS(episode.add_answer(Json::array({said("none.png")}), 1000), DataError);
  format.images = nullptr;
  CHECK_THROWS_AS(rl::LiveEpisode(format, row, first), DataError);
  format.images = three_tokens(mark);
  format.max_length = 8;  // an image would be cut
  CHECK_THROWS_AS(rl::LiveEpisode(format, row, first), rl::PromptTooLong);
}
