// The head of a request, as Beast's parser has read it.
#pragma once

#include <boost/beast/http/parser.hpp>
#include <string>

#include "temper/http/appended_body.h"
#include "temper/http/server.h"

namespace temper::http {

using RequestParser = boost::beast::http::request_parser<AppendedBody>;

// Sets all of `head` but the peer from a complete head. Returns why it is malformed, and `head` is
// then incomplete; empty: it is not.
std::string read_head(const RequestParser& parser, RequestHead& head);

}  // namespace temper::http
