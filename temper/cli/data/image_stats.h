// What `temper data stats` says of the images of rows.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "temper/base/json.h"
#include "temper/image/processor.h"
#include "temper/image/source.h"

namespace temper::cli {

struct LookedImage {
  ImageSize size = {};
  int64_t bytes = 0;
  int32_t tokens = 0;  // 0: no processor says
  std::string digest = {};
  std::string problem = {};  // not empty: it cannot be read
};

// The images of a row in a file of this directory. processor: null without one.
std::vector<LookedImage> look_at_images(const Json& row,
                                        const std::map<std::string, std::string>& columns,
                                        const std::string& directory, const std::string& where,
                                        const ImageProcessor* processor);

class ImageStats {
 public:
  void add(const std::vector<LookedImage>& images);
  bool any() const { return rows_ > 0; }
  // "120 images in 60 rows, 118 different, 2 MB".
  std::string text() const;
  const std::vector<int32_t>& widths() const { return widths_; }
  const std::vector<int32_t>& heights() const { return heights_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }  // empty without a processor
  // Without lengths.
  nlohmann::ordered_json json() const;

 private:
  int64_t rows_ = 0, unread_ = 0, bytes_ = 0;
  std::string problem_;  // the first one
  std::unordered_set<std::string> digests_;
  std::vector<int32_t> widths_, heights_, tokens_;
};

}  // namespace temper::cli
