#include <cstring>

#include "temper/image/formats.h"

namespace temper::image_formats {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;

// 0: there is none. TIFF 6.0: a header of 8 bytes, then a directory of entries of 12.
int exif_orientation(Bytes exif) {
  constexpr std::string_view kMark{"Exif\0\0", 6};
  for (int i = 0; i < 2 && text_of(exif).starts_with(kMark); ++i) exif = exif.subspan(kMark.size());
  const std::string_view text = text_of(exif);
  const bool big = text.starts_with(std::string_view("MM\0*", 4));
  if (text.size() < 8 || (!big && !text.starts_with(std::string_view("II*\0", 4)))) return 0;
  const size_t directory = number_at(exif, 4, 4, big);
  if (directory > exif.size() || exif.size() - directory < 2) return 0;
  const size_t count = number_at(exif, directory, 2, big);
  int orientation = 0;  // of entries with one tag the last counts
  for (size_t i = 0; i < count; ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (exif.size() < entry + 12) break;
    if (number_at(exif, entry, 2, big) != kOrientationTag) continue;
    const uint32_t type = number_at(exif, entry + 2, 2, big);
    const int bytes = type == 1 ? 1 : type == 3 ? 2 : type == 4 ? 4 : 0;  // BYTE, SHORT, LONG
    if (bytes == 0 || number_at(exif, entry + 4, 4, big) != 1) continue;
    const uint32_t value = number_at(exif, entry + 8, bytes, big);
    orientation = value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return orientation;
}

// As Pillow searches: tiff:Orientation(="|>)([0-9]). 1: there is none.
int xmp_orientation(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = xmp.find(kName); at != xmp.npos; at = xmp.find(kName, at + 1)) {
    std::string_view rest = xmp.substr(at + kName.size());
    if (rest.starts_with("=\""))
      rest.remove_prefix(2);
    else if (rest.starts_with(">"))
      rest.remove_prefix(1);
    else
      continue;
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') return rest[0] - '0';
  }
  return 1;
}

}  // namespace

int orientation_of(Bytes exif, std::string_view xmp) {
  const int orientation = exif_orientation(exif);
  return orientation != 0 ? orientation : xmp_orientation(xmp);
}

Picture upright(Picture picture, int orientation) {
  if (orientation < 2 || orientation > 8) return picture;
  const bool swapped = orientation >= 5;
  const int64_t right = picture.width - 1, bottom = picture.height - 1;
  Picture out =
      swapped ? blank(picture.height, picture.width) : blank(picture.width, picture.height);
  const bool mirror_x =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool mirror_y =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  uint8_t* to = out.rgb.data();
  for (int64_t y = 0; y < out.height; ++y)
    for (int64_t x = 0; x < out.width; ++x, to += 3) {
      const int64_t column = swapped ? y : x, row = swapped ? x : y;
      const int64_t from_x = mirror_x ? right - column : column;
      const int64_t from_y = mirror_y ? bottom - row : row;
      std::memcpy(to, &picture.rgb[static_cast<size_t>(3 * (from_y * picture.width + from_x))], 3);
    }
  return out;
}

}  // namespace temper::image_formats
