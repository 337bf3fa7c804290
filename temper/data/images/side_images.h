// The images of preference rows.
#pragma once

#include <string>

#include "temper/base/json.h"
#include "temper/data/images/row_images.h"
#include "temper/data/rows/preference_sides.h"

namespace temper::data {

// Places the row's images in the messages of its sides, as place_images() does.
RowImages place_in_sides(const TextFormat& format, const Json& row, PreferenceSides& sides,
                         const std::string& where);

// Those of one side: of messages those that it has, of text and ids all.
RowImages side_images(const PreferenceSides& sides, const Json& completion,
                      const RowImages& images);

}  // namespace temper::data
