// Numbers as files have them.
#pragma once

#include <cstdint>
#include <string>

namespace temper {

inline std::string little_endian(uint64_t value, int bytes = 8) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

}  // namespace temper
