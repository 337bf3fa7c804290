// Images in conversations. Chat templates write a placeholder for each image part of a message's
// `content`; processors replace the k-th placeholder by what the k-th image takes: its tokens and
// what stands around them. Here a part carries that text, so that every render of a conversation,
// whole or a beginning of it, has its images' texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/json.h"
#include "temper/text/jinja/template.h"

namespace temper {

struct PlacedImage {
  int64_t number = 0;       // which of the row's images, from 0
  std::string placeholder;  // what the template writes for an image
  std::string text;         // what stands in its place
};

// The part {"type": "image"} with these in a form that no JSON text has and that quoted() leaves
// alone.
Json image_part(const PlacedImage& image);
// Of a part that image_part() made; none of any other value.
std::optional<PlacedImage> placed_image(const Json& part);

// The images of the messages, in order.
std::vector<PlacedImage> placed_images(const Json& messages);

// A `content` with images as templates read it: parts {"type": "image"} and the others; or, where
// they do not read parts, the texts and placeholders joined. Other content stays as it is.
Json image_content(const Json& content, bool reads_parts);

// Replaces the k-th placeholder by the k-th image's text; one that is quoted (Tokenizer::quoted) is
// none. Throws DataError where there are more or fewer than texts.
void expand_images(const std::string& placeholder, const std::vector<std::string>& texts,
                   jinja::Rendered& rendered);
// The same for the images of messages, if there are any.
void expand_images(const std::vector<PlacedImage>& images, jinja::Rendered& rendered);
// How often the text has it, unquoted.
size_t count_placeholders(std::string_view text, std::string_view placeholder);

}  // namespace temper
