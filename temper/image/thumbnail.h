// Small pictures for pages.
#pragma once

#include <cstdint>
#include <string>

#include "temper/image/image.h"

namespace temper {

// The picture's mean colors, with sides of at most so many pixels; one that is smaller stays.
Picture shrunk(const Picture& picture, int64_t side);
// As a PNG file. Throws RunError where libpng fails.
std::string to_png(const Picture& picture);

}  // namespace temper
