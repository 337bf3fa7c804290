// What OLMo 2 and 3 have in common.
#pragma once

#include "temper/models/decoder.h"

namespace temper::models {

// All but rotary positions and windows.
DecoderConfig olmo_config(const HfConfig& config);

}  // namespace temper::models
