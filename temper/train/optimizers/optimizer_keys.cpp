#include "temper/train/optimizers/optimizer_keys.h"

#include "temper/train/optimizers/update_rule.h"

namespace temper::train {

OwnOptimizerKeys::OwnOptimizerKeys() {
  for (const auto& kind : optimizers().list())
    if (kind.value.own_keys) by_name_[kind.name] = kind.value.own_keys();
}

OwnOptimizerKeys::OwnOptimizerKeys(const OwnOptimizerKeys& other) {
  for (const auto& [name, keys] : other.by_name_) by_name_[name] = keys->clone();
}

OwnOptimizerKeys& OwnOptimizerKeys::operator=(const OwnOptimizerKeys& other) {
  OwnOptimizerKeys copy(other);
  by_name_.swap(copy.by_name_);
  return *this;
}

void OwnOptimizerKeys::fields(Fields& f) {
  for (auto& [name, keys] : by_name_) f.add(name, *keys, "keys of " + name + " alone");
}

}  // namespace temper::train
