// Images of rows for tools that compare and copy rows: the files that SOURCEs name, wherever a row
// of any format has them.
#pragma once

#include <map>
#include <string>

#include "temper/base/json.h"

namespace temper::data {

using Columns = std::map<std::string, std::string>;  // {images: photos}: renamed fields

// Replaces each SOURCE by "sha256:" and the SHA-256 of the image's bytes: rows are equal then whose
// pictures are, wherever they lie. One that cannot be read becomes the path that it names. Gives
// them joined, empty where there are none. `directory` is that of the row's file.
std::string replace_images_by_digests(Json& row, const Columns& columns,
                                      const std::string& directory);
// Those of the row, which stays as it is.
std::string image_digests(const Json& row, const Columns& columns, const std::string& directory);

// The SOURCEs as the row spells them, a line break before each; empty where there are none.
std::string image_spellings(const Json& row);

// Rewrites relative paths so that they lead, from a file in the directory `to`, where they led from
// one in `from`. Whether any was rewritten.
bool move_image_paths(Json& row, const Columns& columns, const std::string& from,
                      const std::string& to);

}  // namespace temper::data
