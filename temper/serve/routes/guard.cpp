#include "temper/serve/routes/guard.h"

#include <exception>

#include "temper/base/error.h"
#include "temper/serve/answering.h"
#include "temper/serve/sampler_loop.h"
#include "temper/serve/sessions/sessions.h"

namespace temper::serve {

void guard(const ServerOptions& options, http::Exchange& exchange,
           const std::function<void()>& handler) try {
  try {
    handler();
  } catch (const TooManyRequests& e) {
    const bool of_run = options.sessions && options.sessions->required();  // without such options
    const char* const of = e.of_bytes && e.of_address
                               ? " bytes of images of one address (three quarters of "
                                 "--max-waiting-bytes)"
                           : e.of_bytes   ? " bytes of images (--max-waiting-bytes)"
                           : of_run       ? ""
                           : e.of_address ? " of one address (--max-requests-per-address)"
                                          : " (--max-requests)";
    exchange.answer(error_answer(
        429, temper::str("too many requests: the limit is ", e.limit, of, "; retry later")));
  } catch (const std::exception& e) {
    exchange.answer(answer_to(e));
  }
} catch (...) {
  exchange.end_stream(false);
}

}  // namespace temper::serve
