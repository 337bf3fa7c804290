// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace temper::checks {

std::string counted(int64_t count);        // "7,473"; from a million on "29.4M", "8.03B"
std::string megabytes(double bytes);       // "117 MB", "1.17 GB"
std::string seconds_text(double seconds);  // "12.3 ms"

}  // namespace temper::checks
