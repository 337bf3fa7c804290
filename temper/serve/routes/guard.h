// What becomes of errors in routes.
#pragma once

#include <functional>

#include "temper/http/server.h"
#include "temper/serve/server.h"

namespace temper::serve {

// Calls the handler; what it throws becomes the answer, or ends the connection where not even that
// can be made.
void guard(const ServerOptions& options, http::Exchange& exchange,
           const std::function<void()>& handler);

}  // namespace temper::serve
