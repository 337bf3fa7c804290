#include "temper/generate/remote/server_check.h"

#include <algorithm>
#include <future>

#include "temper/generate/option_values.h"
#include "temper/generate/remote/server_pool.h"

namespace temper::generate::remote {
namespace {

constexpr double kMostSeconds = 30;  // of a request: a model may be slow to sample its first tokens

ServerReport check_server(const PoolOptions::Server& server, const Protocol& protocol,
                          const ServerNeeds& needs, double timeout) {
  using State = ServerReport::State;
  ServerReport report{.url = server.url.str()};
  try {
    HttpClient http(server.url, server.api_key, timeout);
    report.model = protocol.inspect(http, needs);
  } catch (const HttpFailure& e) {
    const bool passes = e.unreachable || e.busy() || e.status >= 500;
    report.state = passes ? State::kGone : State::kWrong;
    report.reason = e.what();
  } catch (const Error& e) {
    report.state = State::kWrong;
    report.reason = e.what();
  }
  return report;
}

}  // namespace

ServerNeeds server_needs(const ServerSection& section, bool adapter, int64_t vocabulary,
                         const Tokenizer* tokenizer, ops::CacheDtype cache_dtype) {
  const int64_t ids =
      tokenizer ? std::min<int64_t>(vocabulary, tokenizer->vocab_size()) : vocabulary;
  return {.loads = section.sync == ServerSection::Sync::kDisk,
          .adapter = adapter,
          .vocabulary = vocabulary,
          .cache_dtype = name_of(cache_dtype),
          .token = static_cast<int32_t>(std::max<int64_t>(ids - 1, 0))};
}

std::vector<ServerReport> check_servers(const ServerSection& section, const ServerNeeds& needs) {
  const std::unique_ptr<Protocol> protocol =
      make_protocol(section.kind, std::max<int64_t>(needs.vocabulary, 1));
  const std::vector<PoolOptions::Server> servers = pool_options(section).servers;
  const double timeout = std::min(section.timeout_seconds, kMostSeconds);
  std::vector<std::future<ServerReport>> asked;
  for (const auto& server : servers)
    asked.push_back(std::async(std::launch::async, [&server, &protocol, &needs, timeout] {
      return check_server(server, *protocol, needs, timeout);
    }));
  std::vector<ServerReport> reports;
  for (auto& one : asked) reports.push_back(one.get());
  return reports;
}

}  // namespace temper::generate::remote
