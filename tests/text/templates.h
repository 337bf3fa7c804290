// What tests of chat templates share: the templates of tests/golden, and model directories.
#pragma once

#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/text/chat/chat_template.h"
#include "tests/golden.h"

namespace temper {

// The day of make_template_goldens.py.
inline jinja::RenderOptions golden_options() {
  jinja::RenderOptions options;
  options.clock = [] {
    std::tm time{};
    time.tm_year = 124, time.tm_mon = 6, time.tm_mday = 26, time.tm_wday = 5;
    return time;
  };
  return options;
}

// tests/golden/templates/NAME.jinja
inline ChatTemplate golden_template(const std::string& name) {
  static const Json variables = read_json_file(golden_path("templates/chats.json")).at("variables");
  return ChatTemplate::parse(read_file(golden_path("templates/" + name + ".jinja")), name,
                             variables, golden_options());
}

inline const Json kMessages = {{{"role", "user"}, {"content", "hi"}}};
inline const Json kTools = {{{"name", "f"}}};

// The directory of a model that goes with the test.
struct ModelDir {
  explicit ModelDir(const std::string& name)
      : path(std::filesystem::temp_directory_path() /
             ("temper_chat_" + std::to_string(::getpid()) + "_" + name)) {
    std::filesystem::create_directories(path + "/additional_chat_templates");
  }
  ~ModelDir() { std::filesystem::remove_all(path); }
  ModelDir& with(const std::string& file, const std::string& content) {
    write_file_atomic(path + "/" + file, content);
    return *this;
  }
  std::string read(const std::string& file) const { return read_file(path + "/" + file); }
  bool has(const std::string& file) const { return std::filesystem::exists(path + "/" + file); }
  std::string path;
};

}  // namespace temper
