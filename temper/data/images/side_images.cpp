#include "temper/data/images/side_images.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace temper::data {

RowImages place_in_sides(const TextFormat& format, const Json& row, PreferenceSides& sides,
                         const std::string& where) {
  const std::vector<std::pair<const char*, Json*>> parts{
      {"prompt", &sides.prompt}, {"chosen", &sides.chosen}, {"rejected", &sides.rejected}};
  Json placed = Json::object();
  std::vector<const char*> fields;
  for (const char* field : {"images", "image"})
    if (row.contains(field)) placed[field] = row[field];
  for (const auto& [field, value] : parts) {
    placed[field] = std::move(*value);
    if (!sides.ids) fields.push_back(field);
  }
  RowImages images = place_images(format, placed, fields, where);
  for (const auto& [field, value] : parts) *value = std::move(placed[field]);
  return images;
}

RowImages side_images(const PreferenceSides& sides, const Json& completion,
                      const RowImages& images) {
  if (!sides.prompt.is_array() || sides.ids) return images;
  RowImages out = images_in(sides.prompt, images);
  for (RowImage& image : images_in(completion, images)) out.push_back(std::move(image));
  return out;
}

}  // namespace temper::data
