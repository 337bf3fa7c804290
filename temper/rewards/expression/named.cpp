#include "temper/rewards/expression/named.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace temper::rewards {
namespace {

struct NamedFunction {
  std::string_view name;
  Function compute;
};
constexpr std::array<NamedFunction, 16> kFunctions{{
    {"\\sin", [](Complex x) { return std::sin(x); }},
    {"\\cos", [](Complex x) { return std::cos(x); }},
    {"\\tan", [](Complex x) { return std::tan(x); }},
    {"\\cot", [](Complex x) { return 1.0 / std::tan(x); }},
    {"\\sec", [](Complex x) { return 1.0 / std::cos(x); }},
    {"\\csc", [](Complex x) { return 1.0 / std::sin(x); }},
    {"\\arcsin", [](Complex x) { return std::asin(x); }},
    {"\\arccos", [](Complex x) { return std::acos(x); }},
    {"\\arctan", [](Complex x) { return std::atan(x); }},
    {"\\sinh", [](Complex x) { return std::sinh(x); }},
    {"\\cosh", [](Complex x) { return std::cosh(x); }},
    {"\\tanh", [](Complex x) { return std::tanh(x); }},
    {"\\exp", [](Complex x) { return std::exp(x); }},
    {"\\ln", [](Complex x) { return std::log(x); }},
    {"\\log", [](Complex x) { return std::log10(x); }},
    {"\\lg", [](Complex x) { return std::log10(x); }},
}};

constexpr std::array<std::string_view, 30> kSymbols{
    "\\alpha", "\\beta",   "\\gamma",  "\\delta", "\\epsilon", "\\zeta",     "\\eta",   "\\theta",
    "\\iota",  "\\kappa",  "\\lambda", "\\mu",    "\\nu",      "\\xi",       "\\rho",   "\\sigma",
    "\\tau",   "\\phi",    "\\varphi", "\\chi",   "\\psi",     "\\omega",    "\\Gamma", "\\Delta",
    "\\Theta", "\\Lambda", "\\Phi",    "\\Omega", "\\infty",   "\\emptyset",
};

}  // namespace

Function find_function(std::string_view command) {
  const auto found = std::find_if(kFunctions.begin(), kFunctions.end(),
                                  [&](const NamedFunction& f) { return f.name == command; });
  return found == kFunctions.end() ? nullptr : found->compute;
}

bool is_symbol(std::string_view command) {
  return std::count(kSymbols.begin(), kSymbols.end(), command) > 0;
}

Complex number_for(std::string_view name, int point) {
  uint64_t h = 1469598103934665603u + static_cast<uint64_t>(point) * 0x9E3779B97F4A7C15u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  h ^= h >> 29;
  h *= 0xBF58476D1CE4E5B9u;
  h ^= h >> 32;
  const double x = 0.2 + 2.6 * static_cast<double>(h >> 11) * 0x1p-53;
  return point == 1 || (point > 1 && h % 2 == 1) ? -x : x;
}

}  // namespace temper::rewards
