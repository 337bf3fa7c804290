// Adapters that train rows of the embeddings: PEFT's trainable_token_indices.
#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter_config.h"
#include "temper/models/files/tensors.h"
#include "temper/ops/backend.h"

namespace temper::models {
namespace {

// The module of these rows.
WholeModule module_of(nn::Module& model, const TrainedTokens& tokens, const std::string& where) {
  std::string list;
  for (const WholeModule& m : whole_modules(model)) {
    if (m.path == tokens.module || last_part(m.path) == tokens.module) return m;
    list += (list.empty() ? "" : ", ") + last_part(m.path);
  }
  const bool head = last_part(tokens.module) == "lm_head" && is_tied(model);
  throw ConfigError(str(where, ": found `", tokens.module, "`, ",
                        head ? "whose weight is the embeddings' in this model; " : "", "expected ",
                        list));
}

// Whether PEFT takes an entry of a tied head for that of the embeddings, which says the same.
bool follows_embeddings(nn::Module& model, const std::vector<TrainedTokens>& all,
                        const TrainedTokens& one) {
  if (last_part(one.module) != "lm_head" || !is_tied(model)) return false;
  return std::ranges::any_of(all, [&](const TrainedTokens& t) {
    return last_part(t.module) == "embed_tokens" && t.ids == one.ids;
  });
}

// The order in which ids ascend.
std::vector<int64_t> ascending(const std::vector<int64_t>& ids) {
  std::vector<int64_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](int64_t i) { return ids[static_cast<size_t>(i)]; });
  return order;
}

bool adapts_weight(nn::Module& model, const nn::Parameter& weight) {
  return std::ranges::any_of(linear_layers(model), [&](const Target& t) {
    return &t.layer->weight == &weight && t.layer->lora();
  });
}

}  // namespace

bool trains_token_rows(nn::Module& model) {
  return std::ranges::any_of(whole_modules(model),
                             [](const WholeModule& m) { return m.versions->rows(); });
}

void add_token_rows(nn::Module& model, const std::vector<TrainedTokens>& tokens,
                    const std::string& where) {
  for (const TrainedTokens& t : tokens) {
    const WholeModule m = module_of(model, t, where);
    check<ConfigError>(!m.versions->rows(), where, ": ", last_part(m.path),
                       " is named twice; expected all of its tokens in one entry");
    check<ConfigError>(!m.versions->replaced(), where, ": ", last_part(m.path),
                       " trains whole (modules_to_save); expected one of the two to name it");
    check<ConfigError>(!adapts_weight(model, *m.weight), where, ": low-rank matrices of lm_head (",
                       "target_modules) are on the weight whose rows would train; leave one of the "
                       "two out");
    check<ConfigError>(!m.weight->placement(), where,
                       ": rows of embeddings that ranks divide do not train; set mesh.tensor: 1 "
                       "and mesh.fsdp: 1");
    const int64_t rows = m.weight->whole_shape()[0];
    for (size_t i = 0; i < t.ids.size(); ++i) {
      check<ConfigError>(t.ids[i] >= 0 && t.ids[i] < rows, where, ": token id ", t.ids[i],
                         " is outside the model's vocabulary of ", rows,
                         "; the adapter is for another model");
      check<ConfigError>(i == 0 || t.ids[i] != t.ids[i - 1], where, ": token id ", t.ids[i],
                         " is named twice");
    }
    m.versions->train_rows(*m.weight, m.weight->owner(), t.ids);
  }
}

std::vector<TrainedTokens> take_token_rows(TensorMap& tensors, nn::Module& model,
                                           const AdapterConfig& config,
                                           const std::string& directory) {
  const std::string where = directory + "/adapter_config.json: `trainable_token_indices`";
  std::vector<TrainedTokens> sorted;
  for (const TrainedTokens& t : config.token_rows) {
    if (follows_embeddings(model, config.token_rows, t)) continue;
    const WholeModule m = module_of(model, t, where);
    const std::vector<int64_t> order = ascending(t.ids);
    TrainedTokens own{t.module, {}};
    for (const int64_t i : order) own.ids.push_back(t.ids[static_cast<size_t>(i)]);
    add_token_rows(model, {own}, where);
    const auto found = tensors.find(rows_name(m));
    check<ConfigError>(found != tensors.end(), where, " names ", t.module,
                       ", but the adapter's weights have no ", rows_name(m));
    const std::vector<int64_t> shape{std::ssize(t.ids), m.weight->whole_shape()[1]};
    check<ConfigError>(found->second.shape == shape, directory, ": ", found->first, " is ",
                       at::IntArrayRef(found->second.shape), ", expected ", at::IntArrayRef(shape));
    const at::Tensor values = to_tensor(found->second, at::kFloat);
    m.versions->rows()->weight.set_whole_value(values.index_select(0, ops::indices(order, values)));
    tensors.erase(found);
    own.module = last_part(m.path);
    sorted.push_back(std::move(own));
  }
  std::ranges::sort(sorted, {}, &TrainedTokens::module);
  return sorted;
}

}  // namespace temper::models
