// How rows of files spell images.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/image/source.h"

namespace temper::data {

// A part of a message's content that is an image: of the type "image" or "image_url".
bool is_image(const Json& part);
// Its own SOURCE; none: it is one of the row's. Throws DataError that begins with `where`.
std::optional<Json> source_of_part(const Json& part, const std::string& where);

// The SOURCEs in the row's `images` or `image`: a list or one, null is none. Throws DataError
// that begins with `where` where the row has both.
std::vector<Json> image_sources(const Json& row, const std::string& where);
// Whether these are certainly images: structs, data: URIs or names of image files. (A field called
// `image` may name something else, in rows for models that see none.)
bool looks_like_images(const Json& row);

// Calls visit() for each SOURCE of a row of any format: of `images` or `image` those that certainly
// are some, and of the parts of its conversations. `columns` renames fields: {images: photos}.
void each_image_source(Json& row, const std::map<std::string, std::string>& columns,
                       const std::function<void(Json& source)>& visit);
void each_image_source(const Json& row, const std::map<std::string, std::string>& columns,
                       const std::function<void(const Json& source)>& visit);

// A path, a data: URI, or {"bytes", "path"}, in which JSON has the bytes as a data: URI or in
// base64. Throws DataError.
ImageSource image_source(const Json& source);

}  // namespace temper::data
