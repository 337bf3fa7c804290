// Messages of conversations.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/json.h"

namespace temper::data {

inline Json said(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

}  // namespace temper::data
