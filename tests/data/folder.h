// Files of rows for tests.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "temper/data/rows/sft_row.h"

namespace temper::data {

struct Folder {
  std::string path =
      std::filesystem::temp_directory_path() / ("temper-loader-" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path + "/" + name) << text;
    return path + "/" + name;
  }
  // Row i is [first + i, 1, 1, ...] of `length` ids.
  std::string rows(const std::string& name, int first, int count, int length = 4) const {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += "{\"input_ids\": [" + std::to_string(first + i);
      for (int k = 1; k < length; ++k) text += ", 1";
      text += "]}\n";
    }
    return write(name, text);
  }
};

inline SftFormat ids_format() {
  SftFormat format;
  format.vocabulary = 10000;
  return format;
}

}  // namespace temper::data
