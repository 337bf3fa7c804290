#include "temper/text/chat/image_parts.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"

namespace temper {
namespace {

constexpr const char* kPlaced = "placed";
constexpr uint64_t kImageSubtype = 0x496d;
constexpr std::string_view kQuote = "\xEF\xB7\x90";  // U+FDD0, of Tokenizer::quoted

bool is_quoted(std::string_view text, size_t at) { return text.substr(0, at).ends_with(kQuote); }

// The next placeholder that is not quoted, from a byte on.
size_t next_placeholder(std::string_view text, std::string_view placeholder, size_t from) {
  size_t at = text.find(placeholder, from);
  while (at != text.npos && is_quoted(text, at))
    at = text.find(placeholder, at + placeholder.size());
  return at;
}

bool has_image(const Json& content) {
  return content.is_array() && std::any_of(content.begin(), content.end(), [](const Json& part) {
           return placed_image(part).has_value();
         });
}

}  // namespace

Json image_part(const PlacedImage& image) {
  std::string bytes = str(image.number) + '\n' + image.placeholder + '\n' + image.text;
  return {{"type", "image"}, {kPlaced, Json::binary({bytes.begin(), bytes.end()}, kImageSubtype)}};
}

std::optional<PlacedImage> placed_image(const Json& part) {
  if (!part.is_object()) return {};
  const auto placed = part.find(kPlaced);
  if (placed == part.end() || !placed->is_binary()) return {};
  const auto& bytes = placed->get_binary();
  if (!bytes.has_subtype() || bytes.subtype() != kImageSubtype) return {};
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t first = all.find('\n'), second = all.find('\n', first + 1);
  PlacedImage image;
  std::from_chars(all.data(), all.data() + first, image.number);
  image.placeholder = all.substr(first + 1, second - first - 1);
  image.text = all.substr(second + 1);
  return image;
}

std::vector<PlacedImage> placed_images(const Json& messages) {
  std::vector<PlacedImage> images;
  if (!messages.is_array()) return images;
  for (const Json& message : messages) {
    if (!message.is_object() || !message.contains("content")) continue;
    const Json& content = message["content"];
    if (!content.is_array()) continue;
    for (const Json& part : content)
      if (auto image = placed_image(part)) images.push_back(std::move(*image));
  }
  return images;
}

Json image_content(const Json& content, bool reads_parts) {
  if (!has_image(content)) return content;
  Json parts = Json::array();
  std::string text;
  for (const Json& part : content) {
    if (const auto image = placed_image(part)) {
      parts.push_back({{"type", "image"}});
      text += image->placeholder;
    } else {
      parts.push_back(part);
      text += part.value("text", std::string());
    }
  }
  return reads_parts ? parts : Json(text);
}

size_t count_placeholders(std::string_view text, std::string_view placeholder) {
  size_t count = 0;
  for (size_t at = next_placeholder(text, placeholder, 0); at != text.npos;
       at = next_placeholder(text, placeholder, at + placeholder.size()))
    ++count;
  return count;
}

void expand_images(const std::vector<PlacedImage>& images, jinja::Rendered& rendered) {
  if (images.empty()) return;
  std::vector<std::string> texts;
  for (const PlacedImage& image : images) texts.push_back(image.text);
  expand_images(images[0].placeholder, texts, rendered);
}

void expand_images(const std::string& placeholder, const std::vector<std::string>& texts,
                   jinja::Rendered& rendered) {
  const size_t found = count_placeholders(rendered.text, placeholder);
  check<DataError>(found == texts.size(), "the text has ", found, " placeholder",
                   found == 1 ? "" : "s", " of images (`", placeholder, "`) for ", texts.size(),
                   texts.size() == 1 ? " image" : " images",
                   found > texts.size() ? "; does a text spell one? data.control_tokens: text "
                                          "reads it as ordinary text"
                                        : "; the chat template writes one for each image part of "
                                          "a message, a text without one must have them itself");
  std::string out;
  std::vector<std::pair<size_t, size_t>> ends;  // of each placeholder: there, and in `out`
  size_t done = 0;
  for (const std::string& text : texts) {
    const size_t at = next_placeholder(rendered.text, placeholder, done);
    out.append(rendered.text, done, at - done).append(text);
    done = at + placeholder.size();
    ends.emplace_back(done, out.size());
  }
  out.append(rendered.text, done);
  const auto moved = [&](size_t byte) {
    const auto after = std::upper_bound(ends.begin(), ends.end(), std::pair(byte, SIZE_MAX));
    return after == ends.begin() ? byte : byte - (after - 1)->first + (after - 1)->second;
  };
  for (auto& [begin, end] : rendered.generations) {
    begin = moved(begin);
    end = moved(end);
  }
  rendered.text = std::move(out);
}

}  // namespace temper
