// What tests that compare with a reference implementation found, for tables: with
// TEMPER_DIFFERENCES=FILE a test program appends a line for each name, with the largest
// |found - expected| / max(1, |expected|).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

namespace temper {

class Differences {
 public:
  static void add(const std::string& name, double found, double expected) {
    static Differences all;
    double& largest = all.largest_[name];
    largest = std::max(largest, std::abs(found - expected) / std::max(1.0, std::abs(expected)));
  }
  Differences(const Differences&) = delete;
  Differences& operator=(const Differences&) = delete;

 private:
  Differences() = default;
  ~Differences() {
    const char* path = std::getenv("TEMPER_DIFFERENCES");
    if (!path) return;
    std::ofstream file(path, std::ios::app);
    for (const auto& [name, largest] : largest_) file << largest << '\t' << name << '\n';
  }
  std::map<std::string, double> largest_;
};

}  // namespace temper
