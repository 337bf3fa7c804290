#include "temper/models/load.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/io/weight_files.h"

namespace temper::models {
namespace {
namespace fs = std::filesystem;

// Tensors of a checkpoint that no model has as parameters: tables that are computed, and a tied
// head's second copy.
bool ignorable(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq") || name == "lm_head.weight";
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < 5; ++i) out += (i ? ", " : "") + names[i];
  if (names.size() > 5) out += temper::str(" and ", names.size() - 5, " more");
  return out;
}

struct Checkpoint {
  std::string directory;
  HfConfig config;
  TensorMap tensors;  // by the model's own names
  MappedFiles files;
};

Checkpoint open_checkpoint(const std::string& directory) {
  Checkpoint checkpoint{directory, HfConfig::load(directory), {}, {}};
  const Family& family = family_of(checkpoint.config);
  checkpoint.tensors = read_weights(directory, &checkpoint.files);
  if (family.sanitize) family.sanitize(checkpoint.tensors, checkpoint.config);
  return checkpoint;
}

// Gives every parameter its tensor. What is left without one, and `optional` holds, is called back.
void fill(nn::Module& model, Checkpoint& from, const std::string& optional,
          const std::function<void(nn::Parameter&)>& absent) {
  TensorMap& weights = from.tensors;
  std::vector<std::string> missing, wrong, left_over;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    auto it = weights.find(name);
    if (it == weights.end() && name.starts_with("model."))
      it = weights.find(name.substr(6));  // a body saved without its head
    if (it == weights.end() && name == optional) return absent(parameter);
    if (it == weights.end()) return missing.push_back(name);
    if (it->second.shape != parameter.shape())
      wrong.push_back(temper::str(name, " is ", at::IntArrayRef(it->second.shape), ", expected ",
                                  at::IntArrayRef(parameter.shape())));
    else
      parameter.set_value(to_tensor(it->second, parameter.bfloat16() ? at::kBFloat16 : at::kFloat));
    weights.erase(it);
  });
  for (const auto& [name, view] : weights)
    if (!ignorable(name)) left_over.push_back(name);
  check<ConfigError>(missing.empty(), from.directory, ": the weights lack ", listed(missing),
                     left_over.empty() ? "" : "; not recognised: ", listed(left_over));
  check<ConfigError>(wrong.empty(), from.directory, ": wrong shapes: ", listed(wrong),
                     "; config.json does not belong to these weights");
  check<ConfigError>(left_over.empty(), from.directory, ": the weights hold tensors that a ",
                     from.config.model_type(), " does not have: ", listed(left_over));
}

void check_dtype(at::ScalarType dtype) {
  check(dtype == at::kFloat || dtype == at::kBFloat16,
        "a model is loaded in float32 or bfloat16, not in ", dtype);
}

}  // namespace

std::vector<int32_t> eos_ids(const std::string& directory, const HfConfig& config) {
  std::vector<int32_t> ids;
  const auto add = [&](const Json& json) {
    const auto it = json.find("eos_token_id");
    if (it == json.end()) return;
    const auto one = [&](const Json& id) {
      if (id.is_number_integer() &&
          std::find(ids.begin(), ids.end(), id.get<int32_t>()) == ids.end())
        ids.push_back(id.get<int32_t>());
    };
    if (it->is_array())
      for (const Json& id : *it) one(id);
    else
      one(*it);
  };
  const std::string generation = directory + "/generation_config.json";
  if (fs::exists(generation)) {
    const Json json = read_json_file(generation, size_t{1} << 20);
    if (json.is_object()) add(json);
  }
  add(config.json());
  return ids;
}

std::unique_ptr<CausalLM> load_model(const std::string& directory, at::ScalarType dtype) {
  check_dtype(dtype);
  Checkpoint checkpoint = open_checkpoint(directory);
  std::unique_ptr<CausalLM> model = make_model(checkpoint.config);
  if (dtype == at::kBFloat16) compute_in_bfloat16(*model);
  fill(*model, checkpoint, "", {});
  model->eos_token_ids = eos_ids(directory, checkpoint.config);
  model->files = std::move(checkpoint.files);
  return model;
}

std::unique_ptr<ScalarModel> load_scalar_model(const std::string& directory, at::ScalarType dtype,
                                               uint64_t seed) {
  check_dtype(dtype);
  const std::string score = "score.weight";
  Checkpoint checkpoint = open_checkpoint(directory);
  auto model = std::make_unique<ScalarModel>(family_of(checkpoint.config).make(checkpoint.config));
  if (dtype == at::kBFloat16) compute_in_bfloat16(*model);
  const auto found = checkpoint.tensors.find(score);
  check<ConfigError>(found == checkpoint.tensors.end() || found->second.shape.size() != 2 ||
                         found->second.shape[0] == 1,
                     directory, ": a classifier of ",
                     found == checkpoint.tensors.end() ? 0 : found->second.shape[0],
                     " labels; a reward model or critic has one");
  fill(*model, checkpoint, score, [&](nn::Parameter& parameter) {
    const at::Tensor fresh = initial_value(parameter, score, seed);
    parameter.set_value(fresh.to(parameter.bfloat16() ? at::kBFloat16 : at::kFloat));
  });
  model->files = std::move(checkpoint.files);
  return model;
}

}  // namespace temper::models
