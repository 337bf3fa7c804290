// The files of a model directory that say how images are processed, read key by key: what nobody
// asked for and nobody knows to be without influence is refused.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "temper/base/json.h"
#include "temper/image/processor.h"

namespace temper {

class ImageSettings {
 public:
  // Throws DataError: a missing or damaged file.
  explicit ImageSettings(const std::string& directory);
  ~ImageSettings();

  // image_processor_type, without the ending "Fast".
  const std::string& type() const { return type_; }
  // The file that has the settings, for messages.
  const std::string& file() const { return file_; }

  // A key of the image processor; `usual` where it is missing or null, as in transformers. Throw
  // ConfigError for other types and for values out of range.
  bool flag(std::string_view key, bool usual) const;
  int64_t whole(std::string_view key, int64_t usual, int64_t least, int64_t most) const;
  double number(std::string_view key, double usual, double least, double most) const;
  // "size" and the like: a whole number within a dictionary.
  int64_t within(std::string_view key, std::string_view inner, int64_t usual) const;
  // An image's sides: {"height", "width"}, [height, width], or one number for both.
  ImageSize sides(std::string_view key, ImageSize usual) const;
  // resample, do_rescale, rescale_factor, do_normalize, image_mean, image_std; patches.filter,
  // .mean, .std, .. are what holds without the keys.
  void read_values(ImagePatches& patches) const;
  // A key that must have this value if it is there at all, as nothing else is computed.
  void expect_off(std::string_view key) const;
  // A key that this processor has and that changes nothing.
  void ignore(std::string_view key) const { asked_.emplace(key); }
  // Throws ConfigError for a key that was not asked for above and may change pixels.
  void refuse_unread() const;

  // A whole number of processor_config.json, of config.json, or of config.json's vision_config.
  int64_t of_processor(std::string_view key, int64_t usual) const;
  int64_t of_model(std::string_view key, int64_t usual) const;
  int64_t of_vision(std::string_view key, int64_t usual) const;
  // A text of config.json's text_config; empty where it is missing.
  std::string text_of_language(std::string_view key) const;
  bool processor_flag(std::string_view key, bool usual) const;
  // Throws ConfigError unless two numbers agree: the tower's and the processor's.
  void agree(std::string_view what, int64_t processors, int64_t models) const;

  // The text of a token that the tokenizer's files name ("image_token"). Throws ConfigError where
  // there is none and `usual` is empty.
  std::string token(std::string_view name, std::string_view usual = "") const;

 private:
  const Json* find(std::string_view key) const;

  struct Files;
  std::unique_ptr<const Files> files_;
  std::string directory_, file_, type_;
  mutable std::set<std::string, std::less<>> asked_;
};

}  // namespace temper
