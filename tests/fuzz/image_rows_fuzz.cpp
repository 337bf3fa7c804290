// Any bytes as a row that may have images: its tokens say which of them stand for images, or it is
// a DataError that names the row; tools find, compare and move its images. Seeds:
// tests/fuzz/seeds/image_rows.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "temper/base/error.h"
#include "temper/data/images/image_format.h"
#include "temper/data/images/row_files.h"
#include "temper/data/read/jsonl.h"
#include "temper/data/rows/preference_row.h"
#include "temper/data/rows/prompt_row.h"
#include "temper/data/rows/sft_row.h"

namespace {
using namespace temper;
using namespace temper::data;

constexpr const char *kWhere = "row", *kNowhere = "/nonexistent/rows";
constexpr int32_t kImage = 4;

// Tokens by the picture's width: "{", then "i" for each, then "}".
class WideProcessor : public ImageProcessor {
 public:
  WideProcessor() { tokens_ = {"p", "i", "{", "}"}; }
  ImageLayout layout(const ImageSize& picture) const override {
    check<DataError>(picture.width <= 64, "too wide");
    ImageTile tile;
    tile.token_rows = 1;
    tile.token_columns = picture.width;
    return {.canvases = {}, .tiles = {tile}};
  }
  std::string expand(const ImageLayout& layout) const override {
    return "{" + std::string(static_cast<size_t>(layout.tokens()), 'i') + "}";
  }
};

template <class Format>
Format format_of() {
  Format format;
  format.tokenizer = Tokenizer::parse(R"({"model": {"type": "BPE", "unk_token": "u", "merges": [],
    "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "i": 4, "u": 5, "p": 6, "{": 7, "}": 8}}})",
                                      "tokenizer");
  // It writes what it reads of a content: parts, or a text.
  format.chat = std::make_shared<const ChatTemplate>(ChatTemplate::parse(
      "{% for m in messages %}a{{ m.role }}b{% if m.content is string %}{{ m.content }}{% else %}"
      "{% for part in m.content %}{% if part.type == 'image' %}p{% else %}{{ part.text }}{% endif "
      "%}{% endfor %}{% endif %}c{% endfor %}{% if add_generation_prompt %}aassistantb{% endif %}",
      "template", Json::object()));
  format.vocabulary = 9;
  format.max_length = 64;
  format.directory = kNowhere;
  auto images = std::make_shared<ImageFormat>();
  images->processor = std::make_shared<const WideProcessor>();
  images->token = kImage;
  images->options.limits = {.max_bytes = 1 << 14, .max_pixels = 1 << 14};
  format.images = std::move(images);
  return format;
}

void check_spans(const std::vector<int32_t>& tokens, const ImageSpans& images) {
  int64_t end = 0;
  for (const ImageSpan& span : images) {
    if (span.begin < end || span.count < 1 || span.first < 0 || !span.image) std::abort();
    end = span.begin + span.count;
    if (end > std::ssize(tokens)) std::abort();
    for (int64_t i = span.begin; i < end; ++i)
      if (tokens[static_cast<size_t>(i)] != kImage) std::abort();
  }
}

template <class Read>
void guarded(const Read& read) {
  try {
    read();
  } catch (const DataError& e) {
    if (!std::string_view(e.what()).starts_with(kWhere)) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto sft = format_of<SftFormat>();
  static const auto prompt = format_of<PromptFormat>();
  Json row;
  try {
    row = parse_row({reinterpret_cast<const char*>(data), size}, kWhere);
  } catch (const DataError&) {
    return 0;
  }
  bool truncated = false;
  guarded([&] {
    if (const auto made = read_sft_row(sft, row, kWhere, &truncated))
      for (const Segment& segment : made->segments) check_spans(segment.tokens, segment.images);
  });
  guarded([&] {
    if (const auto made = read_prompt_row(prompt, row, kWhere, &truncated))
      check_spans(made->tokens, made->images);
  });
  const std::string all = image_digests(row, {}, kNowhere);
  Json moved = row;
  move_image_paths(moved, {}, kNowhere, "/nonexistent/other/place");
  if (image_digests(moved, {}, "/nonexistent/other/place") != all) std::abort();
  Json compared = row;
  replace_images_by_digests(compared, {}, kNowhere);
  image_spellings(compared);
  return 0;
}
