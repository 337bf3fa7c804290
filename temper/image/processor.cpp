#include "temper/image/processor.h"

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/image/settings.h"

namespace temper {

int64_t ImageLayout::patches() const {
  int64_t sum = 0;
  for (const ImageTile& tile : tiles) sum += tile.rows * tile.columns;
  return sum;
}

int64_t ImageLayout::tokens() const {
  int64_t sum = 0;
  for (const ImageTile& tile : tiles) sum += tile.tokens();
  return sum;
}

std::unique_ptr<const ImageProcessor> ImageProcessor::open(const std::string& directory,
                                                           const PixelBounds& bounds) {
  for (const auto& bound : {bounds.min, bounds.max})
    check<ConfigError>(!bound || *bound > 0, "bounds of an image's pixels: ", bound.value_or(0),
                       "; expected a number above zero");
  check<ConfigError>(!bounds.min || !bounds.max || *bounds.min <= *bounds.max,
                     "bounds of an image's pixels: at least ", bounds.min.value_or(0),
                     " and at most ", bounds.max.value_or(0));
  const ImageSettings settings(directory);
  auto processor = image_processors().find(settings.type(), settings.file())(settings, bounds);
  settings.refuse_unread();
  return processor;
}

std::optional<int32_t> image_token_of(const Json& config) {
  for (const char* name : {"image_token_id", "image_token_index"})
    if (const auto id = config.find(name); id != config.end() && id->is_number_unsigned())
      if (id->get<uint64_t>() <= INT32_MAX) return id->get<int32_t>();
  return {};
}

Registry<MakeImageProcessor>& image_processors() {
  static Registry<MakeImageProcessor> processors("image processor");
  return processors;
}

}  // namespace temper
