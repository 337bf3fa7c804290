// Tensor parallelism (Shoeybi et al., arXiv 1909.08053): ranks that compute the same rows, each
// with its part of every layer, as the table at the family's foot says.
#pragma once

#include <memory>
#include <string>

#include "temper/dist/group.h"
#include "temper/models/family.h"

namespace temper::models {

// Before the model has values: this rank keeps its part of what the family's rules name; what none
// names stays whole. Messages begin with `key`, by which the user chose the number of ranks;
// `where` names the config of the model. Throws ConfigError for what the number of ranks does not
// divide.
void split(nn::Module& model, const Family& family, const std::shared_ptr<dist::Group>& tensor,
           const std::string& key, const std::string& where);

}  // namespace temper::models
