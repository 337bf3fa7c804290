// The section `optimizer`: its keys, the defaults that depend on the optimizer, and keys that have
// no effect.
#include "temper/train/config.h"
#include "temper/train/optimizers/update_rule.h"

namespace temper {

template <>
inline constexpr std::array enum_names<train::OptimizerSection::Schedule> = {
    "cosine", "linear", "constant", "polynomial", "inverse_sqrt", "wsd"};
template <>
inline constexpr std::array enum_names<train::OptimizerSection::DecayShape> = {"cosine", "linear",
                                                                               "sqrt"};

}  // namespace temper

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

void ParameterGroup::fields(Fields& f) {
  f.add("match", match, "names of parameters; * matches any characters", required());
  f.add("learning_rate", learning_rate, "their learning rate; null: the optimizer's", at_least(0));
  f.add("weight_decay", weight_decay,
        "their weight decay, applied to vectors too; null: the optimizer's", at_least(0));
}

namespace {

// "momentum (muon: 0.95, sgd: 0.0)": the optimizers that read a key, and their defaults.
template <class Value>
std::string with_defaults(std::string help, std::optional<Value> OptimizerKind::* key) {
  std::string defaults;
  for (const auto& kind : optimizers().list()) {
    std::optional<Value> value = kind.value.*key;
    if (!value) continue;
    defaults += str(defaults.empty() ? " (" : ", ", kind.name, ": ",
                    on_one_line(config_detail::Traits<Value>::write(*value)));
  }
  return help + defaults + ")";
}

}  // namespace

void OptimizerSection::fields(Fields& f) {
  f.add("name", name, "the optimizer (temper list optimizers)", one_of(optimizers().names()));
  f.add("learning_rate", learning_rate, "learning rate after the warm-up", at_least(0));
  f.add("betas", betas,
        with_defaults("decay rates of the first and second moment, or of Lion's averages",
                      &OptimizerKind::betas),
        fraction());
  f.add("eps", eps,
        with_defaults("added to the square root of the second moment, for numerical stability",
                      &OptimizerKind::eps),
        above(0));
  f.add("momentum", momentum, with_defaults("momentum", &OptimizerKind::momentum), fraction());
  f.add("weight_decay", weight_decay,
        "decoupled weight decay, of tensors with two or more dimensions only", at_least(0));
  f.add("max_grad_norm", max_grad_norm, "global gradient norm to clip to; 0: no clipping",
        at_least(0));
  f.add("schedule", schedule, "learning-rate schedule after the warm-up");
  f.add("warmup_steps", warmup_steps, "steps of linear warm-up from 0 to learning_rate",
        at_least(0));
  f.add("warmup_ratio", warmup_ratio, "warmup_steps as a fraction of the run's steps",
        between(0, 1));
  f.add("final_lr_fraction", final_lr_fraction,
        "final learning rate as a fraction of learning_rate; for inverse_sqrt, its minimum",
        between(0, 1));
  f.add("power", power, "exponent of the polynomial schedule", above(0));
  f.add("decay_steps", decay_steps,
        "wsd: number of decay steps at the end of the run; null: a tenth of the run", at_least(1));
  f.add("decay_shape", decay_shape, "wsd: shape of the decay; sqrt: 1 - sqrt(progress)");
  own.fields(f);
  f.add("groups", groups,
        "parameters with their own learning rate or weight decay; the first match applies");
}

// Defaults that depend on the optimizer, and keys that have no effect.
void RunConfig::complete_optimizer() {
  OptimizerSection& o = optimizer;
  OptimizerSection standard;
  const OptimizerKind& kind = optimizers().find(o.name, where("optimizer.name"));
  // Recorded also where the value stays the standard one: with another optimizer it changes.
  const auto follow = [this](const char* key, auto& value, const auto& before, const auto& own) {
    if (value != before || was_set(str("optimizer.", key))) return;
    if (own) value = *own;
    using Value = std::decay_t<decltype(value)>;
    defaulted[str("optimizer.", key)] = on_one_line(config_detail::Traits<Value>::write(value));
  };
  follow("betas", o.betas, standard.betas, kind.betas);
  follow("eps", o.eps, standard.eps, kind.eps);
  follow("momentum", o.momentum, standard.momentum, kind.momentum);
  // A resolved config has every key: one with its default says nothing.
  const auto idle = [this](bool read, bool is_default, const std::string& key,
                           const std::string& by) {
    if (!read && !is_default)
      warnings.push_back(str(where(str("optimizer.", key)), " has no effect with optimizer.", by));
  };
  const std::string name = "name: " + o.name;
  idle(kind.betas.has_value(), o.betas == standard.betas, "betas", name);
  idle(kind.eps.has_value(), o.eps == standard.eps, "eps", name);
  const std::vector<Field> own = Fields::of(o.own), untouched = Fields::of(standard.own);
  for (size_t i = 0; i < own.size(); ++i)
    idle(own[i].name == o.name, on_one_line(own[i].write()) == on_one_line(untouched[i].write()),
         own[i].name, name);
  using Schedule = OptimizerSection::Schedule;
  const std::string schedule =
      str("schedule: ", enum_names<Schedule>[static_cast<size_t>(o.schedule)]);
  const bool wsd = o.schedule == Schedule::kWsd;
  idle(o.schedule == Schedule::kPolynomial, o.power == standard.power, "power", schedule);
  idle(wsd, !o.decay_steps, "decay_steps", schedule);
  idle(wsd, o.decay_shape == standard.decay_shape, "decay_shape", schedule);
  if (train.max_steps && o.warmup_steps > *train.max_steps) {
    warnings.push_back(str(where("optimizer.warmup_steps"), ": found ", o.warmup_steps,
                           ", more than the ", *train.max_steps,
                           " steps of train.max_steps: the whole run warms up"));
    o.warmup_steps = *train.max_steps;
  }
}

}  // namespace temper::train
