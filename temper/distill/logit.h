// The divergence of logit and on_policy.
#pragma once

#include "temper/distill/strategy.h"

namespace temper::distill {

class Logit : public Strategy {
 public:
  explicit Logit(const DistillSection& section);
  Comparison compare(const Reading& reading) override;
  double count(const train::ForwardPass& pass) const override;
  Places places(const train::ForwardPass& pass) const override;

 private:
  ops::DivergenceSpec spec_;
};

}  // namespace temper::distill
