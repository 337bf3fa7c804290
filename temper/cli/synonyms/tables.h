// The tables of keys of other trainers, one for each topic; each is sorted by name.
#pragma once

#include <span>

#include "temper/base/config/config_synonyms.h"

namespace temper::cli {

std::span<const KeySynonym> adapter_synonyms();
std::span<const KeySynonym> data_synonyms();
std::span<const KeySynonym> losses_synonyms();
std::span<const KeySynonym> metrics_synonyms();
std::span<const KeySynonym> model_synonyms();
std::span<const KeySynonym> optimizer_synonyms();
std::span<const KeySynonym> ranks_synonyms();
std::span<const KeySynonym> rl_synonyms();
std::span<const KeySynonym> rollout_synonyms();
std::span<const KeySynonym> train_synonyms();

}  // namespace temper::cli
