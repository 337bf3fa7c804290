#include "temper/tinker/chunks.h"

#include <algorithm>

#include "temper/base/error.h"
#include "temper/data/images/row_images.h"

namespace temper::tinker {
namespace {

// From the first image token of what the processor writes to the last one.
std::vector<int32_t> tokens_of(const ChunkFormat& format, const ImageLayout& layout) {
  const int32_t token = format.images->token;
  if (!format.tokenizer) return std::vector<int32_t>(static_cast<size_t>(layout.tokens()), token);
  const std::vector<int32_t> all =
      format.tokenizer->encode(format.images->processor->expand(layout));
  const auto begin = std::find(all.begin(), all.end(), token);
  const auto end = std::find(all.rbegin(), std::make_reverse_iterator(begin), token).base();
  return {begin, end};
}

}  // namespace

ImageSpans place_chunks(const ChunkFormat& format, const std::vector<WireImage>& images,
                        std::vector<int32_t>& tokens, const std::string& where) {
  check<DataError>(images.empty() || format.images != nullptr, where,
                   ": found an image, expected tokens (encoded_text): the model reads text alone");
  if (!format.images) return {};
  check<DataError>(std::ranges::count(tokens, format.images->token) == 0, where, ": found token ",
                   format.images->token,
                   ", which stands for images, among tokens of text; expected a chunk `image`");
  std::vector<int32_t> all;
  data::RowImages placed;
  size_t from = 0;
  int64_t pixels = 0;
  const auto add_text = [&](size_t to) {
    all.insert(all.end(), tokens.begin() + static_cast<ptrdiff_t>(from),
               tokens.begin() + static_cast<ptrdiff_t>(to));
    from = to;
  };
  for (const WireImage& chunk : images) {
    add_text(chunk.at);
    const std::string at = str(where, ": image ", placed.size() + 1);
    try {
      data::RowImage image;
      image.image = Image::open(chunk.source, "", format.images->options.limits, at);
      const ImageSize& size = image.image->size();
      pixels += size.width * size.height;
      check<DataError>(pixels <= format.most_pixels, "with it the images have ", pixels,
                       " pixels together, and this server takes ", format.most_pixels,
                       " (--max-image-pixels)");
      const std::vector<int32_t> own = tokens_of(format, format.images->processor->layout(size));
      check<DataError>(!chunk.expected_tokens || *chunk.expected_tokens == std::ssize(own),
                       "expected_tokens: found ", chunk.expected_tokens.value_or(0), ", expected ",
                       own.size(), " for ", size.width, " x ", size.height, " pixels");
      image.tokens = std::ranges::count(own, format.images->token);
      all.insert(all.end(), own.begin(), own.end());
      placed.push_back(std::move(image));
    } catch (const DataError& e) {
      throw DataError(at + ": " + e.what());
    }
  }
  add_text(tokens.size());
  tokens = std::move(all);
  data::TextFormat reading;
  reading.images = format.images;
  return data::ImagePlaces(reading, placed).spans(tokens);
}

}  // namespace temper::tinker
