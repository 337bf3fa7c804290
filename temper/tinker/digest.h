// What identifies a request's content, so that a retry is known.
#pragma once

#include <string>
#include <string_view>

#include "temper/base/json.h"
#include "temper/tinker/wire.h"

namespace temper::tinker {

std::string digest_of(std::string_view route, const Json& body);
std::string digest_of(const ForwardBackwardRequest& request);

}  // namespace temper::tinker
