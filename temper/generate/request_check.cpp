#include "temper/generate/request_check.h"

#include <algorithm>
#include <set>

#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/generate/sampling/option_table.h"
#include "temper/generate/scheduler.h"
#include "temper/models/device.h"

namespace temper::generate {

int64_t cache_bytes(const EngineOptions& options) {
  if (options.cache_bytes > 0) return options.cache_bytes;
  const int64_t ranks =
      options.local_ranks > 0 ? options.local_ranks : ranks_on_machine().value_or(1);
  const at::Device device = models::chosen_device();
  const auto memory = models::memory_of(device);
  const int64_t all = memory ? memory->all : usable_memory_bytes(),
                sharing = models::ranks_on_device(ranks, device);
  return all / 4 / sharing;
}

void check_options(const GenerationOptions& options, const models::CausalLM& model,
                   const Tokenizer* tokenizer, int64_t begun) {
  for (const SamplingOption& option : sampling_options())
    visit_number(option, options, [&](auto value) {
      check<ConfigError>(allows(option.rule, static_cast<double>(value)), option.name, ": found ",
                         value, ", expected ",
                         allowed(option.rule, std::is_integral_v<decltype(value)>));
    });
  check<ConfigError>(options.min_new_tokens <= begun + options.max_new_tokens,
                     "min_new_tokens: found ", options.min_new_tokens,
                     ", expected at most max_new_tokens, ", options.max_new_tokens);
  const double temperature = options.sampling.temperature;
  check<ConfigError>(temperature == 0 || temperature >= kLeastTemperature, "temperature: found ",
                     temperature, ", expected 0 (greedy) or at least ", kLeastTemperature);
  check<ConfigError>(std::find(options.stop.begin(), options.stop.end(), "") == options.stop.end(),
                     "stop: found an empty text, which ends every completion at once; expected at "
                     "least one character");
  check<ConfigError>(options.stop.empty() || tokenizer,
                     "stop texts need a tokenizer, and the model has none");
  const auto check_id = [&model](const char* key, int32_t id) {
    check<ConfigError>(id >= 0 && id < model.vocab_size, key, ": found token ", id,
                       ", and the model has ", model.vocab_size);
  };
  for (const int32_t id : options.stop_token_ids) check_id("stop_token_ids", id);
  for (const auto& [id, bias] : options.sampling.logit_bias) check_id("logit_bias", id);
}

void check_request(const Request& request, const models::CausalLM& model,
                   const Tokenizer* tokenizer, const CacheLimit& cache) {
  check_options(request.options, model, tokenizer, request.begun);
  check<DataError>(!request.prompt.empty(), "row ", request.index, ": an empty prompt");
  check(request.begun >= 0 && request.begun <= request.position &&
            request.begun < static_cast<int64_t>(request.prompt.size()),
        "row ", request.index, ": ", request.begun, " tokens of the completion in a prompt of ",
        request.prompt.size());
  for (const int32_t id : request.prompt)
    check<DataError>(id >= 0 && id < model.vocab_size, "row ", request.index, ": token ", id,
                     ", and the model has ", model.vocab_size);
  check_rows(request.rows, std::ssize(request.prompt));
  for (const ExternalRows& r : request.rows)
    if (r.features.defined())
      check(r.features.size(1) == model.hidden_size, "row ", request.index, ": external rows of ",
            r.features.size(1), " numbers, and the model's have ", model.hidden_size);
  check_fits(Scheduler::pages_needed(request, cache.cache.page_tokens()), request, cache);
}

void check_fits(int64_t pages, const Request& request, const CacheLimit& limit,
                const std::string& where) {
  check<ConfigError>(pages <= limit.cache.max_pages(), where, "a prompt of ", request.prompt.size(),
                     " tokens and ", request.options.max_new_tokens, " new ones need ",
                     pages * limit.cache.page_bytes(), " bytes of key-value cache; the limit is ",
                     limit.bytes, " (rollout.cache_bytes, --cache-bytes)");
}

std::vector<int32_t> never_sampled(const models::CausalLM& model, const Tokenizer* tokenizer) {
  std::set<int32_t> ids(model.image_marks.ids.begin(), model.image_marks.ids.end());
  if (tokenizer)
    for (const std::string& text : model.image_marks.texts)
      if (const auto id = tokenizer->id_of(text)) ids.insert(*id);
  std::erase_if(ids, [&](int32_t id) { return id >= model.vocab_size; });
  return {ids.begin(), ids.end()};
}

std::vector<int32_t> ends_of(const GenerationOptions& options, const models::CausalLM& model) {
  std::vector<int32_t> ends = options.stop_token_ids;
  if (!options.ignore_eos)
    ends.insert(ends.end(), model.eos_token_ids.begin(), model.eos_token_ids.end());
  return ends;
}

}  // namespace temper::generate
