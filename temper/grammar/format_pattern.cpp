#include "temper/grammar/format_pattern.h"

#include <utility>
#include <vector>

namespace temper::grammar {
namespace {

std::vector<std::pair<std::string, std::string>> format_patterns() {
  const auto times = [](const std::string& what, const char* count) {
    return "(?:" + what + ")" + count;
  };
  const std::string year = "(?:\\d{3}[1-9]|\\d\\d[1-9]\\d|\\d[1-9]\\d\\d|[1-9]\\d{3})";
  const std::string day =
      "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"
      "02-(?:0[1-9]|1\\d|2[0-8]))";
  const std::string leap_year =
      "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
  const std::string date = "(?:" + year + "-" + day + "|" + leap_year + "-02-29)";
  const std::string minutes = "(?:[01]\\d|2[0-3]):[0-5]\\d";
  const std::string time = minutes + ":[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-]" + minutes + ")";
  const std::string byte = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  const std::string ipv4 = times(byte + "\\.", "{3}") + byte;
  const std::string group = "[0-9a-fA-F]{1,4}";
  std::string ipv6 = times(group + ":", "{7}") + group + "|" + times(group + ":", "{1,7}") + ":|";
  ipv6 += times(group + ":", "{1,6}") + ":" + group + "|" + times(group + ":", "{1,5}") +
          times(":" + group, "{1,2}") + "|" + times(group + ":", "{1,4}") +
          times(":" + group, "{1,3}") + "|" + times(group + ":", "{1,3}") +
          times(":" + group, "{1,4}") + "|" + times(group + ":", "{1,2}") +
          times(":" + group, "{1,5}") + "|" + group + ":" + times(":" + group, "{1,6}") +
          "|:" + times(":" + group, "{1,7}") + "|::|" + "::(?:[fF]{4}:)?" + ipv4 + "|" +
          times(group + ":", "{1,4}") + ":" + ipv4;
  const std::string label = "[a-z0-9](?:[a-z0-9-]{0,33}[a-z0-9])?";
  const std::string atom = "[A-Za-z0-9_!#$%&'*+/=?^`{|}~-]{1,20}";
  const std::string pointer = "(?:/(?:[^~/]|~[01])*)*";
  return {
      {"date", date},
      {"time", time},
      {"date-time", date + "T" + time},
      {"ipv4", ipv4},
      {"ipv6", ipv6},
      {"hostname", label + times("\\." + label, "{0,6}")},
      {"email", atom + times("\\." + atom, "{0,2}") + "@" + label + times("\\." + label, "{1,4}")},
      {"json-pointer", pointer},
      {"relative-json-pointer", "(?:0|[1-9]\\d*)(?:#|" + pointer + ")"}};
}

}  // namespace

std::string format_pattern(const std::string& format) {
  static const std::vector<std::pair<std::string, std::string>> patterns = format_patterns();
  for (const auto& [name, pattern] : patterns)
    if (name == format) return pattern;
  return {};
}

}  // namespace temper::grammar
