// The body of a message for Beast's parsers.
#pragma once

#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/message.hpp>
#include <cstdint>
#include <string>

namespace temper::http {

// A body that grows as it is received: Beast's own string body would reserve the length
// that a header announces.
struct AppendedBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>&, boost::beast::error_code& ec) { ec = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::beast::error_code& ec) {
      ec = {};
      size_t size = 0;
      for (const boost::asio::const_buffer b : boost::beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(b.data()), b.size());
        size += b.size();
      }
      return size;
    }
    void finish(boost::beast::error_code& ec) { ec = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace temper::http
