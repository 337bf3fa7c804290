// Ranks that compute the same rows. Tensor parallelism (Shoeybi et al., arXiv 1909.08053): each has
// its part of every layer that may be divided (nn::Parameter::divides). Expert parallelism
// (Lepikhin et al., arXiv 2006.16668): each has some of the experts of every layer, and the rest
// whole.
#pragma once

#include <memory>
#include <string>

#include "temper/dist/group.h"
#include "temper/nn/module.h"

namespace temper::models {

// Before the model has values: this rank keeps its part. Messages begin with `key`, by which the
// user chose the number of ranks; `where` names the config of the model. Throws ConfigError for
// what the number of ranks does not divide.
void split(nn::Module& model, const std::shared_ptr<dist::Group>& tensor, const std::string& key,
           const std::string& where);
// The same by experts. Gives whether the model has any.
bool split_experts(nn::Module& model, const std::shared_ptr<dist::Group>& ranks,
                   const std::string& key, const std::string& where);

}  // namespace temper::models
