// What can be obeyed of a request, and what follows from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/generate/cache.h"
#include "temper/generate/engine.h"
#include "temper/generate/request.h"

namespace temper::generate {

// Bytes that keys and values may take.
int64_t cache_bytes(const EngineOptions& options);

struct CacheLimit {
  const PageCache& cache;
  int64_t bytes;  // what the cache was made with
};

// Throws ConfigError for options that no request to the model can have. begun: tokens of the
// completion that the prompt already has.
void check_options(const GenerationOptions& options, const models::CausalLM& model,
                   const Tokenizer* tokenizer, int64_t begun = 0);
// Throws DataError for an empty prompt and for ids that are not the model's, ConfigError for
// options that cannot be obeyed and for a prompt that can never fit the cache.
void check_request(const Request& request, const models::CausalLM& model,
                   const Tokenizer* tokenizer, const CacheLimit& limit);
// Throws ConfigError where the cache has fewer pages in all. where: what the message begins with,
// as in "rows.jsonl:3: ".
void check_fits(int64_t pages, const Request& request, const CacheLimit& limit,
                const std::string& where = "");

// What no sampler of the model chooses, ascending: the tokens of its image marks. Without a
// tokenizer those whose ids its config.json names.
std::vector<int32_t> never_sampled(const models::CausalLM& model, const Tokenizer* tokenizer);

// The tokens that end a completion.
std::vector<int32_t> ends_of(const GenerationOptions& options, const models::CausalLM& model);

}  // namespace temper::generate
