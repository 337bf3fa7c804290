#include "temper/cli/parts/images.h"

#include <filesystem>

#include "temper/models/vision/load.h"

namespace temper::cli {

std::shared_ptr<const data::ImageFormat> image_format(const std::string& model,
                                                      const Tokenizer* tokenizer,
                                                      const data::ImageOptions& options) {
  if (!models::vision_family_of(model)) return nullptr;
  return data::find_image_format(model, tokenizer, options);
}

void write_images(const ImageSpans& images, const std::string& path, OutputRow& row) {
  namespace fs = std::filesystem;
  const fs::path directory = path == "-" ? fs::path() : fs::path(path).parent_path();
  const fs::path base = directory.empty() ? fs::current_path() : fs::absolute(directory);
  OutputRow sources = OutputRow::array();
  for (const ImageSpan& span : images) {
    if (span.first > 0) continue;
    const std::string& file = span.image->path();
    sources.push_back(file.empty() ? data_uri(span.image->bytes())
                                   : fs::absolute(file).lexically_proximate(base).string());
  }
  if (!sources.empty()) row["images"] = std::move(sources);
}

}  // namespace temper::cli
