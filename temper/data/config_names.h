// Names that config keys and flags give to what they choose.
#pragma once

#include "temper/base/config/config.h"
#include "temper/data/rows/text_format.h"
#include "temper/text/chat/conversation.h"

namespace temper {

template <>
inline constexpr std::array enum_names<TrainOn> = {"auto", "all", "completion", "assistant"};
template <>
inline constexpr std::array enum_names<data::PromptsAs> = {"text", "user"};

}  // namespace temper
