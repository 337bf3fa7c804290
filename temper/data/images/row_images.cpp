#include "temper/data/images/row_images.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "temper/base/error.h"
#include "temper/data/images/image_fields.h"
#include "temper/data/images/image_format.h"
#include "temper/text/chat/image_parts.h"

namespace temper::data {
namespace {

std::string images_text(size_t count) { return str(count, count == 1 ? " image" : " images"); }

size_t count_in(std::string_view text, std::string_view tag) {
  size_t count = 0;
  for (size_t at = text.find(tag); at != text.npos; at = text.find(tag, at + tag.size())) ++count;
  return count;
}

Json text_part(std::string_view text) { return {{"type", "text"}, {"text", std::string(text)}}; }

// The text cut at the tags, each an image part.
Json split_at(std::string_view text, std::string_view tag) {
  Json parts = Json::array();
  const auto add_text = [&](std::string_view piece) {
    if (!piece.empty()) parts.push_back(text_part(piece));
  };
  for (size_t at = text.find(tag); at != text.npos; at = text.find(tag)) {
    add_text(text.substr(0, at));
    parts.push_back({{"type", "image"}});
    text.remove_prefix(at + tag.size());
  }
  add_text(text);
  return parts;
}

class Placing {
 public:
  Placing(const TextFormat& format, Json& row, const std::vector<const char*>& fields,
          const std::string& where)
      : format_(format),
        row_(row),
        fields_(fields),
        where_(where),
        sources_(image_sources(row, where)) {}

  RowImages place() {
    size_t parts = 0, messages = 0;
    each_message([&](Json& message) {
      ++messages;
      if (message["content"].is_array())
        for (const Json& part : message["content"]) parts += is_image(part);
    });
    if (!format_.images) {
      check<DataError>(parts == 0 && !looks_like_images(row_), where_, ": the row has ",
                       images_text(std::max(parts, sources_.size())),
                       ", which this model does not see");
      return {};
    }
    if (messages == 0) {
      for (const Json& source : sources_) open(source);
      return std::move(images_);
    }
    if (parts == 0 && !sources_.empty()) parts = add_parts();
    each_message([&](Json& message) { place_in(message["content"]); });
    check<DataError>(used_ == sources_.size(), where_, ": the row has ",
                     images_text(sources_.size()), " in `images` and ", used_,
                     used_ == 1 ? " image part or tag" : " image parts or tags",
                     " in its messages");
    return std::move(images_);
  }

 private:
  // Calls visit(message) for the messages of the conversations, in order.
  template <class Visit>
  void each_message(const Visit& visit) {
    for (const char* field : fields_) {
      const auto messages = row_.find(field);
      if (messages == row_.end() || !messages->is_array()) continue;
      for (Json& message : *messages)
        if (message.is_object() && message.contains("content")) visit(message);
    }
  }

  // Where no message has image parts; how many there are then.
  size_t add_parts() {
    const std::string& tag = format_.images->options.tag;
    size_t tags = 0;
    if (!tag.empty())
      each_message([&](Json& message) { tags += split_message(message["content"], tag); });
    if (tags > 0) return tags;
    bool added = false;
    each_message([&](Json& message) {
      if (added || message.value("role", Json()) != "user") return;
      Json& content = message["content"];
      Json parts = Json::array();
      for (size_t i = 0; i < sources_.size(); ++i) parts.push_back({{"type", "image"}});
      if (content.is_string()) parts.push_back({{"type", "text"}, {"text", content}});
      if (content.is_array())
        for (const Json& part : content) parts.push_back(part);
      content = std::move(parts);
      added = true;
    });
    check<DataError>(added, where_, ": the row has ", images_text(sources_.size()),
                     " without parts, and no message of the user before whose text they could "
                     "stand");
    return sources_.size();
  }

  static size_t split_message(Json& content, const std::string& tag) {
    size_t tags = 0;
    if (content.is_string()) {
      tags = count_in(content.get_ref<const std::string&>(), tag);
      if (tags > 0) content = split_at(content.get<std::string>(), tag);
    } else if (content.is_array()) {
      Json parts = Json::array();
      for (const Json& part : content) {
        const std::string text = part.value("text", std::string());
        if (count_in(text, tag) == 0) {
          parts.push_back(part);
          continue;
        }
        tags += count_in(text, tag);
        for (Json& piece : split_at(text, tag)) parts.push_back(std::move(piece));
      }
      content = std::move(parts);
    }
    return tags;
  }

  void place_in(Json& content) {
    if (!content.is_array()) return;
    for (Json& part : content) {
      if (!is_image(part)) continue;
      const std::optional<Json> own = source_of_part(part, where_);
      check<DataError>(own || used_ < sources_.size(), where_, ": the row has ",
                       images_text(sources_.size()),
                       " in `images`, fewer than image parts or tags in its messages");
      open(own ? *own : sources_[used_++]);
      part = image_part({static_cast<int64_t>(images_.size()) - 1,
                         format_.images->processor->tokens().placeholder, images_.back().text});
    }
  }

  void open(const Json& source) {
    const std::string at = str(where_, ": image ", images_.size() + 1);
    try {
      const ImageProcessor& processor = *format_.images->processor;
      RowImage image;
      image.image =
          Image::open(image_source(source), format_.directory, format_.images->options.limits, at);
      const ImageLayout layout = processor.layout(image.image->size());
      image.tokens = layout.tokens();
      image.text = processor.expand(layout);
      images_.push_back(std::move(image));
    } catch (const DataError& e) {
      throw DataError(at + ": " + e.what());
    }
  }

  const TextFormat& format_;
  Json& row_;
  const std::vector<const char*>& fields_;
  const std::string& where_;
  std::vector<Json> sources_;
  size_t used_ = 0;
  RowImages images_;
};

}  // namespace

RowImages place_images(const TextFormat& format, Json& row, const std::vector<const char*>& fields,
                       const std::string& where) {
  return Placing(format, row, fields, where).place();
}

RowImages images_in(const Json& messages, const RowImages& images) {
  RowImages out;
  for (const PlacedImage& placed : placed_images(messages))
    out.push_back(images.at(static_cast<size_t>(placed.number)));
  return out;
}

std::string with_images(const TextFormat& format, std::string text, const RowImages& images) {
  if (images.empty()) return text;
  std::vector<std::string> texts;
  for (const RowImage& image : images) texts.push_back(image.text);
  jinja::Rendered rendered{std::move(text), {}, false};
  expand_images(format.images->processor->tokens().placeholder, texts, rendered);
  return std::move(rendered.text);
}

ImagePlaces::ImagePlaces(const TextFormat& format, const RowImages& images)
    : token_(format.images ? format.images->token : -1),
      processor_(format.images ? format.images->processor : nullptr),
      images_(images),
      first_{0} {
  for (const RowImage& image : images) first_.push_back(first_.back() + image.tokens);
}

int64_t ImagePlaces::count(std::span<const int32_t> tokens) const {
  return token_ < 0 ? 0 : std::count(tokens.begin(), tokens.end(), token_);
}

ImageSpans ImagePlaces::spans(std::span<const int32_t> tokens, int64_t before) const {
  ImageSpans out;
  if (token_ < 0) return out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != token_) continue;
    check<DataError>(before < first_.back(), "more image tokens (id ", token_, ") than the ",
                     first_.back(), " of the row's ", images_text(images_.size()),
                     "; does a text spell one? data.control_tokens: text reads it as ordinary "
                     "text");
    const auto after = std::upper_bound(first_.begin(), first_.end(), before);
    const auto k = static_cast<size_t>(after - first_.begin()) - 1;
    const int64_t first = before++ - first_[k], place = static_cast<int64_t>(i);
    const bool goes_on = !out.empty() && out.back().begin + out.back().count == place &&
                         out.back().first + out.back().count == first && first > 0;
    if (goes_on)
      ++out.back().count;
    else
      out.push_back({place, 1, first, images_[k].image, processor_});
  }
  return out;
}

bool ImagePlaces::cuts_image(int64_t count) const {
  return !std::binary_search(first_.begin(), first_.end(), count);
}

void ImagePlaces::check_all(std::span<const int32_t> tokens) const {
  const int64_t found = count(tokens);
  check<DataError>(found == first_.back(), "found ", found, " image tokens (id ", token_,
                   "), expected ", first_.back(), " for ", images_text(images_.size()));
}

ImageSpans spans_of(const TextFormat& format, const RowImages& images,
                    std::span<const int32_t> tokens, const std::string& where) {
  const ImagePlaces places(format, images);
  try {
    places.check_all(tokens);
    return places.spans(tokens);
  } catch (const DataError& e) {
    throw DataError(str(where, ": ", e.what()));
  }
}

}  // namespace temper::data
