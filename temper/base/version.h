// The program's version.
#pragma once

namespace temper {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace temper
