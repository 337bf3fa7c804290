// How configs write the choices of terms.h.
#pragma once

#include <array>

#include "temper/base/config/config.h"
#include "temper/rl/algorithms/terms.h"

namespace temper {

template <>
inline constexpr std::array enum_names<train::KlEstimator> = {"k1", "k2", "k3"};
template <>
inline constexpr std::array enum_names<rl::Importance> = {"token", "sequence"};
template <>
inline constexpr std::array enum_names<rl::RewardAggregation> = {"sum_then_normalize",
                                                                 "normalize_then_sum"};
template <>
inline constexpr std::array enum_names<rl::Aggregation> = {
    "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"};

}  // namespace temper
