// Goldens: tests/golden/make_image_goldens.py.
#include "temper/image/processor.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <string>

#include "temper/base/error.h"
#include "temper/base/sha256.h"
#include "temper/text/chat/image_parts.h"
#include "tests/image/pictures.h"

namespace temper {
namespace {

int64_t count(std::string_view text, std::string_view part) {
  int64_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

// A copy of a golden model's directory in which files are changed.
class Changed {
 public:
  explicit Changed(const std::string& model)
      : path_(temporary_directory() + "/image_model_" + std::to_string(::getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::copy(picture_models(model), path_);
  }
  ~Changed() { std::filesystem::remove_all(path_); }

  Changed& set(const std::string& file, const std::string& pointer, const Json& value) {
    Json content = read_json_file(path_ + "/" + file);
    content[Json::json_pointer(pointer)] = value;
    write_file_atomic(path_ + "/" + file, dump_json(content));
    return *this;
  }
  const std::string& path() const { return path_; }
  std::string refusal(const PixelBounds& bounds = {}) const {
    try {
      ImageProcessor::open(path_, bounds);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

 private:
  std::string path_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr const char* kSettings = "preprocessor_config.json";

TEST_CASE("tokens and text of an image are transformers'") {
  size_t compared = 0;
  for (const Json& golden : read_json_file(golden_path("images/pictures.json"))) {
    CAPTURE(dump_json(golden));
    const auto processor = ImageProcessor::open(picture_models(golden["model"]));
    const ImageSize size = golden_size(golden);
    if (golden["tokens"].is_null()) {
      CHECK_THROWS_AS(processor->layout(size), DataError);
      continue;
    }
    const ImageLayout layout = processor->layout(size);
    CHECK(layout.tokens() == golden["tokens"].get<int64_t>());
    CHECK(layout.patches() == golden["patches"][0].get<int64_t>());
    CHECK(processor->patches().width() == golden["patches"][1].get<int64_t>());
    const std::string text = processor->expand(layout);
    CHECK(sha256_hex(text) == golden["text"].get<std::string>());
    CHECK(count(text, processor->tokens().image) == layout.tokens());
    ++compared;
  }
  CHECK(compared > 100);
}

TEST_CASE("placeholders are replaced in their order, and must be as many as the images") {
  const auto processor = ImageProcessor::open(picture_models("gemma3"));
  const ImageLayout layout = processor->layout({10, 10});
  const std::string image = processor->expand(layout);
  const auto expanded = [&](const char* text, size_t images) {
    jinja::Rendered rendered{text, {}, false};
    expand_images(processor->tokens().placeholder, std::vector<std::string>(images, image),
                  rendered);
    return rendered.text;
  };
  CHECK(expanded("a<start_of_image>b<start_of_image>", 2) == "a" + image + "b" + image);
  CHECK(expanded("text", 0) == "text");
  CHECK_THROWS_AS(expanded("a<start_of_image>", 0), DataError);
  CHECK_THROWS_AS(expanded("a<start_of_image>", 2), DataError);
}

TEST_CASE("bounds of pixels come before the file's") {
  const auto tokens = [](const char* model, const PixelBounds& bounds, ImageSize size) {
    return ImageProcessor::open(picture_models(model), bounds)->image_tokens(size);
  };
  CHECK(tokens("qwen3_vl", {}, {1024, 1024}) == 1024);
  CHECK(tokens("qwen3_vl", {.max = 512 * 512}, {1024, 1024}) == 256);
  CHECK(tokens("qwen3_vl", {.min = 2048 * 2048}, {1024, 1024}) == 4096);
  CHECK(tokens("lfm2_vl", {.max = 256 * 256}, {256, 256}) == 64);
  CHECK(tokens("lfm2_vl", {.min = 512 * 512}, {256, 256}) == 256);
  CHECK(tokens("gemma4", {.max = 140 * 48 * 48}, {1000, 1000}) <= 140);
  CHECK(tokens("gemma4", {.max = 139 * 48 * 48}, {1000, 1000}) <= 70);
  CHECK(has(Changed("gemma4").refusal({.max = 1000}), "max_image_pixels is 1000"));
  CHECK(has(Changed("gemma4").refusal({.min = 1000}), "min_image_pixels must be null"));
  CHECK(has(Changed("gemma3").refusal({.max = 1000000}), "must be null"));
  CHECK(has(Changed("smolvlm").refusal({.max = 1000000}), "must be null"));
  CHECK(has(Changed("qwen3_vl").refusal({.min = 5, .max = 4}), "at least 5 and at most 4"));
  CHECK(has(Changed("qwen3_vl").refusal({.max = 0}), "above zero"));
}

TEST_CASE("numbers that no model has are refused before they cost memory") {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  CHECK(has(Changed("lfm2_vl").refusal({.min = huge}), "images of at least"));
  CHECK(has(Changed("qwen3_vl").refusal({.min = huge}), "images of at least"));
  Changed fine("qwen3_vl");
  for (const char* key : {"/patch_size", "/merge_size"}) fine.set(kSettings, key, 1);
  fine.set("config.json", "/vision_config/patch_size", 1);
  fine.set("config.json", "/vision_config/spatial_merge_size", 1);
  const auto processor = ImageProcessor::open(fine.path(), {.min = 1, .max = 1 << 30});
  CHECK(processor->image_tokens({2048, 2048}) == 1 << 22);
  CHECK_THROWS_AS(processor->layout({2048, 2049}), DataError);
}

TEST_CASE("older and newer forms of the settings") {
  // processor_config.json's part comes first, as transformers has it.
  Changed nested("qwen3_vl");
  Json settings = read_json_file(nested.path() + "/" + kSettings);
  write_file_atomic(nested.path() + "/processor_config.json",
                    dump_json({{"image_processor", settings}}));
  nested.set(kSettings, "/image_processor_type", "None");
  CHECK(ImageProcessor::open(nested.path())->image_tokens({1024, 1024}) == 1024);
  nested.set("processor_config.json", "/image_processor/max_pixels", 512 * 512);
  CHECK(ImageProcessor::open(nested.path())->image_tokens({1024, 1024}) == 256);
  // A number for each side.
  Changed sides("gemma3");
  sides.set(kSettings, "/size", 896);
  CHECK(sides.refusal() == "");
  sides.set(kSettings, "/size", Json::array({896, 896}));
  CHECK(sides.refusal() == "");
  sides.set(kSettings, "/image_mean", 0.25);
  CHECK(ImageProcessor::open(sides.path())->patches().mean == std::array{0.25, 0.25, 0.25});
  // Tokens that the tokenizer's file names.
  Changed tokens("qwen3_vl");
  write_file_atomic(tokens.path() + "/tokenizer_config.json",
                    dump_json({{"extra_special_tokens", {{"image_token", "<pic>"}}}}));
  CHECK(ImageProcessor::open(tokens.path())->tokens().image == "<pic>");
}

TEST_CASE("settings that are not computed are refused by name") {
  const auto refusal = [](const char* model, const char* pointer, const Json& value) {
    const bool nested = std::string_view(model) == "gemma4";
    const std::string file = nested ? "processor_config.json" : kSettings;
    const std::string at = (nested ? "/image_processor" : "") + std::string(pointer);
    return Changed(model).set(file, at, value).refusal();
  };
  CHECK(has(refusal("qwen3_vl", "/image_processor_type", "CLIPImageProcessor"),
            "unknown image processor `CLIPImageProcessor`"));
  for (const char* model : {"qwen2_5_vl", "qwen3_vl", "gemma3", "gemma4", "lfm2_vl", "smolvlm"}) {
    CAPTURE(model);
    CHECK(has(refusal(model, "/do_sharpen", true), "do_sharpen"));
    CHECK(refusal(model, "/do_sharpen", nullptr) == "");
    CHECK(refusal(model, "/return_tensors", "pt") == "");
    CHECK(has(refusal(model, "/do_center_crop", true), "do_center_crop"));
    CHECK(has(refusal(model, "/resample", 0), "resample is 0"));
    CHECK(has(refusal(model, "/rescale_factor", "x"), "rescale_factor"));
    CHECK(has(refusal(model, "/image_mean", Json::array({1, 2})), "image_mean"));
    if (std::string_view(model) != "lfm2_vl")
      CHECK(has(refusal(model, "/do_resize", false), "do_resize"));
  }
  CHECK(has(refusal("gemma3", "/do_pan_and_scan", true), "do_pan_and_scan"));
  CHECK(has(refusal("gemma3", "/size/height", 448), "size"));
  CHECK(has(refusal("gemma4", "/max_soft_tokens", 100), "max_soft_tokens is 100"));
  CHECK(has(refusal("qwen3_vl", "/patch_size", 14), "expected the same"));
  CHECK(has(refusal("qwen3_vl", "/patch_size", -1), "patch_size is -1"));
  CHECK(has(refusal("qwen3_vl", "/size/longest_edge", 1e30), "longest_edge"));
  CHECK(has(refusal("lfm2_vl", "/min_tiles", 11), "min_tiles is 11"));
  CHECK(has(refusal("smolvlm", "/max_image_size/longest_edge", 364), "expected the same"));
  CHECK_THROWS_AS(ImageProcessor::open("/nonexistent"), DataError);
}

TEST_CASE("pictures that transformers has no room for are refused") {
  const auto lfm2 = ImageProcessor::open(picture_models("lfm2_vl"));
  CHECK_THROWS_WITH_AS(lfm2->layout({10000, 1}), doctest::Contains("too thin"), DataError);
  const auto qwen = ImageProcessor::open(picture_models("qwen3_vl"),
                                         {.min = int64_t{1} << 39, .max = int64_t{1} << 40});
  CHECK_THROWS_WITH_AS(qwen->layout({100, 100}), doctest::Contains("would be resized"), DataError);
}

}  // namespace
}  // namespace temper
