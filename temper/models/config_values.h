// Values of a config that only a range of makes sense, and what a config says that is not computed.
#pragma once

#include <string>
#include <string_view>

#include "temper/models/files/hf_config.h"

namespace temper::models {

// The number of a key above `least`, or from it on. Throws ConfigError for others.
double number_above(const HfConfig& config, std::string_view key, double least, double fallback);
double number_from(const HfConfig& config, std::string_view key, double least, double fallback);
// x becomes cap tanh(x / cap): the cap; 0 where the key is null: there is none.
double soft_cap(const HfConfig& config, const char* key, double usual);

// The config with a value in place of a key that is missing or null.
HfConfig filled(const HfConfig& config, const char* key, Json value);

// Throws ConfigError for a model whose tokens attend to later ones.
void check_causal(const HfConfig& config);

// What to tell who trains the model: probabilities of dropout in its config, which are not applied;
// "": there are none.
std::string unapplied_dropout(const HfConfig& config);

}  // namespace temper::models
