#include "temper/serve/reply_json.h"

#include <random>

namespace temper::serve {

std::string to_text(const ReplyJson& reply) {
  return reply.dump(-1, ' ', false, ReplyJson::error_handler_t::replace);
}

std::string error_text(int status, const std::string& message) {
  const char* const type = status == 401   ? "authentication_error"
                           : status == 404 ? "not_found_error"
                           : status == 429 ? "rate_limit_error"
                           : status >= 500 ? "server_error"
                                           : "invalid_request_error";
  return to_text(
      {{"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", status}}}});
}

std::string new_id(const std::string& prefix) {
  // The system's own source: who knows some ids cannot compute the others.
  static thread_local std::random_device random;
  constexpr int kWords = 3, kDigits = 8;  // of 32 bits each
  std::string id = prefix;
  for (int i = 0; i < kWords; ++i) {
    const uint32_t bits = random();
    for (int digit = 0; digit < kDigits; ++digit) id += "0123456789abcdef"[bits >> 4 * digit & 15];
  }
  return id;
}

}  // namespace temper::serve
