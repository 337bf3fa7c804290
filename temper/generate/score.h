// Log-probabilities of given tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "temper/models/model.h"

namespace temper::generate {

struct ScoreRequest {
  std::vector<int32_t> tokens;          // the whole row
  size_t first_scored = 1;              // the completion begins here; at least 1
  int adapter = 0;                      // nn::Context::adapter
  std::vector<ExternalRows> rows = {};  // in place of tokens' embeddings
  // Which tokens are scored, where they are not all from first_scored on: ascending, at least 1.
  std::optional<std::vector<size_t>> only = {};
  // The places of the scored tokens.
  std::vector<size_t> scored() const;
};
struct ScoreResult {
  std::vector<float> logprobs;                      // of the scored tokens
  std::vector<std::pair<int32_t, float>> next_top;  // the likeliest tokens after the last one
};

// Scores rows packed into one forward pass for each adapter. The result of a row does not depend on
// the others.
std::vector<ScoreResult> score(models::CausalLM& model, const std::vector<ScoreRequest>& rows,
                               double temperature = 1, int64_t top = 0);

}  // namespace temper::generate
