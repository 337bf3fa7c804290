#include "temper/models/adapters/adapter.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "temper/base/error.h"
#include "temper/base/random.h"
#include "temper/models/adapters/adapter_parts.h"
#include "temper/models/adapters/expert_adapters.h"
#include "temper/models/model.h"
#include "temper/models/vision/encoder.h"

namespace temper::models {

bool is_of_adapter(const std::string& name) {
  for (const char* part : {".lora_A.", ".lora_B.", ".lora_magnitude_vector.", ".token_adapter."})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

nn::Parameter* score_weight(nn::Module& model) {
  nn::Parameter* found = nullptr;
  model.visit({.linear = [&](const std::string& path, nn::Linear& layer) {
    if (path == kScorePath) found = &layer.weight;
  }});
  return found;
}

void train_score(nn::Module& model) {
  nn::Parameter* score = score_weight(model);
  if (!score) return;
  if (score->format() == ops::WeightFormat::kBFloat16)
    score->set_format(ops::WeightFormat::kRoundedBFloat16);
  if (score->has_value()) score->own();
  score->set_trainable(true);
}

void check_head_is_whole(bool divided) {
  check<ConfigError>(!divided,
                     "adapter.target_modules: lm_head takes no adapter where ranks divide the "
                     "vocabulary (mesh.tensor); leave lm_head out, or set mesh.tensor: 1");
}

namespace {

// What an adapter of the vocabulary's head cannot be.
void check_head(const Target& t, const LoraConfig& config) {
  if (!t.is(nn::Role::kHead)) return;
  check<ConfigError>(!config.dora,
                     "adapter.target_modules: an adapter of lm_head has no magnitudes; leave "
                     "use_dora or lm_head out");
  const nn::Placement* const placement = t.layer->weight.placement();
  check_head_is_whole(placement && placement->tensor);
}

bool is_of_mixture(const Target& t) { return t.is(nn::Role::kRouter) || t.is(nn::Role::kExpert); }

double scale_of(const LoraConfig& config) {
  const auto rank = static_cast<double>(config.rank);
  return config.alpha / (config.rank_stabilized ? std::sqrt(rank) : rank);
}

}  // namespace

void check_targets(const std::vector<Target>& targets, nn::Module& model,
                   const LoraConfig& config) {
  check_all_experts(model, targets);
  for (const Target& t : targets) {
    check<ConfigError>(
        !is_of_mixture(t) || !config.dora, "`", t.path, "`: DoRA is not supported on a mixture's ",
        t.is(nn::Role::kRouter) ? "router" : "experts", "; set adapter.use_dora: false, or leave ",
        t.is(nn::Role::kRouter) ? last_part(t.path) : "gate_up_proj and down_proj",
        " out of adapter.target_modules");
    check_head(t, config);
  }
}

void attach(const std::vector<Target>& targets, nn::Module& model, const LoraConfig& config,
            const std::vector<LoraSize>& sizes) {
  check_targets(targets, model, config);
  model.each_parameter([](const std::string&, nn::Parameter& p) { p.set_trainable(false); });
  const bool of_tower = std::ranges::any_of(targets, &Target::of_tower);
  if (of_tower) dynamic_cast<Model&>(model).vision->set_adapted(true);
  for (size_t i = 0; i < targets.size(); ++i) {
    const Target& t = targets[i];
    const LoraSize size = sizes.empty() ? LoraSize{config.rank, scale_of(config)} : sizes[i];
    t.layer->add_lora(size.rank, size.scale, is_of_mixture(t) ? 0 : config.dropout, i + 1,
                      config.dora);
  }
}

namespace {

void check_head_trains(const Target& head, const std::vector<WholeModule>& whole, double dropout) {
  check<ConfigError>(dropout == 0,
                     "adapter.dropout: an adapter of lm_head has no dropout; set it to 0, or leave "
                     "lm_head out of adapter.target_modules");
  for (const WholeModule& m : whole)
    check<ConfigError>(m.weight != &head.layer->weight,
                       "adapter.modules_to_save: the weight of lm_head trains whole there; leave "
                       "lm_head out of adapter.target_modules or of adapter.modules_to_save");
}

// PEFT: kaiming_uniform(a = sqrt 5), that is uniform in +-1 / sqrt(in).
at::Tensor initial_a(const nn::Linear& layer, const nn::Lora& lora, uint64_t seed) {
  at::Tensor a = at::empty(lora.lora_A.weight.whole_shape(), at::kFloat);
  const RandomStream stream(seed, RandomPurpose::kInit, lora.key, 1);
  const float bound = 1.0f / std::sqrt(static_cast<float>(layer.in()));
  for (int64_t i = 0; i < a.numel(); ++i)
    a.mutable_data_ptr<float>()[i] = bound * (2 * stream.uniform(static_cast<uint64_t>(i)) - 1);
  return a;
}

}  // namespace

int64_t LoraConfig::largest_rank() const {
  int64_t largest = rank;
  for (const LayerPattern& p : rank_pattern)
    largest = std::max(largest, static_cast<int64_t>(p.value));
  return largest;
}

void check_fresh(const std::vector<Target>& targets, const std::vector<WholeModule>& whole,
                 const LoraConfig& config) {
  for (const Target& t : targets) {
    check<ConfigError>(!is_of_mixture(t) || config.dropout == 0, "`", t.path,
                       "`: dropout is not supported on a mixture's ",
                       t.is(nn::Role::kRouter) ? "router" : "experts",
                       "; set adapter.dropout: 0, or leave ",
                       t.is(nn::Role::kRouter) ? last_part(t.path) : "gate_up_proj and down_proj",
                       " out of adapter.target_modules");
    check<ConfigError>(!t.of_tower || config.dropout == 0, "`", t.path,
                       "`: dropout is not supported on a vision tower's layers; set "
                       "adapter.dropout: 0, or leave ",
                       last_part(t.path), " out of adapter.target_modules");
    if (t.is(nn::Role::kHead)) check_head_trains(t, whole, config.dropout);
  }
}

void attach_lora(nn::Module& model, const LoraConfig& config) {
  const std::vector<Target> targets = choose_targets(model, config.target_modules);
  const std::vector<WholeModule> whole = choose_whole(model, config.modules_to_save);
  check_fresh(targets, whole, config);
  attach(targets, model, config, fresh_sizes(targets, config));
  for (const Target& t : targets) {
    nn::Lora& lora = *t.layer->lora();
    lora.lora_A.weight.set_trainable(true);
    lora.lora_B.weight.set_trainable(true);
    if (lora.lora_magnitude_vector) lora.lora_magnitude_vector->weight.set_trainable(true);
  }
  for (const WholeModule& m : whole) m.versions->replace(*m.weight);
  add_token_rows(model, config.trained_tokens, "adapter.train_tokens");
  train_score(model);
}

void init_lora(nn::Module& model, uint64_t seed) {
  for (const Target& t : linear_layers(model)) {
    if (!t.layer->lora()) continue;
    nn::Lora& lora = *t.layer->lora();
    lora.lora_A.weight.set_whole_value(initial_a(*t.layer, lora, seed));
    lora.lora_B.weight.set_value(at::zeros(lora.lora_B.weight.shape(), at::kFloat));
    if (lora.lora_magnitude_vector)
      lora.lora_magnitude_vector->weight.set_value(lora.row_norms(t.layer->weight).clone());
  }
}

void add_lora(nn::Module& model, const LoraConfig& config, uint64_t seed) {
  attach_lora(model, config);
  init_lora(model, seed);
}

void remove_adapter(nn::Module& model) {
  for (const Target& t : linear_layers(model)) t.layer->remove_lora();
  for (const WholeModule& m : whole_modules(model)) m.versions->restore(*m.weight);
}

bool adapts_head(nn::Module& model) {
  const std::vector<Target> layers = linear_layers(model);
  return std::any_of(layers.begin(), layers.end(),
                     [](const Target& t) { return t.is(nn::Role::kHead) && t.layer->lora(); });
}

bool adapts_tied_head(nn::Module& model) {
  bool adapts = false;
  model.visit({.tied_head = [&](const std::string&, nn::TiedHead& head) {
    adapts = head.lora() != nullptr;
  }});
  return adapts;
}

bool adapts_mixture(nn::Module& model) {
  const std::vector<Target> layers = linear_layers(model);
  return std::any_of(layers.begin(), layers.end(),
                     [](const Target& t) { return is_of_mixture(t) && t.layer->lora(); });
}

void merge_adapters(nn::Module& model) {
  for (const Target& t : linear_layers(model)) t.layer->merge_lora();
  for (const WholeModule& m : whole_modules(model)) m.versions->merge();
}

}  // namespace temper::models
