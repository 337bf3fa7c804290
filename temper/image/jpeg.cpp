// JPEG by libjpeg-turbo with its defaults: the accurate integer transform, smooth upsampling.
#include <cstdio>
// jpeglib.h wants FILE and size_t first.
#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>
#include <string>

#include "temper/base/error.h"
#include "temper/image/formats.h"

namespace temper::image_formats {
namespace {

// Scans of a progressive JPEG: photographs have about ten, and every one costs a pass over the
// whole picture. At most 100, and fewer than that of pictures so large that those would take
// seconds.
int most_scans(int64_t width, int64_t height) {
  return static_cast<int>(std::clamp<int64_t>(2'000'000'000 / (width * height), 20, 100));
}

// libjpeg reports errors by a jump out of its functions. Each function here that calls it sets the
// place to jump to and holds nothing there that needs a destructor; all state is in the object.
class JpegReader {
 public:
  JpegReader(Bytes bytes, const ImageLimits& limits) : limits_(limits) {
    info_.err = ::jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) {
      auto& self = *static_cast<JpegReader*>(info->client_data);
      (*info->err->format_message)(info, self.message_);
      std::longjmp(self.failed_, 1);
    };
    errors_.output_message = [](j_common_ptr) {};  // warnings: Pillow ignores them, too
    info_.client_data = this;
    created_ = guarded([](JpegReader& self) { ::jpeg_create_decompress(&self.info_); });
    require(created_);
    progress_.progress_monitor = [](j_common_ptr info) {
      auto& self = *static_cast<JpegReader*>(info->client_data);
      const int most = most_scans(self.info_.image_width, self.info_.image_height);
      if (self.info_.input_scan_number > most) {
        std::snprintf(self.message_, sizeof self.message_, "more than %d scans", most);
        std::longjmp(self.failed_, 1);
      }
    };
    info_.progress = &progress_;
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source_.bytes_in_buffer = bytes.size();
    source_.init_source = [](j_decompress_ptr) {};
    source_.term_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = [](j_decompress_ptr) -> boolean { return FALSE; };  // no more bytes
    source_.resync_to_restart = ::jpeg_resync_to_restart;
    source_.skip_input_data = [](j_decompress_ptr info, long count) {
      if (count <= 0) return;
      const size_t skipped = std::min(static_cast<size_t>(count), info->src->bytes_in_buffer);
      info->src->next_input_byte += skipped;
      info->src->bytes_in_buffer -= skipped;
    };
    info_.src = &source_;
  }
  ~JpegReader() {
    if (created_) ::jpeg_destroy_decompress(&info_);
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // keep: what the markers APP1 hold.
  void read_header(bool keep) {
    keep_ = keep;
    require(guarded([](JpegReader& self) {
      if (self.keep_) ::jpeg_save_markers(&self.info_, JPEG_APP0 + 1, 0xFFFF);
      self.whole_ = ::jpeg_read_header(&self.info_, TRUE) == JPEG_HEADER_OK;
    }));
    check<DataError>(whole_, "a truncated JPEG image (its header)");
    check_size(info_.image_width, info_.image_height, limits_);
    check<DataError>(info_.data_precision == 8, "a JPEG image of ", info_.data_precision,
                     " bits a sample; expected 8");
    check<DataError>(
        info_.num_components == 1 || info_.num_components == 3 || info_.num_components == 4,
        "a JPEG image of ", info_.num_components, " components; expected 1, 3 or 4");
  }

  Header header() const {
    std::string exif, xmp;
    constexpr std::string_view kExif{"Exif\0\0", 6}, kXmp{"http://ns.adobe.com/xap/1.0/\0", 29};
    for (const jpeg_marker_struct* marker = info_.marker_list; marker; marker = marker->next) {
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (data.starts_with(kExif)) exif += data.substr(kExif.size());
      if (data.starts_with(kXmp)) xmp = data.substr(kXmp.size());
    }
    return {info_.image_width, info_.image_height, orientation_of(image_bytes(exif), xmp)};
  }

  Picture pixels() {
    const bool inks = info_.num_components == 4;
    picture_ = blank(info_.image_width, info_.image_height);
    row_.resize(size_t{info_.image_width} * 4);
    info_.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    // Coefficients of 2 bytes, of up to four components, and blocks at the edges; libjpeg has no
    // files to go on with.
    info_.mem->max_memory_to_use =
        static_cast<long>(64e6) + 12L * static_cast<long>(info_.image_width) * info_.image_height;
    whole_ = false;
    require(guarded([](JpegReader& self) { self.read_rows(); }));
    check<DataError>(whole_, "a truncated JPEG image (row ", info_.output_scanline, " of ",
                     info_.image_height, ")");
    return std::move(picture_);
  }

 private:
  template <class Work>
  bool guarded(Work work) {
    if (setjmp(failed_) != 0) return false;
    work(*this);
    return true;
  }
  void require(bool done) const { check<DataError>(done, "a damaged JPEG image: ", message_); }

  void read_rows() {
    if (!::jpeg_start_decompress(&info_)) return;
    const size_t width = info_.image_width;
    JSAMPROW row = row_.data();
    while (info_.output_scanline < info_.output_height) {
      uint8_t* to = picture_.rgb.data() + 3 * width * info_.output_scanline;
      if (info_.out_color_space == JCS_RGB) row = to;
      if (::jpeg_read_scanlines(&info_, &row, 1) != 1) return;
      if (info_.out_color_space == JCS_CMYK) mix(row, to, width);
    }
    whole_ = true;  // what follows the last row is not read
  }

  // Inks as Adobe stores them, 255 for none; Pillow's integers.
  static void mix(const uint8_t* inks, uint8_t* rgb, size_t width) {
    for (size_t x = 0; x < width; ++x, inks += 4, rgb += 3)
      for (int c = 0; c < 3; ++c) {
        const int product = (255 - inks[c]) * inks[3] + 128;
        rgb[c] = static_cast<uint8_t>(inks[3] - (((product >> 8) + product) >> 8));
      }
  }

  const ImageLimits limits_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf failed_;
  char message_[JMSG_LENGTH_MAX] = "";
  bool created_ = false, keep_ = false, whole_ = false;
  Picture picture_;
  std::vector<uint8_t> row_;
};

bool is_jpeg(Bytes bytes) { return text_of(bytes).starts_with("\xFF\xD8\xFF"); }

Header jpeg_header(Bytes bytes, const ImageLimits& limits) {
  JpegReader reader(bytes, limits);
  reader.read_header(true);
  return reader.header();
}

Picture jpeg_pixels(Bytes bytes, const ImageLimits& limits) {
  JpegReader reader(bytes, limits);
  reader.read_header(false);
  return reader.pixels();
}

}  // namespace

const Format kJpeg{"JPEG", is_jpeg, jpeg_header, jpeg_pixels};

}  // namespace temper::image_formats
