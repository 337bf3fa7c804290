// The date and time that a chat template writes (strftime_now), as text in configs and checkpoints.
#pragma once

#include <ctime>
#include <string>

namespace temper {

// "2026-11-23T07:30:00".
std::string to_date_text(const std::tm& time);

// The inverse, which also takes a date alone (midnight) and a space for the T. Throws ConfigError
// that begins with `where`.
std::tm parse_date(const std::string& text, const std::string& where);

}  // namespace temper
