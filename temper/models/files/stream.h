// Models whose weights stay in their files, for work that touches every weight a few times: a
// forward pass reads a block's weights when it runs and releases them after it, and merged weights
// are made one at a time. Memory is that of the largest block, embedding or head, not of the model.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "temper/models/files/checkpoint_tensors.h"
#include "temper/models/model.h"

namespace temper::models {

class WeightStream {
 public:
  // `model` has no values: weights that belong to no unit (nn::ShardUnit) are loaded now, the
  // others are read from the directory when they are used, in the format of `storage`. `optional`
  // may be absent, and is then passed to `absent`. Throws what load_model would.
  WeightStream(Model& model, const std::string& directory, const Storage& storage,
               const std::string& optional = "",
               const std::function<void(nn::Parameter&)>& absent = {});
  // The same of tensors by the model's own names.
  WeightStream(Model& model, CheckpointTensors tensors, const Storage& storage,
               const std::string& optional = "",
               const std::function<void(nn::Parameter&)>& absent = {});
  ~WeightStream();

  const Model& model() const { return model_; }
  // Loads an adapter as models::load_adapter does.
  void load_adapter(const std::string& directory);

  // A parameter's value with its adapter merged, float32, in memory of its own.
  at::Tensor merged(nn::Parameter& parameter) const;
  // The model's parameters in this dtype, adapters merged, under the names that transformers reads,
  // with a head of its own where adapts_tied_head(); each is made when it is asked for. The views
  // refer to the model and to this object.
  NamedTensors merged_tensors(at::ScalarType dtype) const;
  // The same under the model's own names.
  NamedTensors own_merged_tensors(at::ScalarType dtype) const;

 private:
  class Source;
  class StreamedUnit;
  class Here;
  NamedTensors::value_type merged_tied_head(at::ScalarType dtype) const;
  nn::Lora* lora_of(const nn::Parameter& parameter) const;

  Model& model_;
  std::vector<nn::Module*> streamed_;  // those whose weights are read when they run
  std::map<const nn::Parameter*, std::shared_ptr<const Source>> sources_;
  std::map<const nn::Parameter*, nn::Linear*> layers_;
};

// The tensors that init_model would give the model, in the order of its parameters, each made when
// it is asked for. `model`, which has no values, and `config` outlive them.
NamedTensors init_tensors(CausalLM& model, const HfConfig& config, uint64_t seed,
                          at::ScalarType dtype);

template <class Model>
struct StreamedModel {
  std::unique_ptr<Model> model;
  std::unique_ptr<WeightStream> weights;
};
// Open a model as load_model and load_scalar_model do, with the adapter of a directory; adapter "":
// none.
StreamedModel<CausalLM> stream_model(const std::string& directory, const std::string& adapter,
                                     const Storage& storage);
StreamedModel<ScalarModel> stream_scalar_model(const std::string& directory,
                                               const std::string& adapter, const Storage& storage);
// The model of `directory` without an adapter, whose weights are merged when they are read: those
// of `weights`, which outlives it, in float32. `untied`: with a head of its own.
StreamedModel<CausalLM> stream_merged(const std::string& directory, const WeightStream& weights,
                                      bool untied);

}  // namespace temper::models
