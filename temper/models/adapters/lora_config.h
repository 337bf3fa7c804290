// What a LoRA or DoRA adapter is, as PEFT's adapter_config.json says it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "temper/models/config.h"

namespace temper::models {

// Rows of an embedding or a head, by token id, that train while the others are frozen: PEFT's
// trainable_token_indices. Those of embeddings to which the head is tied are the head's, too.
struct TrainedTokens {
  std::string module = "embed_tokens";  // or lm_head: the last part of a path, or all of it
  std::vector<int64_t> ids;             // ascending
  bool operator==(const TrainedTokens&) const = default;
};

struct LoraConfig {
  int64_t rank = 16;
  double alpha = 32, dropout = 0;
  bool rank_stabilized = false;  // scale alpha / sqrt(rank) (Kalajdzievski, arXiv 2312.03732)
  std::vector<std::string> target_modules{
      "all-linear"};  // names of linear layers (their last part or whole path), lm_head too; or
                      // one regular expression that matches whole paths (is_path_expression)
  bool dora = false;  // weight-decomposed (nn::Lora); not of lm_head
  // Modules that train whole beside the low-rank matrices: embed_tokens, lm_head; of a tied model
  // either means both. A ScalarModel's head always trains.
  std::vector<std::string> modules_to_save{};
  bool tied = false;  // of a file: embeddings and head that were saved are one weight
  // Other ranks and alphas of some layers, those of the first pattern that fits. PEFT makes one
  // matrix of the adapters of experts' gate_proj and up_proj, of twice their rank.
  std::vector<LayerPattern> rank_pattern{}, alpha_pattern{};
  std::vector<TrainedTokens> trained_tokens{};  // no module twice
  int64_t largest_rank() const;
};

// Whether target_modules of this one text is a regular expression: it has other characters than
// those of paths.
bool is_path_expression(const std::string& text);

}  // namespace temper::models
