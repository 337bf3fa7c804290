// PNG by libpng, which unpacks samples; what they mean is computed as Pillow does.
#include <png.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "temper/base/error.h"
#include "temper/image/formats.h"

namespace temper::image_formats {
namespace {

// An error of libpng leaves its functions by a jump; see jpeg.cpp.
class PngReader {
 public:
  PngReader(Bytes bytes, const ImageLimits& limits) : bytes_(bytes), limits_(limits) {
    png_ = ::png_create_read_struct(
        PNG_LIBPNG_VER_STRING, this,
        [](png_structp png, png_const_charp message) {
          auto& self = *static_cast<PngReader*>(::png_get_error_ptr(png));
          std::snprintf(self.message_, sizeof self.message_, "%s", message);
          ::png_longjmp(png, 1);
        },
        [](png_structp, png_const_charp) {});
    if (png_) info_ = ::png_create_info_struct(png_);
    if (!info_) ::png_destroy_read_struct(&png_, nullptr, nullptr);
    check(png_ != nullptr, "libpng: cannot be started");
  }
  ~PngReader() { ::png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  void read_header() {
    if (setjmp(png_jmpbuf(png_)) != 0) fail();
    ::png_set_read_fn(png_, this, [](png_structp png, png_bytep to, size_t count) {
      auto& self = *static_cast<PngReader*>(::png_get_io_ptr(png));
      if (self.bytes_.size() - self.at_ < count) ::png_error(png, "it is truncated");
      std::memcpy(to, self.bytes_.data() + self.at_, count);
      self.at_ += count;
    });
    const auto side = static_cast<png_uint_32>(std::min<int64_t>(limits_.max_pixels, 0x7fffffff));
    ::png_set_user_limits(png_, side, side);
    // Neither texts nor profiles are unpacked: all chunks but IHDR, PLTE, tRNS, IDAT and IEND.
    ::png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    ::png_read_info(png_, info_);
    width_ = ::png_get_image_width(png_, info_);
    height_ = ::png_get_image_height(png_, info_);
    depth_ = ::png_get_bit_depth(png_, info_);
    color_ = ::png_get_color_type(png_, info_);
  }

  int64_t width() const { return width_; }
  int64_t height() const { return height_; }

  Picture pixels() {
    check_size(width_, height_, limits_);
    picture_ = blank(width_, height_);
    read_meaning();
    // Without interlacing a row at a time; else libpng fills all rows several times.
    const size_t row = static_cast<size_t>(width_) * sample_bytes_;
    samples_.resize(passes_ > 1 ? row * static_cast<size_t>(height_) : row);
    read_rows(row);
    return std::move(picture_);
  }

 private:
  [[noreturn]] void fail() const { throw DataError(str("a damaged PNG image: ", message_)); }

  void read_meaning() {
    if (setjmp(png_jmpbuf(png_)) != 0) fail();
    if (depth_ < 8) ::png_set_packing(png_);
    // Of 16 bits Pillow takes the upper 8, but for grey without alpha.
    wide_grey_ = depth_ == 16 && color_ == PNG_COLOR_TYPE_GRAY;
    if (depth_ == 16 && !wide_grey_) ::png_set_strip_16(png_);
    passes_ = ::png_set_interlace_handling(png_);
    ::png_read_update_info(png_, info_);
    sample_bytes_ = ::png_get_channels(png_, info_) * (wide_grey_ ? 2 : 1);
    png_colorp colors = nullptr;
    png_bytep alphas = nullptr;
    png_color_16p key = nullptr;
    int color_count = 0, alpha_count = 0;
    ::png_get_PLTE(png_, info_, &colors, &color_count);
    ::png_get_tRNS(png_, info_, &alphas, &alpha_count, &key);
    for (size_t i = 0; i < 256; ++i) {
      palette_[i] = {0, 0, 0, 255};  // beyond the file's palette, as in Pillow
      if (static_cast<int>(i) < color_count && colors)
        palette_[i] = {colors[i].red, colors[i].green, colors[i].blue, 255};
      if (static_cast<int>(i) < alpha_count && alphas) palette_[i][3] = alphas[i];
    }
    if (key && alpha_count > 0 && color_ != PNG_COLOR_TYPE_PALETTE) {
      // The transparent color is compared with the 8 bits that became of the samples.
      const auto low = [](png_uint_16 value) { return static_cast<uint8_t>(value & 0xff); };
      key_ = {low(key->red), low(key->green), low(key->blue)};
      if (color_ == PNG_COLOR_TYPE_GRAY)
        key_.fill(depth_ == 1 ? (key->gray ? 255 : 0) : low(key->gray));
      has_key_ = true;
    }
  }

  void read_rows(size_t row) {
    if (setjmp(png_jmpbuf(png_)) != 0) fail();
    for (int pass = 0; pass < passes_; ++pass)
      for (int64_t y = 0; y < height_; ++y) {
        png_bytep at = samples_.data() + (passes_ > 1 ? row * static_cast<size_t>(y) : 0);
        ::png_read_row(png_, at, nullptr);
        if (pass + 1 == passes_) convert(at, picture_.rgb.data() + 3 * y * width_);
      }
  }

  void convert(const uint8_t* in, uint8_t* out) const {
    for (int64_t x = 0; x < width_; ++x, in += sample_bytes_, out += 3) {
      std::array<uint8_t, 4> rgba = color_of(in);
      if (has_key_ && std::equal(key_.begin(), key_.end(), rgba.begin())) rgba[3] = 0;
      for (size_t c = 0; c < 3; ++c)
        out[c] = rgba[3] == 255 ? rgba[c] : over_white(rgba[c], rgba[3]);
    }
  }

  std::array<uint8_t, 4> color_of(const uint8_t* in) const {
    const auto grey = [](int value, uint8_t alpha) {
      const auto byte = static_cast<uint8_t>(value);
      return std::array<uint8_t, 4>{byte, byte, byte, alpha};
    };
    switch (color_) {
      case PNG_COLOR_TYPE_GRAY:
        // Pillow cuts what is above 255 off rather than dividing by 257.
        if (wide_grey_) return grey(in[0] == 0 ? in[1] : 255, 255);
        return grey(depth_ < 8 ? in[0] * (255 / ((1 << depth_) - 1)) : in[0], 255);
      case PNG_COLOR_TYPE_GRAY_ALPHA:
        return grey(in[0], in[1]);
      case PNG_COLOR_TYPE_PALETTE:
        return palette_[in[0]];
      case PNG_COLOR_TYPE_RGB:
        return {in[0], in[1], in[2], 255};
      default:
        return {in[0], in[1], in[2], in[3]};
    }
  }

  const Bytes bytes_;
  const ImageLimits limits_;
  size_t at_ = 0;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  char message_[128] = "";
  int64_t width_ = 0, height_ = 0;
  int depth_ = 0, color_ = 0, passes_ = 1, sample_bytes_ = 1;
  bool wide_grey_ = false, has_key_ = false;
  std::array<uint8_t, 3> key_{};
  std::array<std::array<uint8_t, 4>, 256> palette_{};
  Picture picture_;
  std::vector<uint8_t> samples_;
};

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
bool is_png(Bytes bytes) { return text_of(bytes).starts_with(kSignature); }

// Of the chunks eXIf and iTXt, which may also follow the pixels; a packed iTXt is not read.
int png_orientation(Bytes bytes) {
  constexpr std::string_view kXmp{"XML:com.adobe.xmp\0\0", 19};  // its name, and: not compressed
  Bytes exif;
  std::string_view xmp;
  for (size_t at = kSignature.size(); bytes.size() - at >= 12;) {
    const size_t size = number_at(bytes, at, 4, true);
    const std::string_view kind = text_of(bytes.subspan(at + 4, 4));
    if (bytes.size() - at - 12 < size) break;
    const Bytes data = bytes.subspan(at + 8, size);
    if (kind == "eXIf") exif = data;
    if (kind == "iTXt" && text_of(data).starts_with(kXmp)) xmp = text_of(data).substr(kXmp.size());
    at += 12 + size;
  }
  return orientation_of(exif, xmp);
}

Header png_header(Bytes bytes, const ImageLimits& limits) {
  check<DataError>(bytes.size() >= 29, "a damaged PNG image: it is truncated");
  check<DataError>(text_of(bytes.subspan(12, 4)) == "IHDR", "a damaged PNG image: no header");
  const Header header{number_at(bytes, 16, 4, true), number_at(bytes, 20, 4, true),
                      png_orientation(bytes)};
  check_size(header.width, header.height, limits);
  return header;
}

Picture png_pixels(Bytes bytes, const ImageLimits& limits) {
  PngReader reader(bytes, limits);
  reader.read_header();
  return reader.pixels();
}

}  // namespace

const Format kPng{"PNG", is_png, png_header, png_pixels};

}  // namespace temper::image_formats
