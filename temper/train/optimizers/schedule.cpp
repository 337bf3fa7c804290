#include "temper/train/optimizers/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "temper/base/exact_math.h"

namespace temper::train {
namespace {

using Schedule = OptimizerSection::Schedule;
using DecayShape = OptimizerSection::DecayShape;

// steps; time scale of inverse_sqrt without a warm-up, as in transformers
constexpr double kTimescale = 10000;

double half_cosine(double progress) { return 0.5 * (1 + exact::cos(std::numbers::pi * progress)); }

// The share of the way from learning_rate to its final value that is left `decayed` steps into the
// decay.
double left_of_decay(const OptimizerSection& c, double decayed, double decay_steps) {
  const double progress = decayed / std::max(1.0, decay_steps);
  if (c.decay_shape == DecayShape::kLinear) return 1 - progress;
  if (c.decay_shape == DecayShape::kSqrt) return 1 - std::sqrt(progress);
  return half_cosine(progress);
}

// 1 until the last steps, which decay: Hu et al., arXiv 2404.06395.
double left_of_wsd(const OptimizerSection& c, double done, double warmup, double steps) {
  const double after_warmup = std::max(0.0, steps - warmup);
  const double wanted =
      c.decay_steps ? static_cast<double>(*c.decay_steps) : std::ceil(0.1 * steps);
  const double decay = std::min(wanted, after_warmup), begin = steps - decay;
  return done < begin ? 1 : left_of_decay(c, done - begin, decay);
}

}  // namespace

int64_t warmup_steps(const OptimizerSection& c, int64_t steps) {
  if (c.warmup_ratio == 0) return c.warmup_steps;
  return static_cast<int64_t>(std::ceil(static_cast<double>(steps) * c.warmup_ratio));
}

double learning_rate(const OptimizerSection& c, int64_t step, int64_t steps) {
  const double done = static_cast<double>(step - 1);
  const double warmup = static_cast<double>(warmup_steps(c, steps));
  if (done < warmup) return c.learning_rate * done / warmup;
  if (c.schedule == Schedule::kConstant) return c.learning_rate;
  if (c.schedule == Schedule::kInverseSqrt) {
    const double timescale = warmup > 0 ? warmup : kTimescale;
    const double share = 1 / std::sqrt((done + timescale - warmup) / timescale);
    return c.learning_rate * std::max(share, c.final_lr_fraction);
  }
  const double progress = (done - warmup) / std::max(1.0, static_cast<double>(steps) - warmup);
  double left = 0;
  if (c.schedule == Schedule::kWsd)
    left = left_of_wsd(c, done, warmup, static_cast<double>(steps));
  else if (c.schedule == Schedule::kPolynomial)
    left = exact::pow(1 - progress, c.power);
  else if (c.schedule == Schedule::kLinear)
    left = 1 - progress;
  else
    left = half_cosine(progress);
  return c.learning_rate * (c.final_lr_fraction + (1 - c.final_lr_fraction) * left);
}

}  // namespace temper::train
