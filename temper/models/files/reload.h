// Other weights for a model that is in use.
#pragma once

#include <string>

#include "temper/models/model.h"

namespace temper::models {

// Changes the weights of a model that was loaded from `base` as `storage` says. Nobody may be
// computing with it meanwhile.
class Reloader {
 public:
  Reloader(CausalLM& model, std::string base, const Storage& storage)
      : model_(model), base_(std::move(base)), storage_(storage) {}

  // From now on the model computes with what the directory holds: a model of the same shapes, then
  // without an adapter of its own, or a PEFT adapter on the base model, in place of the one that
  // there is. Adapters beside it (load_frozen_adapter) stay. All is read and checked before
  // anything changes. Throws ConfigError, DataError.
  void load(const std::string& directory);

 private:
  void load_whole(const std::string& directory);

  CausalLM& model_;
  const std::string base_;
  const Storage storage_;
  bool replaced_ = false;  // the base model's weights, by others
};

}  // namespace temper::models
