#include "temper/workers/trained_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "temper/base/error.h"
#include "temper/io/safetensors.h"
#include "temper/models/files/tensors.h"
#include "temper/train/roles/parameters.h"

namespace temper::workers {

std::shared_ptr<const std::string> trained_weights(nn::Module& model, bool wanted) {
  const at::NoGradGuard no_grad;
  TensorMap tensors;
  for (const train::NamedParameter& p : train::trainable_parameters(model))
    tensors[p.name] = models::whole_view(*p.parameter);
  if (wanted) return std::make_shared<const std::string>(safetensors_bytes(tensors));
  write_safetensors("", tensors);  // takes part in gathering
  return nullptr;
}

void set_trained_weights(nn::Module& model, const std::shared_ptr<const std::string>& bytes) {
  const at::NoGradGuard no_grad;
  const TensorMap tensors =
      parse_safetensors(std::as_bytes(std::span(*bytes)), "weights of rank 0", bytes);
  const std::vector<train::NamedParameter> parameters = train::trainable_parameters(model);
  check<DataError>(parameters.size() == tensors.size(), "weights of rank 0: found ", tensors.size(),
                   " tensors, expected ", parameters.size());
  for (const train::NamedParameter& p : parameters) {
    const auto found = tensors.find(p.name);
    check<DataError>(found != tensors.end() && found->second.shape == p.parameter->whole_shape(),
                     "weights of rank 0: no ", p.name, " of this model's shape");
  }
  for (const train::NamedParameter& p : parameters)
    p.parameter->set_whole_value(models::to_tensor(tensors.at(p.name), at::kFloat));
}

}  // namespace temper::workers
