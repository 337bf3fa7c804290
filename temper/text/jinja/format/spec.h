// A format specification, [[fill]align][sign][#][0][width][,|_][.precision][type], and what it
// makes of a number or a text. All throw Failure where Python raises.
#pragma once

#include <cstdint>
#include <string>

#include "temper/text/jinja/runtime.h"

namespace temper::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = 0, sign = '-', grouping = 0, type = 0;
  bool alternate = false, zero = false;
  int64_t width = 0;
  int precision = -1;  // none
};
constexpr int kMaxPrecision = 1000;

FormatSpec parse_spec(const std::string& text);

// The digits at `i`, which moves past them; 0 where there are none.
int64_t read_number(const std::string& text, size_t& i);

std::string format_integer(Runtime& runtime, int64_t value, const FormatSpec& spec);
std::string format_real(Runtime& runtime, double value, const FormatSpec& spec);
std::string format_text(Runtime& runtime, std::string text, const FormatSpec& spec);

// Pads digits that have a sign before them.
std::string place(Runtime& runtime, const FormatSpec& spec, const std::string& sign,
                  const std::string& digits);

}  // namespace temper::jinja
