#include "temper/image/settings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"

namespace temper {
namespace {

// Keys without influence on the pixels of an image: names of classes, how a batch is padded and
// returned, and what another key switches off. Images are always converted to RGB.
constexpr auto kInert = std::to_array<std::string_view>({"image_processor_type",
                                                         "feature_extractor_type",
                                                         "processor_class",
                                                         "auto_map",
                                                         "_valid_processor_keys",
                                                         "_valid_kwargs_names",
                                                         "backend",
                                                         "data_format",
                                                         "input_data_format",
                                                         "device",
                                                         "return_tensors",
                                                         "disable_grouping",
                                                         "return_row_col_info",
                                                         "do_convert_rgb",
                                                         "default_to_square",
                                                         "do_pad",
                                                         "pad_size",
                                                         "crop_size",
                                                         "image_seq_length",
                                                         "size_divisor",
                                                         "max_num_patches",
                                                         "min_pixels",
                                                         "max_pixels",
                                                         "video_processor_type",
                                                         "fps",
                                                         "num_frames"});

constexpr int64_t kMostSide = 1 << 20;

Json read_if_there(const std::string& path) {
  return is_file(path) ? read_json_file(path, size_t{1} << 26) : Json::object();
}

const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(key));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

int64_t whole_of(const Json& value, std::string_view where, std::string_view key, int64_t least,
                 int64_t most) {
  const bool whole = value.is_number_integer() ||
                     (value.is_number_float() && std::trunc(value.get<double>()) == value);
  const double number = whole ? value.get<double>() : 0;
  check<ConfigError>(
      whole && number >= static_cast<double>(least) && number <= static_cast<double>(most), where,
      ": ", key, " is ", dump_json(value), "; expected a whole number from ", least, " to ", most);
  return static_cast<int64_t>(number);
}

std::array<double, 3> channels_of(const Json& value, std::string_view where, std::string_view key) {
  std::array<double, 3> out;
  const bool fits = value.is_number() || (value.is_array() && value.size() == 3);
  for (size_t c = 0; fits && c < 3; ++c) {
    const Json& number = value.is_number() ? value : value[c];
    if (!number.is_number()) break;
    out[c] = number.get<double>();
    if (c == 2) return out;
  }
  throw ConfigError(str(where, ": ", key, " is ", dump_json(value),
                        "; expected a number or a list of three, for red, green and blue"));
}

// Pillow's numbers of its filters.
ImageFilter filter_of(int64_t number, std::string_view where) {
  switch (number) {
    case 1:
      return ImageFilter::kLanczos;
    case 2:
      return ImageFilter::kBilinear;
    case 3:
      return ImageFilter::kBicubic;
  }
  throw ConfigError(
      str(where, ": resample is ", number, "; expected 1 (Lanczos), 2 (bilinear) or 3 (bicubic)"));
}

}  // namespace

struct ImageSettings::Files {
  Json settings, processor, config, tokenizer;
};

ImageSettings::~ImageSettings() = default;

ImageSettings::ImageSettings(const std::string& directory) : directory_(directory) {
  Files files;
  files.processor = read_if_there(directory + "/processor_config.json");
  file_ = directory + "/processor_config.json";
  // As transformers: what is nested in the processor's file comes before the file of its own.
  if (const Json* nested = member(files.processor, "image_processor")) {
    files.settings = *nested;
  } else {
    file_ = directory + "/preprocessor_config.json";
    check<DataError>(is_file(file_), directory,
                     ": no preprocessor_config.json, and no image_processor in "
                     "processor_config.json; a model that reads images has one of them");
    files.settings = read_json_file(file_, size_t{1} << 26);
  }
  check<DataError>(files.settings.is_object(), file_, ": no JSON object");
  const Json* type = member(files.settings, "image_processor_type");
  check<ConfigError>(type && type->is_string(), file_, ": no image_processor_type");
  type_ = type->get<std::string>();
  if (type_.ends_with("Fast")) type_.resize(type_.size() - 4);
  files.config = read_if_there(directory + "/config.json");
  files.tokenizer = read_if_there(directory + "/tokenizer_config.json");
  files_ = std::make_unique<const Files>(std::move(files));
}

const Json* ImageSettings::find(std::string_view key) const {
  asked_.emplace(key);
  return member(files_->settings, key);
}

bool ImageSettings::flag(std::string_view key, bool usual) const {
  const Json* value = find(key);
  check<ConfigError>(!value || value->is_boolean(), file_, ": ", key, " is ",
                     value ? dump_json(*value) : "", "; expected true or false");
  return value ? value->get<bool>() : usual;
}

int64_t ImageSettings::whole(std::string_view key, int64_t usual, int64_t least,
                             int64_t most) const {
  const Json* value = find(key);
  return value ? whole_of(*value, file_, key, least, most) : usual;
}

double ImageSettings::number(std::string_view key, double usual, double least, double most) const {
  const Json* value = find(key);
  if (!value) return usual;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  check<ConfigError>(number >= least && number <= most, file_, ": ", key, " is ", dump_json(*value),
                     "; expected a number from ", least, " to ", most);
  return number;
}

int64_t ImageSettings::within(std::string_view key, std::string_view inner, int64_t usual) const {
  const Json* value = find(key);
  if (!value) return usual;
  check<ConfigError>(value->is_object(), file_, ": ", key, " is ", dump_json(*value),
                     "; expected an object with ", inner);
  const Json* number = member(*value, inner);
  check<ConfigError>(number, file_, ": ", key, " is ", dump_json(*value), "; expected ", inner,
                     " in it");
  return whole_of(*number, file_, inner, 1, int64_t{1} << 40);
}

ImageSize ImageSettings::sides(std::string_view key, ImageSize usual) const {
  const Json* value = find(key);
  if (!value) return usual;
  const Json *height = value, *width = value;
  if (value->is_object()) {
    height = member(*value, "height");
    width = member(*value, "width");
  } else if (value->is_array() && value->size() == 2) {
    height = &(*value)[0];
    width = &(*value)[1];
  }
  check<ConfigError>(height && width, file_, ": ", key, " is ", dump_json(*value),
                     "; expected height and width");
  return {whole_of(*width, file_, key, 1, kMostSide), whole_of(*height, file_, key, 1, kMostSide)};
}

void ImageSettings::read_values(ImagePatches& patches) const {
  if (find("resample"))
    patches.filter = filter_of(whole("resample", 0, INT32_MIN, INT32_MAX), file_);
  patches.rescale = flag("do_rescale", patches.rescale);
  patches.normalize = flag("do_normalize", patches.normalize);
  patches.rescale_factor = number("rescale_factor", patches.rescale_factor, 1e-9, 1e9);
  if (const Json* mean = find("image_mean")) patches.mean = channels_of(*mean, file_, "image_mean");
  if (const Json* std = find("image_std")) patches.std = channels_of(*std, file_, "image_std");
  for (const double value : patches.std)
    check<ConfigError>(!patches.normalize || value != 0, file_, ": image_std holds a zero");
}

void ImageSettings::expect_off(std::string_view key) const {
  check<ConfigError>(!flag(key, false), file_, ": ", key, " is not supported; expected false");
}

void ImageSettings::refuse_unread() const {
  for (const auto& [key, value] : files_->settings.items()) {
    const bool known = asked_.contains(key) || std::ranges::find(kInert, key) != kInert.end();
    check<ConfigError>(known || value.is_null(), file_, ": ", key, " = ", dump_json(value),
                       " is not known for ", type_, " and may change pixels");
  }
}

int64_t ImageSettings::of_processor(std::string_view key, int64_t usual) const {
  const Json* value = member(files_->processor, key);
  return value ? whole_of(*value, directory_ + "/processor_config.json", key, 1, kMostSide) : usual;
}

bool ImageSettings::processor_flag(std::string_view key, bool usual) const {
  const Json* value = member(files_->processor, key);
  check<ConfigError>(!value || value->is_boolean(), directory_, "/processor_config.json: ", key,
                     "; expected true or false");
  return value ? value->get<bool>() : usual;
}

int64_t ImageSettings::of_model(std::string_view key, int64_t usual) const {
  const Json* value = member(files_->config, key);
  return value ? whole_of(*value, directory_ + "/config.json", key, 1, kMostSide) : usual;
}

int64_t ImageSettings::of_vision(std::string_view key, int64_t usual) const {
  const Json* vision = member(files_->config, "vision_config");
  const Json* value = vision ? member(*vision, key) : nullptr;
  return value ? whole_of(*value, directory_ + "/config.json: vision_config", key, 1, kMostSide)
               : usual;
}

std::string ImageSettings::text_of_language(std::string_view key) const {
  const Json* text = member(files_->config, "text_config");
  const Json* value = text ? member(*text, key) : nullptr;
  return value && value->is_string() ? value->get<std::string>() : std::string();
}

void ImageSettings::agree(std::string_view what, int64_t processors, int64_t models) const {
  check<ConfigError>(processors == models, file_, ": ", what, " is ", processors, ", and ",
                     directory_, "/config.json says ", models, "; expected the same");
}

std::string ImageSettings::token(std::string_view name, std::string_view usual) const {
  for (const Json* part : {static_cast<const Json*>(&files_->tokenizer),
                           member(files_->tokenizer, "model_specific_special_tokens"),
                           member(files_->tokenizer, "extra_special_tokens")}) {
    const Json* value = part ? member(*part, name) : nullptr;
    if (value && value->is_object()) value = member(*value, "content");
    if (value && value->is_string() && !value->get<std::string>().empty())
      return value->get<std::string>();
  }
  check<ConfigError>(!usual.empty(), directory_, "/tokenizer_config.json: no ", name,
                     "; a model that reads images names that token there");
  return std::string(usual);
}

}  // namespace temper
