#include "temper/check/rollout_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/check/directories.h"
#include "temper/check/memory/sampling_parts.h"
#include "temper/generate/remote/server_check.h"
#include "temper/generate/request_check.h"
#include "temper/generate/scheduler.h"
#include "temper/grammar/grammar.h"

namespace temper::checks {

Finding check_rollout(const generate::RolloutSection& rollout, int64_t seed,
                      const train::Policy& policy, const RunShape& run, int64_t tensor_ranks) {
  const generate::GenerationOptions options = rollout.options(seed);
  generate::check_options(options, *policy.model, policy.tokenizer.get());
  if (options.grammar)
    grammar::Compiler(policy.tokenizer, policy.model->vocab_size).compile(*options.grammar);
  const SamplingShape& sampling = run.sampling;
  for (const ModelRole* sampler : samplers(run)) {
    generate::Request longest;
    longest.prompt.resize(static_cast<size_t>(std::max<int64_t>(1, sampling.prompt_tokens)));
    longest.options = options;
    const ops::CachePage page =
        cache_page(*sampler, sampling.cache_dtype, tensor_ranks, run.device);
    const int64_t state = kFloat * sampler->shape.states / tensor_ranks;
    const int64_t pages = generate::Scheduler::pages_needed(longest, page.tokens),
                  bytes = pages * page.bytes + 2 * state;
    check<ConfigError>(
        pages <= generate::cache_size(sampling.cache_bytes, page, state).pages,
        "rollout.cache_bytes: the longest prompt, ", longest.prompt.size(),
        " tokens, and rollout.max_new_tokens ", options.max_new_tokens, " need ", bytes,
        " bytes of key-value cache", sampler == &run.policy ? "" : " of the " + sampler->role,
        "; the limit is ", sampling.cache_bytes,
        rollout.cache_bytes ? "" : ", a quarter of the usable memory divided by the ranks");
  }
  const int64_t positions = run.policy.shape.max_positions;
  if (options.max_new_tokens >= positions)
    return Finding::warn(str("rollout.max_new_tokens ", options.max_new_tokens,
                             ": expected less than the model's max_position_embeddings, ",
                             positions, ", the prompt included"));
  return Finding::pass(str("up to ", options.max_new_tokens, " tokens at temperature ",
                           options.sampling.temperature,
                           options.grammar ? ", in the form of a grammar" : ""));
}

Finding check_servers(const generate::ServerSection& section, const std::string& weights_dir,
                      const generate::remote::ServerNeeds& needs) {
  using generate::remote::ServerReport;
  if (needs.loads) check_writable(weights_dir, "rollout.server.weights_dir");
  const std::vector<ServerReport> reports = generate::remote::check_servers(section, needs);
  std::string failures, warnings, models;
  size_t failed = 0, wrong = 0;
  for (const ServerReport& report : reports) {
    if (!report.warning.empty())
      warnings += str(warnings.empty() ? "" : "; ", report.url, ": ", report.warning);
    if (report.state == ServerReport::State::kGood) {
      models += (models.empty() ? "" : ", ") + report.model;
      continue;
    }
    failures += str(failures.empty() ? "" : "; ", report.url, ": ", report.reason);
    ++failed;
    wrong += report.state == ServerReport::State::kWrong;
  }
  if (wrong > 0) return Finding::fail(failures);
  if (failed == reports.size()) return Finding::fail("no server answers: " + failures);
  if (failed > 0)
    return Finding::warn(str(failed, " of ", reports.size(), " servers do not answer: ", failures,
                             warnings.empty() ? "" : "; ", warnings));
  if (!warnings.empty()) return Finding::warn(warnings);
  return Finding::pass(
      str(reports.size(), reports.size() == 1 ? " server answers: " : " answer: ", models),
      {{"servers", reports.size()}});
}

}  // namespace temper::checks
