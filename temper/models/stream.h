// Models whose weights stay in their files, for work that touches every weight a few times: a
// forward pass reads a block's weights when it runs and gives them back behind it, and merged
// weights are made one by one. Memory is that of the largest block, embedding or head, not of the
// model.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "temper/models/checkpoint_tensors.h"
#include "temper/models/model.h"

namespace temper::models {

class WeightStream {
 public:
  // Of a model without values, which keeps those weights that belong to no unit (nn::Unit) and
  // reads the others from the directory, as `storage` says. `optional` may be absent, and is then
  // given to `absent`. Throws what load_model would.
  WeightStream(nn::Module& model, const std::string& directory, const Storage& storage,
               const std::string& optional = "",
               const std::function<void(nn::Parameter&)>& absent = {});
  ~WeightStream();

  // As models::load_adapter.
  void load_adapter(const std::string& directory);

  // A parameter's value with its adapter merged, float32, in memory of its own.
  at::Tensor merged(nn::Parameter& parameter) const;
  // The model's parameters in this dtype, adapters merged; each is made when it is asked for. They
  // refer to the model and to this.
  std::vector<std::pair<std::string, TensorView>> merged_tensors(at::ScalarType dtype) const;

 private:
  class Source;
  class StreamedUnit;
  class Here;
  nn::Lora* lora_of(const nn::Parameter& parameter) const;

  nn::Module& model_;
  std::map<const nn::Parameter*, std::shared_ptr<const Source>> sources_;
  std::map<const nn::Parameter*, nn::Linear*> layers_;
};

// The tensors of init_model's model, in the order of its parameters, each made when it is asked
// for. `model`, which has no values, and `config` outlive them.
std::vector<std::pair<std::string, TensorView>> init_tensors(CausalLM& model,
                                                             const HfConfig& config, uint64_t seed,
                                                             at::ScalarType dtype);

template <class Model>
struct StreamedModel {
  std::unique_ptr<Model> model;
  std::unique_ptr<WeightStream> weights;
};
// As load_model and load_scalar_model, with the adapter of a directory; "": none.
StreamedModel<CausalLM> stream_model(const std::string& directory, const std::string& adapter,
                                     const Storage& storage);
StreamedModel<ScalarModel> stream_scalar_model(const std::string& directory,
                                               const std::string& adapter, const Storage& storage);

}  // namespace temper::models
