// The routes that list what there is, and those of one training run.
#include <charconv>
#include <cstring>

#include "temper/base/error.h"
#include "temper/tinker/routes.h"
#include "temper/tinker/service/service_fields.h"

namespace temper::tinker {
namespace {

using http::Admission;

// A number of the query ("limit=20&offset=0"), between 0 and `most`.
int64_t query_number(const std::string& query, const std::string& key, int64_t usual,
                     int64_t most) {
  for (size_t at = 0; at < query.size();) {
    const size_t end = std::min(query.find('&', at), query.size());
    const std::string_view pair = std::string_view(query).substr(at, end - at);
    at = end + 1;
    if (!pair.starts_with(key + "=")) continue;
    const std::string_view text = pair.substr(key.size() + 1);
    int64_t value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    check<DataError>(
        error == std::errc() && rest == text.data() + text.size() && value >= 0 && value <= most,
        "query: `", key, "`: expected a number from 0 to ", most);
    return value;
  }
  return usual;
}

constexpr int64_t kMostListed = 1000;

}  // namespace

std::optional<http::Admission> Routes::get_route(const http::RequestHead& head,
                                                 const std::string& path) {
  const std::string query = head.query;
  const auto listed = [query](int64_t usual, const auto& call) {
    return call(query_number(query, "limit", usual, kMostListed),
                query_number(query, "offset", 0, INT32_MAX));
  };
  if (path == "get_server_capabilities")
    return get([this](const std::string&, http::Exchange&) { return service_.capabilities(); });
  if (path == "training_runs")
    return get([this, listed](const std::string& owner, http::Exchange&) {
      return listed(20,
                    [&](int64_t n, int64_t at) { return service_.training_runs(owner, n, at); });
    });
  if (path == "checkpoints")
    return get([this, listed](const std::string& owner, http::Exchange&) {
      return listed(100,
                    [&](int64_t n, int64_t at) { return service_.checkpoints(owner, "", n, at); });
    });
  if (path == "sessions")
    return get([this, listed](const std::string& owner, http::Exchange&) {
      return listed(20, [&](int64_t n, int64_t at) { return service_.sessions(owner, n, at); });
    });
  const auto names_one = [&path](const char* list) {
    return path.starts_with(list) && path.find('/', std::strlen(list)) == std::string::npos;
  };
  if (names_one("sessions/"))
    return get([this, id = path.substr(9)](const std::string& owner, http::Exchange&) {
      return service_.session(owner, id);
    });
  if (names_one("samplers/"))
    return get([this, id = path.substr(9)](const std::string& owner, http::Exchange&) {
      return service_.sampler(owner, id);
    });
  return std::nullopt;
}

// training_runs/RUN, RUN/checkpoints, RUN/checkpoints/KIND/NAME and what is done with that one.
std::optional<http::Admission> Routes::run_route(const http::RequestHead& head,
                                                 const std::string& path) {
  constexpr std::string_view kCheckpoints = "/checkpoints";
  const bool gets = head.method == "GET" || head.method == "HEAD";
  const size_t slash = path.find('/');
  const std::string run = path.substr(0, slash),
                    rest = slash == std::string::npos ? "" : path.substr(slash);
  if (rest.empty() && gets)
    return get([this, run](const std::string& owner, http::Exchange&) {
      return service_.training_run(owner, run);
    });
  if (rest == kCheckpoints && gets)
    return get([this, run](const std::string& owner, http::Exchange&) {
      return service_.checkpoints(owner, run, 0, 0);
    });
  if (!rest.starts_with(std::string(kCheckpoints) + "/")) return std::nullopt;
  std::string id = rest.substr(kCheckpoints.size() + 1);
  const auto is_about = [&](const char* method, const std::string& end) {
    if (head.method != method || !id.ends_with(end)) return false;
    id.resize(id.size() - end.size());
    return true;
  };
  const auto run_on = [&](auto call) {
    const std::string tinker_path = "tinker://" + run + "/" + id;
    return post(head,
                [this, tinker_path, call](const std::string& owner, http::Exchange& exchange) {
                  call(service_.store(), owner, tinker_path, body_of(exchange));
                  return Json::object();
                });
  };
  using Text = const std::string&;
  if (is_about("POST", "/publish"))
    return run_on(
        [](Store& store, Text owner, Text p, const Json&) { store.set_public(owner, p, true); });
  if (is_about("DELETE", "/publish"))
    return run_on(
        [](Store& store, Text owner, Text p, const Json&) { store.set_public(owner, p, false); });
  if (is_about("PUT", "/ttl"))
    return run_on([](Store& store, Text owner, Text p, const Json& body) {
      serve::Members members(body);
      store.set_expiry(owner, p, members.integer("ttl_seconds", 1, int64_t{10} * 366 * 24 * 3600));
    });
  if (is_about("DELETE", ""))
    return run_on([](Store& store, Text owner, Text p, const Json&) { store.remove(owner, p); });
  return std::nullopt;
}

}  // namespace temper::tinker
