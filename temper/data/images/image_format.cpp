#include "temper/data/images/image_format.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/image/settings.h"
#include "temper/text/tokenizer/special_tokens.h"

namespace temper::data {
namespace {

bool has_processor(const std::string& directory, const Json& config) {
  if (!config.contains("vision_config") || !config["vision_config"].is_object()) return false;
  for (const char* file : {"preprocessor_config.json", "processor_config.json"})
    if (is_model_file(std::filesystem::path(directory) / file))
      return image_processors().contains(ImageSettings(directory).type());
  return false;
}

}  // namespace

std::shared_ptr<const ImageFormat> find_image_format(const std::string& directory,
                                                     const Tokenizer* tokenizer,
                                                     const ImageOptions& options) {
  if (!std::filesystem::is_directory(directory)) return nullptr;
  const Json config = read_model_file(directory, "config.json");
  if (!has_processor(directory, config)) return nullptr;
  auto format = std::make_shared<ImageFormat>();
  format->processor = ImageProcessor::open(directory, options.bounds);
  format->options = options;
  const std::string& text = format->processor->tokens().image;
  if (tokenizer) {
    const std::vector<int32_t> ids = tokenizer->encode(text);
    check<ConfigError>(ids.size() == 1, directory, ": the image token `", text,
                       "` is no token of the tokenizer, which reads ", ids.size(), " in it");
    format->token = ids[0];
  }
  const std::optional<int32_t> named = image_token_of(config);
  check<ConfigError>(tokenizer || named, directory,
                     ": neither a tokenizer nor config.json's image_token_id says which token "
                     "stands for images");
  check<ConfigError>(!tokenizer || !named || *named == format->token, directory,
                     ": the tokenizer's image token `", text, "` is ", format->token,
                     ", config.json's ", named.value_or(-1));
  format->token = named.value_or(format->token);
  return format;
}

}  // namespace temper::data
