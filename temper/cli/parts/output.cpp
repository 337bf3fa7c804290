#include "temper/cli/parts/output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "temper/base/error.h"

namespace temper::cli {

OutputFile::OutputFile(const std::string& path, const std::string& input) : path_(path) {
  if (path == "-") {
    path_ = "standard output";
    file_ = stdout;
    return;
  }
  struct stat found{}, read{};
  const bool exists = ::stat(path.c_str(), &found) == 0;
  check<ConfigError>(!exists || !S_ISDIR(found.st_mode), path, ": is a directory");
  if (!exists || S_ISREG(found.st_mode)) {
    check<ConfigError>(!exists || ::stat(input.c_str(), &read) != 0 ||
                           found.st_dev != read.st_dev || found.st_ino != read.st_ino,
                       path, ": is the input, which the output would replace; choose another name");
    std::error_code none;
    if (exists) path_ = std::filesystem::canonical(path, none).string();
    if (none) path_ = path;
    temporary_ = temper::str(path_, ".tmp-", ::getpid());
  }
  file_ = std::fopen((temporary_.empty() ? path_ : temporary_).c_str(), "wbe");
  check<ConfigError>(file_ != nullptr, path, ": cannot write: ", std::strerror(errno));
}

OutputFile::~OutputFile() {
  if (file_ && file_ != stdout) std::fclose(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

// What was written is kept: it may have taken hours.
void OutputFile::fail(const std::string& path) {
  const std::string why = temper::str(path, ": cannot write: ", std::strerror(errno));
  if (file_ && file_ != stdout) std::fclose(std::exchange(file_, nullptr));
  const std::string kept = path_ + ".partial";
  if (temporary_.empty() || lines_ == 0 || std::rename(temporary_.c_str(), kept.c_str()) != 0)
    throw RunError(why);
  temporary_.clear();
  throw RunError(
      temper::str(why, "; what was written is in ", kept, ", whose last line may be cut"));
}

void OutputFile::row(const OutputRow& row) {
  line(row.dump(-1, ' ', false, OutputRow::error_handler_t::replace));
}

void OutputFile::line(std::string_view text) {
  bytes(text);
  bytes("\n");
  ++lines_;
}

void OutputFile::bytes(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) fail(path_);
}

void OutputFile::close() {
  if (std::fflush(file_) != 0) fail(path_);
  std::FILE* file = std::exchange(file_, nullptr);
  if (file != stdout && std::fclose(file) != 0) fail(path_);
}

void OutputFile::move_to(const std::string& path) {
  close();
  if (temporary_.empty()) return;
  if (std::rename(temporary_.c_str(), path.c_str()) != 0) fail(path);
  temporary_.clear();
}

void OutputFile::finish() { move_to(path_); }

std::string OutputFile::stop() {
  if (lines_ == 0) return "stopped before the first line was whole";
  const std::string kept = temporary_.empty() ? path_ : path_ + ".partial";
  move_to(kept);
  return temper::str("stopped; the first ", lines_, " lines are in ", kept);
}

}  // namespace temper::cli
