#include "temper/cli/data/image_stats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/data/images/image_fields.h"
#include "temper/metrics/format.h"

namespace temper::cli {
namespace {

int32_t as_count(int64_t n) { return static_cast<int32_t>(std::min<int64_t>(n, INT32_MAX)); }

std::string counted_images(int64_t n) {
  return format_count(static_cast<double>(n)) + (n == 1 ? " image" : " images");
}

}  // namespace

std::vector<LookedImage> look_at_images(const Json& row,
                                        const std::map<std::string, std::string>& columns,
                                        const std::string& directory, const std::string& where,
                                        const ImageProcessor* processor) {
  std::vector<LookedImage> images;
  Json copy = row;
  data::each_image_source(copy, columns, [&](const Json& source) {
    LookedImage& looked = images.emplace_back();
    try {
      const auto image = Image::open(data::image_source(source), directory);
      looked.size = image->size();
      looked.bytes = image->file_bytes();
      looked.digest = image->digest();
      if (processor) looked.tokens = as_count(processor->image_tokens(looked.size));
    } catch (const DataError& e) {
      looked.problem = str(where, ": image ", images.size(), ": ", e.what());
    }
  });
  return images;
}

void ImageStats::add(const std::vector<LookedImage>& images) {
  rows_ += !images.empty();
  for (const LookedImage& image : images) {
    if (!image.problem.empty()) {
      if (unread_++ == 0) problem_ = image.problem;
      continue;
    }
    widths_.push_back(as_count(image.size.width));
    heights_.push_back(as_count(image.size.height));
    if (image.tokens > 0) tokens_.push_back(image.tokens);
    if (digests_.insert(image.digest).second) bytes_ += image.bytes;
  }
}

std::string ImageStats::text() const {
  std::string text =
      str(counted_images(std::ssize(widths_) + unread_), " in ",
          format_count(static_cast<double>(rows_)), rows_ == 1 ? " row, " : " rows, ",
          format_count(static_cast<double>(digests_.size())), " different, ",
          format_bytes(static_cast<double>(bytes_)));
  if (unread_ > 0)
    text += str("; ", counted_images(unread_), " cannot be read, the first is ", problem_);
  return text;
}

nlohmann::ordered_json ImageStats::json() const {
  return {{"rows", rows_},
          {"count", std::ssize(widths_) + unread_},
          {"different", digests_.size()},
          {"bytes", bytes_},
          {"unread", unread_}};
}

}  // namespace temper::cli
