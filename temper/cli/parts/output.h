// What the working verbs write.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace temper::cli {

// A row of output. Its floating-point numbers are float32, printed so that they read back to the
// same; those that are not finite are printed as null.
using OutputRow = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                       std::int64_t, std::uint64_t, float>;

// Lines of output. Nothing appears under the path until finish(); what an earlier run left is kept
// until then. A link is followed; a pipe or a device is written as it is, and so is "-", standard
// output.
class OutputFile {
 public:
  // Throws ConfigError, also where the path is the file `input`, which would be lost.
  explicit OutputFile(const std::string& path, const std::string& input = "");
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void row(const OutputRow& row);
  void line(std::string_view text);  // as it is, and the end of the line
  void bytes(std::string_view text);
  void finish();
  // Ends the file early: what it has stands in PATH.partial. Returns a message that says so.
  std::string stop();

 private:
  [[noreturn]] void fail(const std::string& path);
  void close();
  void move_to(const std::string& path);

  std::string path_, temporary_;  // the latter empty where the path is written itself
  int64_t lines_ = 0;
  std::FILE* file_;
};

}  // namespace temper::cli
