#include "temper/text/chat/template_date.h"

#include <cstdio>

#include "temper/base/error.h"

namespace temper {

std::string to_date_text(const std::tm& time) {
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d", time.tm_year + 1900,
                time.tm_mon + 1, time.tm_mday, time.tm_hour, time.tm_min, time.tm_sec);
  return text;
}

std::tm parse_date(const std::string& text, const std::string& where) {
  std::tm written{};
  char separator = 'T';
  int end = 0;
  const int fields = std::sscanf(text.c_str(), "%4d-%2d-%2d%n%c%2d:%2d:%2d%n", &written.tm_year,
                                 &written.tm_mon, &written.tm_mday, &end, &separator,
                                 &written.tm_hour, &written.tm_min, &written.tm_sec, &end);
  written.tm_year -= 1900;
  written.tm_mon -= 1;
  // A field that is out of range silently becomes another date, which is compared below.
  std::tm found = written;
  const std::time_t seconds = ::timegm(&found);
  const bool whole = (fields == 3 || (fields == 7 && (separator == 'T' || separator == ' '))) &&
                     static_cast<size_t>(end) == text.size();
  check<ConfigError>(whole && to_date_text(found) == to_date_text(written) && found.tm_year >= 0,
                     where, ": found `", text,
                     "`, expected a date as 2026-11-23 or 2026-11-23T07:30:00");
  ::gmtime_r(&seconds, &found);  // the day of the week and of the year
  return found;
}

}  // namespace temper
