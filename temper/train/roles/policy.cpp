#include "temper/train/roles/policy.h"

#include <ATen/ATen.h>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/config_values.h"
#include "temper/models/files/checkpoint_format.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/hf_config.h"
#include "temper/models/files/load.h"
#include "temper/models/files/new_tokens.h"
#include "temper/models/files/untied_head.h"
#include "temper/models/gguf/gguf_files.h"
#include "temper/models/vision/encoder.h"
#include "temper/models/vision/load.h"
#include "temper/text/chat/template_date.h"
#include "temper/train/joint/joint_runs.h"
#include "temper/train/roles/trained_parts.h"

namespace temper::train {
namespace {

// The formats in which the base's files hold quantized weights, whatever its config.json says.
std::set<ops::WeightFormat> held_by_base(const std::string& path) {
  try {
    return models::held_formats(path);
  } catch (const Error&) {
    return {};  // what reads the weights says what is wrong with them
  }
}

// What model.storage asks of a frozen base, or adapter.method: qlora where it says nothing.
std::optional<models::StorageName> asked_storage(const RunConfig& config,
                                                 const std::set<ops::WeightFormat>& held) {
  using models::StorageName;
  const bool qlora = config.adapter.method == models::AdapterSection::Method::kQlora;
  const std::optional<StorageName> asked = config.model.storage;
  if (!asked) return qlora && held.empty() ? StorageName::kNf4 : asked;
  const std::optional<ops::WeightFormat> format = models::format_of(*asked);
  const std::string& path = config.model.path;
  if (!format) {
    config.require(!qlora || !held.empty(), "model.storage",
                   "file keeps weights as their files "
                   "hold them, and ",
                   path, " holds none quantized; choose nf4");
    return asked;
  }
  const ops::FormatRow& row = ops::row_of(*format);
  config.require(!qlora || row.bits == 4, "model.storage",
                 "adapter.method: qlora keeps the weights in " + models::four_bit_names() +
                     ", or as their files hold them (file); for others choose lora");
  config.require(!row.of_files || held.contains(*format), "model.storage", row.name,
                 " keeps weights as their files hold them, and ", path, " holds none in ",
                 row.title, "; choose nf4, int8 or bfloat16");
  return asked;
}

}  // namespace

// The format of the base's weights: those that neither train nor were asked for in float32 take
// less.
models::Storage policy_storage(const RunConfig& config) {
  const bool frozen = config.has_adapter();
  const std::string& path = config.model.path;
  const models::HfConfig hf = models::HfConfig::load(path);
  models::check_quantization(hf.json(), path + "/config.json");
  const std::set<ops::WeightFormat> held = held_by_base(path);
  const bool quantized = hf.has("quantization_config") || !held.empty();
  const std::optional<models::StorageName> asked = config.model.storage;
  config.require(frozen || !quantized || asked, "model.path",
                 "its weights are quantized, and such weights are frozen: choose adapter.method: "
                 "lora or qlora, or model.storage: float32 or bfloat16, which trains what they "
                 "stand for");
  const bool trained = asked == models::StorageName::kFloat32 ||
                       (quantized && asked == models::StorageName::kBFloat16);
  config.require(!asked || frozen || trained, "model.storage",
                 "weights that train are kept in float32; other formats are of frozen weights: "
                 "choose adapter.method: lora or qlora");
  const bool bfloat16 = config.model.dtype == models::ModelSection::Dtype::kBfloat16 ||
                        (!frozen && asked == models::StorageName::kBFloat16);
  models::Storage storage = models::frozen_storage(
      bfloat16, frozen ? asked_storage(config, held) : models::StorageName::kFloat32);
  storage.arithmetic = config.model.arithmetic;
  storage.cache_dtype = config.cache_dtype();
  using Vision = models::ModelSection::Vision;
  config.require(!config.model.trains_tower() || models::vision_family_of(path), "model.vision",
                 path, " has no vision tower that could train; expected frozen or none");
  storage.whole = storage.sees = config.model.vision != Vision::kNone;
  config.require(
      models::uses_arithmetic(storage, held), "model.arithmetic",
      storage.arithmetic == ops::Arithmetic::kInteger
          ? "integer is for frozen quantized weights (not FP8), and there are none: choose "
            "model.storage: int8 or nf4 with adapter.method: lora or qlora"
          : "fast and amx are for bfloat16 weights (model.dtype or model.storage), amx also for "
            "quantized ones; float32 weights need exact");
  return storage;
}

namespace {

models::Storage storage_of(const RunConfig& config, const dist::Mesh& mesh) {
  models::Storage storage = policy_storage(config);
  storage.tensor = mesh.tensor;
  storage.by_expert = mesh.by_expert;
  storage.token_ranks = mesh.context;
  return storage;
}

// Adds the adapter, chooses what trains, and loads tokenizer and template.
template <class Trained>
void prepare(Trained& policy, RunConfig& config, const dist::Mesh& mesh) {
  const std::string& directory = config.model.path;
  policy.tokenizer = Tokenizer::load_directory(directory);
  policy.lora = choose_trained(*policy.model, config, policy.tokenizer.get());
  // Constants too, where nothing is frozen: as long as a number of a file is mapped, what was read
  // of the file stays in memory.
  const bool leaves_file = config.train.freeze.empty();
  if (!policy.lora && mesh.fsdp->size() == 1)
    policy.model->each_parameter([&](const std::string&, nn::Parameter& p) {
      if (p.trainable() || (leaves_file && !ops::is_quantized(p.format()))) p.own();
    });
  ChatOptions options = config.data.chat_options();
  options.adapter = config.adapter.path.value_or("");
  if (policy.tokenizer) policy.chat = ChatTemplate::find(directory, options);
  // Written to the resolved config, which records the date that the rows were rendered with.
  if (policy.chat && policy.chat->writes_date())
    config.data.template_date = to_date_text(policy.chat->date());
}

template <class Trained>
void save_as(const Trained& policy, const std::string& base, const std::string& directory,
             models::HeadKind head) {
  // Weights that were written to while they were mapped are not what was trained.
  policy.model->files.check_unchanged();
  const bool writes = !directory.empty();
  if (policy.lora) {
    models::save_adapter(*policy.model, *policy.lora, base, directory);
    if (writes) models::copy_tokenizer_files(base, directory);
  } else {
    const bool whole = !policy.model->whole.empty();
    if (writes) models::write_model_files({base, base, whole}, directory, at::kFloat, head);
    models::save_weights(*policy.model, directory, at::kFloat);
  }
  // The model was trained with this template and its variables, so they are part of it.
  if (writes && policy.chat) policy.chat->save(directory);
}

}  // namespace

void find_model(RunConfig& config) {
  config.model.path = models::resolve_model_path(config.model.path);
  if (config.model.tokenizer)
    models::use_tokenizer(config.model.path, *config.model.tokenizer,
                          config.where("model.tokenizer"));
  config.model.new_tokens = new_tokens_of(config);
  models::use_new_tokens(config.model.path, config.model.new_tokens,
                         config.where("model.new_tokens"));
}

namespace {

void use_model(RunConfig& config) {
  models::use_device(config.device_choice());
  find_model(config);
  for (std::string& warning : model_warnings(config.model.path))
    config.warnings.push_back(std::move(warning));
}

}  // namespace

std::vector<std::string> model_warnings(const std::string& directory) {
  const models::HfConfig config = models::HfConfig::load(directory);  // first, for its errors
  std::vector<std::string> warnings{models::untied_head(directory),
                                    models::unapplied_dropout(config)};
  std::erase(warnings, "");
  return warnings;
}

Policy load_policy(RunConfig& config, const dist::Mesh& mesh) {
  use_model(config);
  Policy policy;
  policy.tensor = mesh.tensor;
  policy.by_expert = mesh.by_expert;
  const models::Storage storage = storage_of(config, mesh);
  JointRun* const joint = JointRun::current();
  policy.model = joint ? joint->load(config.model.path, storage)
                       : models::load_model(config.model.path, storage);
  prepare(policy, config, mesh);
  if (joint && policy.lora) joint->share_passes(*policy.model, *policy.lora);
  return policy;
}

ScalarPolicy load_scalar_policy(RunConfig& config, const dist::Mesh& mesh) {
  use_model(config);
  ScalarPolicy policy;
  const models::Storage storage = storage_of(config, mesh);
  const auto seed = static_cast<uint64_t>(config.seed);
  JointRun* const joint = JointRun::current();
  policy.model = joint ? joint->load_scalar(config.model.path, storage, seed)
                       : models::load_scalar_model(config.model.path, storage, seed);
  prepare(policy, config, mesh);
  if (joint && policy.lora) joint->share_passes(*policy.model, *policy.lora);
  return policy;
}

std::shared_ptr<const data::ImageFormat> images_of(const RunConfig& config,
                                                   const Tokenizer* tokenizer) {
  if (config.model.vision == models::ModelSection::Vision::kNone ||
      !models::vision_family_of(config.model.path))
    return nullptr;
  return data::find_image_format(config.model.path, tokenizer, config.data.image_options());
}

void save_policy(const Policy& policy, const std::string& base, const std::string& directory) {
  save_as(policy, base, directory, models::HeadKind::kVocabulary);
}

void save_policy(const ScalarPolicy& policy, const std::string& base,
                 const std::string& directory) {
  save_as(policy, base, directory, models::HeadKind::kScalar);
}

}  // namespace temper::train
