// Programs that cannot change or reach anything outside: for code that a model wrote. The
// kernel's namespaces hold them (sandbox/main.cpp), where it has them.
#pragma once

#include <string>
#include <vector>

#include "temper/base/config/config.h"

namespace temper::process {

// The key `sandbox`. With it a program sees all files and changes none but those of its scratch
// directory, has a loopback network of its own, sees no other processes, gains no rights, and ends
// with all that it started when it ends or is ended.
struct Sandbox {
  bool on = false;
  bool network = false;            // the network of this program instead
  std::vector<std::string> write;  // directories that it may change, too
  bool operator==(const Sandbox&) const = default;
};

// Why no program can run in it here: what the kernel or the system refuses, by name, or a directory
// that is not there. Found out by doing it, once for each sandbox. Empty: one can, or it is off.
std::string sandbox_problem(const Sandbox& sandbox);

// The command that runs the program in that file, `words` its name and arguments, in the sandbox.
// `limits` are "RESOURCE=VALUE", and in force before the program's first instruction; without
// words: the command whose exit status says whether it could. Throws RunError where temper-sandbox
// does not lie beside this library.
std::vector<std::string> sandbox_command(const Sandbox& sandbox, const std::string& scratch,
                                         const std::vector<std::string>& limits,
                                         const std::string& file,
                                         const std::vector<std::string>& words);

}  // namespace temper::process

namespace temper::config_detail {

template <>
struct Traits<process::Sandbox> {
  static std::string type(const Rule&) {
    return "true | false | {network: true | false, write: one or a list of text}";
  }
  static void read(const YamlNode& node, const std::string& path, const Rule& rule,
                   process::Sandbox& value);
  static YamlNode write(process::Sandbox& value);
  static std::vector<Field> children() { return {}; }
};

}  // namespace temper::config_detail
