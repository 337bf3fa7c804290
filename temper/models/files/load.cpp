#include "temper/models/files/load.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/image/processor.h"
#include "temper/io/finite_values.h"
#include "temper/models/files/checkpoint_format.h"
#include "temper/models/files/checkpoint_tensors.h"
#include "temper/models/files/new_tokens.h"
#include "temper/models/gguf/gguf_parameters.h"
#include "temper/models/split.h"
#include "temper/models/vision/load.h"
#include "temper/models/weight_cache.h"
#include "temper/ops/backend.h"

namespace temper::models {
namespace {
// Tensors of a checkpoint that no model has as parameters: tables that are computed, a tied head's
// second copy, which is not quantized, and the zeros that AutoGPTQ writes for biases that layers do
// not have.
bool ignorable(const std::string& name, const TensorView& view) {
  const bool zeros = name.ends_with(".bias") && view.data && view.shape.size() == 1 &&
                     std::all_of(view.data, view.data + view.num_bytes,
                                 [](std::byte byte) { return byte == std::byte{0}; });
  return zeros || name.ends_with("rotary_emb.inv_freq") ||
         (name == "lm_head.weight" && !coded_matrix(view));
}

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < 5; ++i) out += (i ? ", " : "") + names[i];
  if (names.size() > 5) out += temper::str(" and ", names.size() - 5, " more");
  return out;
}

}  // namespace

CheckpointTensors open_checkpoint(const std::string& directory) {
  CheckpointTensors checkpoint{directory, HfConfig::load(directory), {}, {}};
  const Family& family = family_of(checkpoint.config);
  if (is_gguf_file(directory)) {
    const GgufFile file = read_gguf_model(directory, &checkpoint.files);
    checkpoint.tensors = gguf_parameters(file, checkpoint.config, directory);
  } else {
    check_quantization(checkpoint.config.json(), directory + "/config.json");
    checkpoint.tensors = read_weights(directory, &checkpoint.files);
    open_formats(checkpoint.tensors, checkpoint.config, directory);
    if (family.sanitize) family.sanitize(checkpoint.tensors, checkpoint.config);
  }
  add_new_rows(checkpoint);
  return checkpoint;
}

bool keeps_codes(const nn::Parameter& parameter, const TensorView& view, const Storage& storage) {
  const CodedMatrix* matrix = coded_matrix(view);
  if (!matrix || parameter.is_elsewhere() || !parameter.takes_codes()) return false;
  if (storage.file) return true;
  const ops::WeightFormat format = matrix->format();
  return format == (ops::row_of(format).of_files ? storage.blocks : parameter.format());
}

void set_from_view(nn::Parameter& parameter, const TensorView& view, bool keep,
                   const std::string& place) {
  if (parameter.is_elsewhere())
    return parameter.set_value(at::empty(parameter.shape(), at::kFloat));
  if (keep) return parameter.set_codes(coded_matrix(view)->codes(parameter.device()));
  if (view.make) return set_from_view(parameter, view.make(), false, place);
  const at::ScalarType kept =
      parameter.format() == ops::WeightFormat::kBFloat16 ? at::kBFloat16 : at::kFloat;
  const at::Tensor value = to_tensor(view, kept);
  const bool mapped = parameter.device().is_cpu() && !parameter.placement() &&
                      value.const_data_ptr() == static_cast<const void*>(view.data);
  try {
    parameter.set_value(parameter.placement() ? parameter.placement()->part(value) : value);
  } catch (const DataError& e) {
    throw DataError(temper::str(place, ": ", e.what()));
  }
  if (!mapped || ops::is_quantized(parameter.format())) give_back_pages(view);
}

void check_held(const CheckpointTensors& from, const Storage& storage) {
  if (!storage.blocks) return;
  const ops::FormatRow& row = ops::row_of(*storage.blocks);
  check<ConfigError>(!row.of_files || held_formats(from.tensors).contains(row.format),
                     from.directory, ": holds no weights in ", row.title, ", which the storage ",
                     row.name,
                     " (--storage, model.storage) keeps as they lie; choose nf4, int8 or bfloat16");
}

std::string shape_mismatch(const std::vector<int64_t>& found, const nn::Parameter& parameter) {
  return temper::str(at::IntArrayRef(found), ", expected ",
                     at::IntArrayRef(parameter.whole_shape()));
}

namespace {

// Gives parameters their tensors.
class Filling {
 public:
  Filling(CheckpointTensors& from, const Storage& storage, bool cache)
      : from_(from), storage_(storage) {
    check_held(from, storage);
    if (!cache || !storage.blocks || !ops::is_quantized(*storage.blocks)) return;
    // The cache's codes are as native kernels read them.
    if (&ops::backend_of(storage.device) != &ops::native_backend()) return;
    cache_.emplace(from.files, *storage.blocks);
    cached_ = cache_->read();
  }

  // Takes the tensor out of the checkpoint. Gives what is wrong with its shape, or "".
  std::string fill(nn::Parameter& parameter, const std::string& name) {
    TensorMap& tensors = from_.tensors;
    const TensorView view = std::move(tensors.at(name));
    tensors.erase(name);
    if (view.shape != parameter.whole_shape()) return shape_mismatch(view.shape, parameter);
    const bool keep = keeps_codes(parameter, view, storage_),
               quantized = keep || ops::is_quantized(parameter.format());
    const auto found = cached_.find(name);
    if (quantized && found != cached_.end() && found->second->rows == parameter.shape()[0] &&
        found->second->width == parameter.shape()[1]) {
      parameter.set_codes(found->second);
      return "";
    }
    set_from_view(parameter, view, keep, temper::str(from_.directory, ": `", name, "`"));
    if (quantized) made_[name] = parameter.stored().quantized;
    return "";
  }

  // After the last one: the next start finds what was quantized here.
  void keep() {
    if (!cache_ || made_.empty()) return;
    made_.merge(cached_);
    cache_->write(made_);
  }

 private:
  CheckpointTensors& from_;
  const Storage& storage_;
  std::optional<WeightCache> cache_;
  QuantizedWeights cached_, made_;
};

}  // namespace

void match_tensors(nn::Module& model, CheckpointTensors& from, const std::string& optional,
                   const std::function<std::string(nn::Parameter&, const std::string&)>& take,
                   const std::function<void(nn::Parameter&)>& absent) {
  TensorMap& weights = from.tensors;
  std::vector<std::string> missing, wrong, left_over;
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    std::string of = name;
    if (!weights.contains(of) && name.starts_with("model."))
      of = name.substr(6);  // a body saved without its head
    if (!weights.contains(of) && name == optional) return absent(parameter);
    if (!weights.contains(of)) return missing.push_back(name);
    const std::string problem = take(parameter, of);
    if (!problem.empty()) wrong.push_back(name + " is " + problem);
  });
  for (const auto& [name, view] : weights)
    // A scalar model has no use for the head of a language model, however it is kept.
    if (!ignorable(name, view) && (optional.empty() || name != "lm_head.weight"))
      left_over.push_back(name);
  check<ConfigError>(missing.empty(), from.directory, ": the weights lack ", listed(missing),
                     left_over.empty() ? "" : "; not recognized: ", listed(left_over));
  check<ConfigError>(wrong.empty(), from.directory, ": wrong shapes: ", listed(wrong),
                     "; config.json does not belong to these weights");
  check<ConfigError>(left_over.empty(), from.directory, ": the weights hold tensors that a ",
                     from.config.model_type(), " does not have: ", listed(left_over));
}

namespace {

void fill(nn::Module& model, CheckpointTensors& from, Filling& filling, const std::string& optional,
          const std::function<void(nn::Parameter&)>& absent) {
  match_tensors(
      model, from, optional,
      [&](nn::Parameter& parameter, const std::string& name) {
        return filling.fill(parameter, name);
      },
      absent);
  filling.keep();
}

constexpr const char *kTensorKeys = "tensor parallelism (mesh.tensor, roles.tensor)",
                     *kExpertKey = "mesh.expert";

void check_not_quantized(const std::string& directory, const TensorMap& tensors,
                         const Storage& storage, const std::string& key) {
  const bool quantized = (storage.blocks && ops::is_quantized(*storage.blocks)) ||
                         (storage.file && !held_formats(tensors).empty());
  check<ConfigError>(
      !quantized, key, ": quantized weights (", directory,
      ") cannot be divided over ranks; expected 1, or model.storage: float32 or bfloat16");
}

// So many ranks that compute the same rows, of which none exists yet.
class FutureGroup : public dist::Group {
 public:
  explicit FutureGroup(int size) : size_(size) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  void all_reduce_sum(at::Tensor&) override { throw RunError("the ranks are not there yet"); }
  void barrier() override {}

 private:
  int size_;
};

void split_model(nn::Module& model, const CheckpointTensors& from, const Storage& storage) {
  if (!storage.tensor || storage.tensor->size() == 1) return;
  if (storage.by_expert) {  // a model without experts stays whole
    split_experts(model, storage.tensor, kExpertKey, from.directory + "/config.json");
    return;
  }
  check_not_quantized(from.directory, from.tensors, storage, kTensorKeys);
  split(model, storage.tensor, kTensorKeys, from.directory + "/config.json");
}

}  // namespace

void check_divisible(const std::string& directory, const Storage& storage, int ranks,
                     const std::string& key, bool may_be_whole) {
  if (ranks == 1) return;
  const HfConfig config = HfConfig::load(directory);
  const std::unique_ptr<CausalLM> model = make_model(config);
  const auto group = std::make_shared<FutureGroup>(ranks);
  const std::string where = directory + "/config.json";
  if (storage.by_expert) {
    const bool any = split_experts(*model, group, key, where);
    check<ConfigError>(any || may_be_whole, key, ": models of type ", config.model_type(),
                       " have no experts (", where, "); expected 1");
    return;
  }
  check_not_quantized(directory, open_checkpoint(directory).tensors, storage, key);
  split(*model, group, key, where);
}

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
  if (is_file(generation)) {
    const Json json = read_json_file(generation, size_t{1} << 20);
    if (json.is_object()) add(json);
  }
  add(config.json());
  return ids;
}

StoredWeights check_weights(const std::string& directory, nn::Module& model,
                            const std::string& optional) {
  CheckpointTensors checkpoint = open_checkpoint(directory);
  StoredWeights found;
  std::vector<std::string> not_finite;
  for (const auto& [name, view] : checkpoint.tensors) {
    if (const auto at = find_not_finite(view.make ? view.make() : view))
      not_finite.push_back(temper::str("`", name, "` (value ", *at, ")"));
    ++found.tensors;
  }
  for (const MappedFiles::File& file : checkpoint.files.files()) found.bytes += file.size;
  check<ConfigError>(not_finite.empty(), directory, ": NaN or infinity in ", listed(not_finite),
                     ": every loss would be NaN or infinite, too; expected finite weights, for "
                     "instance those of an earlier checkpoint");
  const auto compare = [&](nn::Parameter& parameter, const std::string& name) -> std::string {
    const std::vector<int64_t> shape = checkpoint.tensors.at(name).shape;
    checkpoint.tensors.erase(name);
    return shape == parameter.whole_shape() ? "" : shape_mismatch(shape, parameter);
  };
  match_tensors(model, checkpoint, optional, compare, [](nn::Parameter&) {});
  return found;
}

namespace {

ImageMarks image_marks_of(const std::string& directory) {
  ImageMarks marks;
  if (const auto id = image_token_of(read_json_file(directory + "/config.json", size_t{1} << 26)))
    marks.ids.push_back(*id);
  try {
    const ImageTokens tokens = ImageProcessor::open(directory)->tokens();
    marks.texts = {tokens.image, tokens.placeholder, tokens.begin, tokens.end};
    std::erase(marks.texts, "");
  } catch (const Error&) {  // what reads images says what is wrong with its settings
  }
  return marks;
}

}  // namespace

std::unique_ptr<CausalLM> load_model(const std::string& directory, const Storage& storage,
                                     bool cache) {
  CheckpointTensors checkpoint = open_checkpoint(directory);
  std::unique_ptr<CausalLM> model = make_model(checkpoint.config);
  set_storage(*model, storage);
  split_model(*model, checkpoint, storage);
  Filling filling(checkpoint, storage, cache);
  fill(*model, checkpoint, filling, "", {});
  model->eos_token_ids = eos_ids(directory, checkpoint.config);
  model->files = std::move(checkpoint.files);
  model->token_ranks = storage.token_ranks;
  give_vision(*model, directory, storage);
  if (model->vision) model->image_marks = image_marks_of(directory);
  return model;
}

void check_one_label(const CheckpointTensors& checkpoint) {
  const auto found = checkpoint.tensors.find(kScoreWeight);
  if (found == checkpoint.tensors.end() || found->second.shape.size() != 2) return;
  check<ConfigError>(found->second.shape[0] == 1, checkpoint.directory, ": a classifier of ",
                     found->second.shape[0], " labels; a reward model or critic has one");
}

std::unique_ptr<ScalarModel> load_scalar_model(const std::string& directory, const Storage& storage,
                                               uint64_t seed) {
  const std::string score = kScoreWeight;
  CheckpointTensors checkpoint = open_checkpoint(directory);
  auto model = std::make_unique<ScalarModel>(make_body(checkpoint.config));
  set_storage(*model, storage);
  split_model(*model, checkpoint, storage);
  check_one_label(checkpoint);
  Filling filling(checkpoint, storage, true);
  fill(*model, checkpoint, filling, score, [&](nn::Parameter& parameter) {
    parameter.set_value(initial_value(parameter, score, seed));
  });
  model->files = std::move(checkpoint.files);
  model->token_ranks = storage.token_ranks;
  give_vision(*model, directory, storage);
  return model;
}

}  // namespace temper::models
