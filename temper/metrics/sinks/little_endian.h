#pragma once

#include <bit>
#include <cstring>
#include <string>

namespace temper {

// A number's bytes, as the frames of TensorBoard's and W&B's files have them.
template <class T>
std::string little_endian(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string out(sizeof value, '\0');
  std::memcpy(out.data(), &value, sizeof value);
  return out;
}

}  // namespace temper
