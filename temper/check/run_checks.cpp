#include "temper/check/run_checks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/check/product_speed.h"
#include "temper/check/rollout_check.h"
#include "temper/check/text.h"
#include "temper/dist/environment.h"
#include "temper/generate/engine.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_parts.h"
#include "temper/models/device.h"
#include "temper/models/files/checkpoint_format.h"
#include "temper/models/files/directory.h"
#include "temper/models/files/load.h"
#include "temper/models/vision/encoder.h"
#include "temper/models/vision/load.h"
#include "temper/ops/backend.h"
#include "temper/text/chat/template_date.h"
#include "temper/train/ranks.h"
#include "temper/train/roles/parameters.h"
#include "temper/train/roles/policy.h"
#include "temper/train/roles/trained_parts.h"
#include "temper/train/router_step.h"
#include "temper/train/run/run_inputs.h"

namespace temper::checks {
RunChecks::RunChecks(train::RunConfig& c, const CheckOptions& o) : config(c), options(o) {
  std::string warnings;
  for (const std::string& warning : config.warnings)
    warnings += (warnings.empty() ? "" : "; ") + warning;
  list.add("config", warnings.empty()
                         ? Finding::pass("every key is known and has a value it may have")
                         : Finding::warn(warnings));
  shape.optimizer = config.optimizer;
  shape.recompute = config.train.recompute == train::TrainSection::Recompute::kBlocks;
  shape.offload_inputs = config.train.offloads_inputs();
  shape.offload_optimizer = config.train.offloads_optimizer();
}

// The other checks are made whatever is wrong with the device.
void RunChecks::device() {
  ops::choose_cpu_backend(ops::native_backend());
  list.run("device", [&] {
    models::use_device(config.device_choice());
    shape.device = models::chosen_device();
    const std::string device = models::chosen_device().str();
    const char* backend = ops::cpu_backend().name();
    return Finding::pass(str(device, ", backend ", backend),
                         {{"device", device}, {"backend", backend}});
  });
}

models::Model& RunChecks::trained() {
  if (scalar_) return *scalar_;
  return *policy.model;
}

Ranks RunChecks::dividing() const {
  Ranks divide = ranks;
  if (!config.divides_layers()) divide.tensor = 1;
  return divide;
}

bool RunChecks::read_config(bool scalar) {
  device();
  has_model = list.run("model", [&] {
    train::find_model(config);
    const models::HfConfig hf = models::HfConfig::load(config.model.path);
    models::check_quantization(hf.json(), config.model.path + "/config.json");
    shape.policy.shape = shape_of(hf, scalar);
    policy.model = models::make_model(hf);
    policy.model->eos_token_ids = models::eos_ids(config.model.path, hf);
    if (config.model.vision != models::ModelSection::Vision::kNone &&
        models::vision_family_of(config.model.path))
      policy.model->vision =
          std::make_shared<models::Encoder>(models::make_tower(config.model.path));
    if (scalar) {
      scalar_ = std::make_unique<models::ScalarModel>(models::make_body(hf));
      scalar_->vision = policy.model->vision;
    }
    const Json values = {{"parameters", shape.policy.shape.parameters()}};
    std::string found = str(config.model.path, ": ", hf.model_type(), ", ",
                            counted(shape.policy.shape.parameters()), " parameters");
    const std::vector<std::string> warnings = train::model_warnings(config.model.path);
    for (const std::string& warning : warnings) found += "; " + warning;
    return warnings.empty() ? Finding::pass(std::move(found), values)
                            : Finding::warn(std::move(found), values);
  });
  if (has_model && config.train.router_aux_loss)
    list.run("router_aux_loss", [&] {
      train::check_router_loss(config.train.router_aux_loss,
                               !scalar && policy.model->config().experts > 0);
      return Finding::pass(str("coefficient ", *config.train.router_aux_loss));
    });
  return has_model;
}

bool RunChecks::model_shape(bool scalar) {
  if (!read_config(scalar)) return false;
  adapter();
  return true;
}

void RunChecks::with_model(const std::string& name, const std::function<Finding()>& work) {
  if (has_model)
    list.run(name, work);
  else
    list.skip(name, kNoModel);
}

void RunChecks::model(bool scalar) {
  if (!read_config(scalar)) {
    for (const char* name : {"weights", "tokenizer", "chat_template", "adapter", "mesh"})
      list.skip(name, kNoModel);
    return;
  }
  list.run("weights", [&] {
    if (policy.model->vision) models::load_tower(config.model.path);  // throws for wrong shapes
    const models::StoredWeights found =
        models::check_weights(config.model.path, trained(), scalar ? "score.weight" : "");
    return Finding::pass(str(found.tensors, " tensors, ", megabytes(found.bytes),
                             ", with the names and shapes of config.json, all of them finite"),
                         {{"tensors", found.tensors}, {"bytes", found.bytes}});
  });
  tokenizer();
  adapter();
  arithmetic();
  mesh();
}

void RunChecks::tokenizer() {
  if (config.data.begun.empty()) {
    config.data.begun = train::begin_of_run(config);
    config.data.earlier_rules = train::has_earlier_rules(config);
  }
  const std::string& directory = config.model.path;
  const bool read = list.run("tokenizer", [&] {
    const int64_t before = resident_memory_bytes();
    policy.tokenizer = Tokenizer::load_directory(directory);
    tokenizer_bytes_ = std::max<int64_t>(0, resident_memory_bytes() - before);
    if (!policy.tokenizer)
      return Finding::warn(directory + ": no tokenizer: rows must hold token ids");
    const int64_t tokens = policy.tokenizer->vocab_size(), rows = shape.policy.shape.vocabulary;
    if (tokens > rows)
      return Finding::warn(
          str(tokens, " tokens, of which the model's vocabulary has the first ", rows, " alone"));
    return Finding::pass(str(tokens, " tokens"), {{"tokens", tokens}});
  });
  if (!read || !policy.tokenizer)
    return list.add("chat_template",
                    Finding::warn("not checked: there is no tokenizer to go with it"));
  list.run("chat_template", [&] {
    ChatOptions chat = config.data.chat_options();
    chat.adapter = config.adapter.path.value_or("");
    policy.chat = ChatTemplate::find(directory, chat);
    if (!policy.chat) return Finding::warn("none: rows of messages cannot be read");
    const Json messages = Json::array({{{"role", "user"}, {"content", "Hello"}}});
    const std::string text = policy.chat->render(messages, Json(), true);
    std::string found =
        str("renders; a user's `Hello` becomes ", policy.tokenizer->encode(text).size(), " tokens");
    if (!policy.chat->writes_date()) return Finding::pass(std::move(found));
    const std::string date = to_date_text(policy.chat->date());
    return Finding::pass(
        str(found, "; it writes the date, which is ", date, " in the whole run and its resumes (",
            config.data.template_date
                ? "data.template_date"
                : "when the run begins, unless data.template_date says another",
            ")"),
        {{"template_date", date}});
  });
}

void RunChecks::add_tower_to_shape() {
  if (!policy.model->vision) return;
  double patches = 4;  // for a token of an image, where nothing says how images are cut
  const auto tokenizer = Tokenizer::load_directory(config.model.path);
  if (const auto images = train::images_of(config, tokenizer.get())) {
    const ImageLayout layout = images->processor->layout({1024, 1024});
    patches = static_cast<double>(layout.patches()) / static_cast<double>(layout.tokens());
  }
  add_tower(shape.policy.shape, policy.model->vision->tower(), policy.model->tower() != nullptr,
            patches);
}

void RunChecks::adapter() {
  list.run("adapter", [&] {
    ModelRole& role = shape.policy;
    role.role = "policy";
    role.storage = train::policy_storage(config);
    role.note_held(config.model.path);
    const bool frozen = config.has_adapter();
    role.trains = !frozen;
    const auto tokenizer = Tokenizer::load_directory(config.model.path);
    models::Model& model = trained();
    policy.lora =
        train::choose_trained(model, config, tokenizer.get(), train::AdapterValues::kNone);
    trainables_.push_back(train::policy_trainable(model, config));
    const std::vector<train::NamedParameter>& parameters =
        trainables_.front()->optimizer.parameters();
    std::string found = "none: all weights train";
    if (frozen) {
      const models::LoraConfig& lora = *policy.lora;
      role.adapted = models::adapted_layers(model);
      for (const models::TrainedTokens& t : lora.trained_tokens)
        role.token_rows[t.module] = std::ssize(t.ids);
      role.rank = lora.largest_rank();
      role.dora = lora.dora;
      role.drops = lora.dropout > 0;
      role.saved = models::saved_weights(model, lora.modules_to_save);
      role.adapters = role.trained_copies = 1;
      found = config.adapter.path ? str(*config.adapter.path, ": rank ", lora.rank)
                                  : str("rank ", lora.rank, ", alpha ", lora.alpha);
      found += str(" on ", role.adapted.size(), " layers");
      for (const auto& [module, rows] : role.token_rows)
        found += str(", ", rows, " rows of ", module);
    } else {
      std::set<std::string> trains;
      for (const train::NamedParameter& p : parameters) trains.insert(p.name);
      for (ShapedTensor& t : role.shape.tensors) t.trains = trains.contains(t.name);
    }
    add_tower_to_shape();
    return Finding::pass(found);
  });
}

// Whether products in integers are used, or would be faster; of quantized weights on the CPU.
void RunChecks::arithmetic() {
  const models::Storage& storage = shape.policy.storage;
  const std::optional<ops::WeightFormat> format = shape.policy.most_used_integers();
  if (!format || !shape.device.is_cpu() || &ops::cpu_backend() != &ops::native_backend()) return;
  list.run("arithmetic", [&] {
    const ops::FormatRow& row = ops::row_of(*format);
    const ProductSpeed speed = integer_speed(row.format);
    const Json values{{"integer_one_row", speed.one_row}, {"integer_many_rows", speed.many_rows}};
    if (storage.arithmetic == ops::Arithmetic::kInteger)
      return Finding::pass(str("products with ", row.title, " weights are in integers: here ",
                               text_of(speed), " rows"),
                           values);
    if (speed.one_row < 1 && speed.many_rows < 1)
      return Finding::pass(str("products with ", row.title,
                               " weights are exact; in integers they "
                               "would not be faster here"),
                           values);
    return Finding::pass(str("products with ", row.title,
                             " weights are exact; model.arithmetic: integer, which "
                             "rounds activations to 8 bits, would be ",
                             text_of(speed), " rows here"),
                         values);
  });
}

void RunChecks::mesh() {
  list.run("mesh", [&] {
    const dist::MeshSection& m = config.mesh;
    int64_t count = options.ranks;
    if (count == 0) count = dist::read_environment().size;
    const auto serving = static_cast<int64_t>(config.roles.serving().size());
    if (count == 1 && options.ranks == 0) {
      Ranks least = m;
      least.data = std::max<int64_t>(m.data, 1);
      count = least.product() + serving;
    }
    const auto training = static_cast<int64_t>(config.training_ranks(count).size());
    ranks = m.sizes(training, config.where("mesh"), count);
    train::check_divisible(config);
    std::string sizes;
    for (size_t i = 0; i < dist::axes().size(); ++i)
      if (!dist::axes()[i].unusual() || ranks[i] > 1)
        sizes += str(i == 0 ? "" : ", ", dist::axes()[i].name, " ", ranks[i]);
    return Finding::pass(str(count, count == 1 ? " rank" : " ranks", ": ", sizes,
                             serving > 0 ? str(", and ", serving, " with roles of their own") : ""),
                         {{"ranks", count}});
  });
}

void RunChecks::rollout(const generate::RolloutSection& section) {
  generate::EngineOptions engine = section.engine_options();
  // The launcher says how many ranks share this machine; without one they are taken to be all.
  if (!ranks_on_machine())
    engine.local_ranks = static_cast<int>(ranks.product() + std::ssize(config.roles.serving()));
  shape.sampling.cache_bytes = generate::cache_bytes(engine);
  shape.sampling.cache_dtype = config.cache_dtype();
  const int64_t tensor_ranks =
      config.roles.rollout.empty() ? dividing().tensor : config.roles.tensor;
  with_model("rollout",
             [&] { return check_rollout(section, config.seed, policy, shape, tensor_ranks); });
}

ModelShape RunChecks::other_model(const std::string& directory, bool scalar) const {
  const models::HfConfig hf = models::HfConfig::load(directory);
  const std::unique_ptr<models::Model> module = model_of(hf, scalar);
  models::check_weights(directory, *module, scalar ? "score.weight" : "");
  return shape_of(hf, scalar);
}

ModelRole RunChecks::frozen_role(const std::string& role, const train::FrozenSource& source) const {
  ModelRole out{.role = role, .shape = other_model(source.directory), .trains = false};
  out.storage.weights = source.storage.weights;
  out.storage.file = source.storage.file;
  out.note_held(source.directory);
  return out;
}

void RunChecks::reference(const std::function<train::FrozenSource()>& declared) {
  using Kind = train::FrozenSource::Kind;
  with_model("reference", [&] {
    const train::FrozenSource source = declared();
    if (source.kind == Kind::kBase)
      return Finding::pass("the policy's base without its adapter: takes no memory");
    if (!config.roles.reference.empty())
      return Finding::pass(
          (source.directory.empty() ? "the policy as it starts" : source.directory) +
          ": on ranks of its own");
    if (source.kind == Kind::kAdapter) {
      ++shape.policy.adapters;
      return Finding::pass("a copy of the adapter as it starts");
    }
    shape.others.push_back(frozen_role("reference", source));
    const bool starts = source.directory == config.model.path;
    return Finding::pass(source.directory +
                         (starts ? ": the policy as it starts, kept beside it" : ""));
  });
}

}  // namespace temper::checks
