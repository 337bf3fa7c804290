// Config keys that one optimizer alone has: the section `optimizer.NAME`.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "temper/base/config/config.h"

namespace temper::train {

class OptimizerKeys {
 public:
  virtual ~OptimizerKeys() = default;
  virtual void fields(Fields& f) = 0;
  virtual std::unique_ptr<OptimizerKeys> clone() const = 0;
};

// A section's keys of every optimizer that has its own, with their defaults at first. Copies are
// deep.
class OwnOptimizerKeys {
 public:
  OwnOptimizerKeys();
  OwnOptimizerKeys(const OwnOptimizerKeys& other);
  OwnOptimizerKeys& operator=(const OwnOptimizerKeys& other);

  void fields(Fields& f);
  template <class Keys>
  const Keys& of(const std::string& name) const {
    return dynamic_cast<const Keys&>(*by_name_.at(name));
  }

 private:
  std::map<std::string, std::unique_ptr<OptimizerKeys>> by_name_;
};

}  // namespace temper::train
