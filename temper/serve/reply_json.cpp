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
  static thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id = prefix;
  for (int i = 0; i < 24; ++i) id += "0123456789abcdef"[random() % 16];
  return id;
}

}  // namespace temper::serve
