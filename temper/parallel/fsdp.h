// Fully sharded data parallelism (ZeRO stage 3, Rajbhandari et al., arXiv 1910.02054; Zhao et al.,
// arXiv 2304.11277): ranks that have rows of their own share out weights, gradients and optimizer
// state among them. Applied to a model from outside; nothing has to divide.
#pragma once

#include <memory>

#include "temper/dist/group.h"
#include "temper/nn/module.h"

namespace temper::parallel {

// Each module that runs as a unit (nn/unit.h) becomes one: of its parameters, trainable and frozen,
// this rank keeps an even part, and the whole values exist only while the unit is used. Afterwards
// formats and what trains no longer change. The values that the parameters had are freed, where
// nobody else holds them. Parameters outside of units (norms of the body, scalar heads) stay whole.
void shard(nn::Module& model, const std::shared_ptr<dist::Group>& fsdp);

}  // namespace temper::parallel
