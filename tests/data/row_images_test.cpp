// Images of rows: where they stand in a conversation, what their placeholders become, and which
// tokens are theirs.
#include "temper/data/images/row_images.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/sha256.h"
#include "temper/data/images/image_format.h"
#include "temper/data/rows/preference_row.h"
#include "temper/data/rows/prompt_row.h"
#include "tests/golden.h"
#include "tests/text/golden.h"
#include "tests/text/templates.h"

using namespace temper;
using namespace temper::data;

namespace {

constexpr const char* kImage = "<|end|>";  // a token of the tokenizer
constexpr const char* kGrey = "grey.png";

// Two tokens an image, whatever its size, the first behind a mark.
class TwoTokens : public ImageProcessor {
 public:
  TwoTokens() { tokens_ = {kImage, kImage, "", ""}; }
  ImageLayout layout(const ImageSize&) const override {
    ImageTile tile;
    tile.token_rows = 1;
    tile.token_columns = 2;
    return {.canvases = {}, .tiles = {tile}};
  }
  std::string expand(const ImageLayout&) const override {
    return std::string("[") + kImage + kImage + "]";
  }
};

template <class Format = SftFormat>
Format seeing() {
  static const auto tokenizer = tokenizer_with_marks();
  Format format;
  format.tokenizer = tokenizer;
  format.chat = std::make_shared<const ChatTemplate>(golden_template("chatml"));
  format.vocabulary = 1 << 20;
  format.max_length = 1000;
  auto images = std::make_shared<ImageFormat>();
  images->processor = std::make_shared<const TwoTokens>();
  images->token = tokenizer->encode(kImage).at(0);
  format.images = images;
  format.directory = golden_path("images/files");
  return format;
}

Json picture() { return {{"type", "image"}}; }
Json words(const char* text) { return {{"type", "text"}, {"text", text}}; }
Json asked(const Json& content, const Json& images) {
  Json row{{"messages",
            {{{"role", "user"}, {"content", content}}, {{"role", "assistant"}, {"content", "2"}}}}};
  if (!images.is_null()) row["images"] = images;
  return row;
}

SftRow read_seeing(const SftFormat& format, const Json& row) {
  bool truncated = false;
  return read_sft_row(format, row, "rows.jsonl:7", &truncated).value();
}
std::string image_error(const SftFormat& format, const Json& row) {
  try {
    read_seeing(format, row);
  } catch (const DataError& e) {
    return e.what();
  }
  return {};
}
std::string decoded(const SftFormat& format, const std::vector<int32_t>& tokens) {
  return format.tokenizer->decode(tokens);
}
bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("parts, marks and images without either stand where they are") {
  const SftFormat format = seeing();
  const std::string two = std::string("[") + kImage + kImage + "]";
  const auto text = [&](const Json& row) {
    const SftRow out = read_seeing(format, row);
    REQUIRE(out.segments.size() == 1);
    return decoded(format, out.segments[0].tokens);
  };
  CHECK(says(text(asked(Json::array({words("a"), picture(), words("b")}), {kGrey})),
             "user\na" + two + "b"));
  CHECK(says(text(asked("a<image>b", {kGrey})), "user\na" + two + "b"));
  CHECK(says(text(asked("ab", {kGrey, kGrey})), "user\n" + two + two + "ab"));
  CHECK(says(text(asked("ab", kGrey)), "user\n" + two + "ab"));
  const Json own{{"type", "image"}, {"image", kGrey}};
  const Json url{{"type", "image_url"}, {"image_url", {{"url", kGrey}}}};
  CHECK(says(text(asked(Json::array({own, words("a"), url}), Json())), "user\n" + two + "a" + two));
  // A mark is text where the row has no images.
  CHECK(says(text(asked("a<image>b", Json())), "user\na<image>b"));
}

TEST_CASE("a row's image knows the row when it is decoded much later") {
  const SftRow row = read_seeing(seeing(), asked("ab", "bad_cut.png"));
  CHECK_THROWS_WITH_AS(row.segments.at(0).images.at(0).image->decode(),
                       doctest::Contains("rows.jsonl:7: image 1: "), DataError);
}

TEST_CASE("a struct {bytes, path} of Parquet is the bytes in base64, or the path without them") {
  const SftFormat format = seeing();
  const std::string grey = read_file(golden_path("images/files/grey.png"));
  const auto digest = [&](const Json& source) {
    return read_seeing(format, asked("ab", Json::array({source})))
        .segments.at(0)
        .images.at(0)
        .image->digest();
  };
  const std::string pixel =
      "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg="
      "=";
  CHECK(digest({{"path", kGrey}}) == sha256_hex(grey));
  CHECK(digest({{"bytes", nullptr}, {"path", kGrey}}) == sha256_hex(grey));
  CHECK(digest({{"bytes", pixel}, {"path", kGrey}}) != sha256_hex(grey));
  CHECK(says(image_error(format, asked("ab", Json::array({{{"bytes", "x*"}}}))),
             "rows.jsonl:7: image 1: base64 text: no base64"));
  CHECK(says(image_error(format, asked("ab", Json::array({{{"bytes", 3}}}))),
             "rows.jsonl:7: image 1: `bytes` must be text"));
}

TEST_CASE("spans are the images' tokens, which are not trained") {
  SftFormat format = seeing();
  format.train_on = TrainOn::kAll;
  const Json row = asked(Json::array({picture(), words("a"), picture()}), {kGrey, kGrey});
  const SftRow out = read_seeing(format, row);
  const Segment& s = out.segments.at(0);
  REQUIRE(s.images.size() == 2);
  for (const ImageSpan& span : s.images) {
    CHECK(span.count == 2);
    CHECK(span.first == 0);
    CHECK(span.processor == format.images->processor);
    for (int64_t i = 0; i < span.count; ++i) {
      CHECK(s.tokens[static_cast<size_t>(span.begin + i)] == format.images->token);
      CHECK(s.labels[static_cast<size_t>(span.begin + i)] == kNotTrained);
    }
  }
  CHECK(count_images(s.images) == 2);
  CHECK(count_image_tokens(s.images) == 4);
  CHECK(s.labels[static_cast<size_t>(s.images[1].begin) - 1] >= 0);
  // A row is dropped where an image would be cut.
  bool truncated = false;
  format.max_length = s.images[1].begin + 1;
  CHECK(!read_sft_row(format, row, "row", &truncated));
  format.max_length = s.images[1].begin + 2;
  CHECK(read_sft_row(format, row, "row", &truncated).has_value());
}

TEST_CASE(
    "both sides of a pair have the prompt's images once, a prompt for sampling has them too") {
  PreferenceFormat pairs = seeing<PreferenceFormat>();
  const auto said = [](const char* role, const Json& content) {
    return Json::array({{{"role", role}, {"content", content}}});
  };
  const Json prompt = said("user", Json::array({picture(), words("how many?")}));
  const Json row{{"prompt", prompt},
                 {"chosen", said("assistant", "1")},
                 {"rejected", said("assistant", "2")},
                 {"images", {kGrey}}};
  bool truncated = false;
  const PreferenceRow out = read_preference_row(pairs, row, "row", &truncated).value();
  int64_t images = 0;
  for (const PreferenceRow::Segment& s : out.segments) {
    images += count_images(s.images);
    CHECK(s.images.empty() == !s.prompt);
  }
  CHECK(images == 1);
  const PromptFormat asks = seeing<PromptFormat>();
  const PromptRow asked_row =
      read_prompt_row(asks, Json{{"prompt", prompt}, {"images", {kGrey}}}, "row", &truncated)
          .value();
  REQUIRE(asked_row.images.size() == 1);
  CHECK(asked_row.tokens[static_cast<size_t>(asked_row.images[0].begin)] == asks.images->token);
}

TEST_CASE("what is wrong with a row's images") {
  const SftFormat format = seeing();
  const auto error = [&](const Json& content, const Json& images) {
    return image_error(format, asked(content, images));
  };
  const Json one = Json::array({picture(), words("a")});
  CHECK(says(error(one, {kGrey, kGrey}),
             "rows.jsonl:7: the row has 2 images in `images` and 1 "
             "image part or tag in its messages"));
  CHECK(says(error(one, Json()), "rows.jsonl:7: the row has 0 images"));
  CHECK(says(error(one, {"none.png"}), "rows.jsonl:7: image 1: "));
  CHECK(says(error(one, {"http://a/b.png"}), "http addresses are not read"));
  CHECK(says(error(one, {"data:image/png;base64,AAAA"}), "not a JPEG, PNG or WebP"));
  CHECK(says(error(one, {7}), "expected a path, a data: URI or"));
  CHECK(says(error(std::string("a ") + kImage, Json()), "does a text spell one?"));
  SftFormat blind = format;
  blind.images = nullptr;
  CHECK(says(image_error(blind, asked(one, {kGrey})), "which this model does not see"));
}
