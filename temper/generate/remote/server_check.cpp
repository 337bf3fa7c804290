#include "temper/generate/remote/server_check.h"

#include <algorithm>
#include <future>

#include "temper/generate/remote/server_pool.h"
#include "temper/generate/sampling/option_values.h"

namespace temper::generate::remote {
namespace {

constexpr double kMostSeconds = 30;  // of a request: a model may be slow to sample its first tokens

// True where a run samples from another distribution than the model's.
bool reshapes_logits(const GenerationOptions& o) {
  return o.sampling.filters() || o.sampling.changes_logits() || o.grammar || o.min_new_tokens > 0;
}

std::string warning_of(LogprobsOf logprobs) {
  if (logprobs == LogprobsOf::kModel) return {};
  const char* const found = logprobs == LogprobsOf::kSampled
                                ? "its log-probabilities are"
                                : "its log-probabilities may be (this could not be determined)";
  return temper::str(
      found, " those after penalties, top-k, top-p and min-p, and the policy's are those before: ",
      "importance weights compare two distributions, and gradients are biased. Sample without ",
      "rollout.top_k, top_p, min_p, penalties, logit_bias and grammars, or start vLLM without ",
      "--logprobs-mode processed_logprobs and set rollout.temperature 1");
}

ServerReport check_server(const PoolOptions::Server& server, const Protocol& protocol,
                          const ServerNeeds& needs, double timeout) {
  using State = ServerReport::State;
  ServerReport report{.url = server.url.str()};
  try {
    http::Client http(server.url, server.api_key, timeout);
    report.model = protocol.inspect(http, needs);
    if (needs.reshapes && needs.vocabulary > 0)
      report.warning = warning_of(protocol.find_logprobs(http, report.model, needs.token));
  } catch (const http::Failure& e) {
    const bool passes = e.unreachable || e.busy() || e.status >= 500;
    report.state = passes ? State::kGone : State::kWrong;
    report.reason = e.what();
    if (passes && needs.reshapes) report.warning = warning_of(LogprobsOf::kUnknown);
  } catch (const Error& e) {
    report.state = State::kWrong;
    report.reason = e.what();
  }
  return report;
}

}  // namespace

ServerNeeds server_needs(const ServerSection& section, const RolloutSection& rollout, bool adapter,
                         int64_t vocabulary, const Tokenizer* tokenizer) {
  const GenerationOptions options = rollout.options(0);
  const int64_t ids =
      tokenizer ? std::min<int64_t>(vocabulary, tokenizer->vocab_size()) : vocabulary;
  return {.loads = section.sync == ServerSection::Sync::kDisk,
          .adapter = adapter,
          .vocabulary = vocabulary,
          .cache_dtype = generate::name_of(rollout.cache_dtype),
          .token = static_cast<int32_t>(std::max<int64_t>(ids - 1, 0)),
          .reshapes = reshapes_logits(options)};
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
