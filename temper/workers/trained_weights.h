// The weights of a policy that train, whole or the adapter alone, as they are sent to ranks that
// sample with them.
#pragma once

#include <memory>
#include <string>

#include "temper/nn/module.h"

namespace temper::workers {

// The values of the parameters that train, by name, as the bytes of a safetensors file. Where ranks
// share the model out all of them call this; null where this one does not want the bytes.
std::shared_ptr<const std::string> trained_weights(nn::Module& model, bool wanted);

// Sets them in a model of the same shapes and names. Throws DataError unless they are the values of
// all of its parameters that train.
void set_trained_weights(nn::Module& model, const std::shared_ptr<const std::string>& bytes);

}  // namespace temper::workers
