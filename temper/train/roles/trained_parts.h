// What of a model a run trains: all weights, or an adapter on a frozen base, and parts of a vision
// tower; less what train.freeze names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "temper/models/adapters/lora_config.h"
#include "temper/models/model.h"
#include "temper/text/tokenizer/tokenizer.h"
#include "temper/train/config.h"

namespace temper::train {

// Initial values of a new adapter. kDrawn: A random from the config's seed, B zero. kNone: shapes
// alone, for `temper check`, whose model has no values.
enum class AdapterValues { kDrawn, kNone };

// Adds the run's adapter, if it has one, and returns its config; marks the parameters that train.
// Of an adapter to go on from (adapter.path) the config then says what it is. The tokenizer is the
// model's, or null. Throws ConfigError for what the model cannot be given or ranks cannot divide,
// keys that disagree with an adapter's files, and patterns that match nothing.
std::optional<models::LoraConfig> choose_trained(models::Model& model, RunConfig& config,
                                                 const Tokenizer* tokenizer,
                                                 AdapterValues values = AdapterValues::kDrawn);

// The texts that become tokens: model.new_tokens, or those of the adapter to go on from. Throws
// ConfigError where the two differ.
std::vector<std::string> new_tokens_of(const RunConfig& config);

}  // namespace temper::train
