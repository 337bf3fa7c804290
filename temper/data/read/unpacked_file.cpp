#include "temper/data/read/unpacked_file.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "temper/base/errno_text.h"
#include "temper/base/error.h"

namespace temper::data {
namespace {
constexpr int64_t kBuffer = int64_t{1} << 20;
constexpr int64_t kBetweenChecks = int64_t{16} << 20;  // bytes written
constexpr int64_t kMostReserve = int64_t{1} << 30;
constexpr int64_t kShareOfDisk = 20;
}  // namespace

UnpackedFile::UnpackedFile(const std::string& packed, const UnpackLimits& limits)
    : packed_(packed), limits_(limits) {
  std::error_code none;
  const auto size = std::filesystem::file_size(packed, none);
  packed_bytes_ = none ? 0 : static_cast<int64_t>(size);
  file_ = open_temporary("temper-rows");
}

void UnpackedFile::check_ratio(int64_t size) const {
  check<DataError>(size <= limits_.ratio_from_bytes || size / limits_.ratio <= packed_bytes_,
                   packed_, ": its ", packed_bytes_, " bytes unpack to more than ", limits_.ratio,
                   " times as many; if that is meant, unpack the file and name the unpacked one");
}

void UnpackedFile::check_space(int64_t more) const {
  struct statvfs disk{};
  check(::fstatvfs(file_.get(), &disk) == 0, packed_, ": ", temporary_directory(), ": ",
        errno_text);
  const auto block = static_cast<int64_t>(disk.f_frsize);
  const int64_t free = static_cast<int64_t>(disk.f_bavail) * block;
  const int64_t reserve =
      limits_.reserve_bytes >= 0
          ? limits_.reserve_bytes
          : std::min(kMostReserve, static_cast<int64_t>(disk.f_blocks) * block / kShareOfDisk);
  check(free - reserve >= more, packed_, ": its unpacked rows take more than ", written_,
        " bytes, and ", temporary_directory(), " has ", free, " free, of which ", reserve,
        " stay free; set TMPDIR to a directory on a larger disk");
}

void UnpackedFile::flush() {
  const auto size = static_cast<int64_t>(buffer_.size());
  check_ratio(written_ + size);
  if (unchecked_ == 0 || unchecked_ + size > kBetweenChecks) {
    check_space(std::max(size, kBetweenChecks));
    unchecked_ = 0;
  }
  write_all(file_.get(), buffer_.data(), buffer_.size(),
            packed_ + ": unpacking into " + temporary_directory());
  written_ += size;
  unchecked_ += size;
  buffer_.clear();
}

void UnpackedFile::write(const char* bytes, int64_t size) {
  buffer_.append(bytes, static_cast<size_t>(size));
  if (static_cast<int64_t>(buffer_.size()) >= kBuffer) flush();
}

FileDescriptor UnpackedFile::release() {
  flush();
  check(::lseek(file_.get(), 0, SEEK_SET) == 0, packed_, ": cannot read its rows: ", errno_text);
  return std::move(file_);
}

}  // namespace temper::data
