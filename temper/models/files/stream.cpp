#include "temper/models/files/stream.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/adapters/adapter_parts.h"
#include "temper/models/files/save.h"
#include "temper/models/files/tensors.h"
#include "temper/models/init.h"
#include "temper/models/vision/load.h"
#include "temper/models/vision/save.h"
#include "temper/nn/unit.h"

namespace temper::models {
namespace {

// A tensor of this shape without memory: the value of a parameter between two uses.
at::Tensor without_memory(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  at::Tensor out = at::empty({0}, dtype);
  out.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return out;
}

void take_value_away(nn::Parameter& parameter) {
  if (!ops::is_quantized(parameter.format()))
    return parameter.set_value(without_memory(
        parameter.shape(),
        parameter.format() == ops::WeightFormat::kBFloat16 ? at::kBFloat16 : at::kFloat));
  auto empty = std::make_shared<ops::QuantizedWeight>();
  empty->format = parameter.format();
  empty->rows = parameter.shape()[0];
  empty->width = parameter.shape()[1];
  parameter.set_codes(std::move(empty));
}

}  // namespace

// The source of a parameter's value.
class WeightStream::Source {
 public:
  Source(std::string place, TensorView view, const nn::Parameter& parameter, const Storage& storage)
      : place_(std::move(place)),
        view_(std::move(view)),
        keep_(keeps_codes(parameter, view_, storage)),
        format_(parameter.format()) {}

  void read(nn::Parameter& parameter) const { set_from_view(parameter, view_, keep_, place_); }

  void drop(nn::Parameter& parameter) const {
    take_value_away(parameter);
    give_back_pages(view_);
  }

  // The file's bytes where they are the value in this dtype; else null.
  const TensorView* stored_as(DType dtype) const {
    const bool kept = ops::row_of(format_).trains ||
                      (format_ == ops::WeightFormat::kBFloat16 && dtype == DType::kBFloat16);
    return kept && view_.dtype == dtype ? &view_ : nullptr;
  }

 private:
  std::string place_;  // as errors name it
  TensorView view_;
  bool keep_;                 // its codes
  ops::WeightFormat format_;  // where they are not kept
};

class WeightStream::StreamedUnit : public nn::ShardUnit {
 public:
  explicit StreamedUnit(const WeightStream& stream) : stream_(stream) {}
  void add(nn::Parameter& parameter) { parameters_.push_back(&parameter); }
  void reduce(std::vector<std::pair<nn::Parameter*, at::Tensor>>&) override {
    throw RunError("weights that stay in their file do not train");
  }

 private:
  void fetch() override {
    for (nn::Parameter* parameter : parameters_)
      if (const auto found = stream_.sources_.find(parameter); found != stream_.sources_.end())
        found->second->read(*parameter);
  }
  void drop() override {
    for (nn::Parameter* parameter : parameters_)
      if (const auto found = stream_.sources_.find(parameter); found != stream_.sources_.end())
        found->second->drop(*parameter);
  }

  const WeightStream& stream_;
  std::vector<nn::Parameter*> parameters_;
};

// While an object of this class lives, the parameter has its value.
class WeightStream::Here {
 public:
  Here(const WeightStream& stream, nn::Parameter& parameter) : parameter_(parameter) {
    const auto found = stream.sources_.find(&parameter);
    if (found == stream.sources_.end()) return;
    source_ = found->second;
    source_->read(parameter_);
  }
  ~Here() {
    if (source_) source_->drop(parameter_);
  }
  void keep() { source_ = nullptr; }
  Here(const Here&) = delete;
  Here& operator=(const Here&) = delete;

 private:
  nn::Parameter& parameter_;
  std::shared_ptr<const Source> source_;
};

WeightStream::WeightStream(Model& model, const std::string& directory, const Storage& storage,
                           const std::string& optional,
                           const std::function<void(nn::Parameter&)>& absent)
    : WeightStream(model, open_checkpoint(directory), storage, optional, absent) {}

WeightStream::WeightStream(Model& model, CheckpointTensors checkpoint, const Storage& storage,
                           const std::string& optional,
                           const std::function<void(nn::Parameter&)>& absent)
    : model_(model) {
  const std::string directory = checkpoint.directory;
  check_held(checkpoint, storage);
  if (!optional.empty()) check_one_label(checkpoint);
  set_storage(model, storage);
  std::set<const nn::Parameter*> of_units;
  for (const Target& t : linear_layers(model))  // a tied head's weight is the embedding's
    if (!dynamic_cast<nn::TiedHead*>(t.layer)) layers_[&t.layer->weight] = t.layer;
  model.each_module([&](const std::string&, nn::Module& module) {
    if (!module.runs_as_unit() || module.unit()) return;
    const auto unit = std::make_shared<StreamedUnit>(*this);
    module.each_parameter([&](const std::string&, nn::Parameter& parameter) {
      of_units.insert(&parameter);
      unit->add(parameter);
    });
    module.set_unit(unit);
    streamed_.push_back(&module);
  });
  const auto take = [&](nn::Parameter& parameter, const std::string& name) -> std::string {
    TensorView view = std::move(checkpoint.tensors.at(name));
    checkpoint.tensors.erase(name);
    if (view.shape != parameter.whole_shape()) return shape_mismatch(view.shape, parameter);
    const auto source = std::make_shared<const Source>(str(directory, ": `", name, "`"),
                                                       std::move(view), parameter, storage);
    if (of_units.contains(&parameter)) {
      take_value_away(parameter);
      sources_[&parameter] = source;
    } else {
      source->read(parameter);
    }
    return "";
  };
  match_tensors(model, checkpoint, optional, take, absent);
}

WeightStream::~WeightStream() {
  for (nn::Module* module : streamed_) module->set_unit(nullptr);
}

void WeightStream::load_adapter(const std::string& directory) {
  std::vector<std::unique_ptr<Here>> here;  // an adapter may bring others in place of these
  for (const WholeModule& m : whole_modules(model_))
    here.push_back(std::make_unique<Here>(*this, *m.weight));
  models::load_adapter(model_, directory);
  for (const Target& t : linear_layers(model_))  // whose values are there
    if (t.of_tower) layers_[&t.layer->weight] = t.layer;
  size_t next = 0;
  for (const WholeModule& m : whole_modules(model_)) {
    std::unique_ptr<Here> value = std::move(here[next++]);
    if (!m.versions->replaced()) continue;
    m.versions->merge();
    sources_.erase(m.weight);
    value->keep();
  }
}

nn::Lora* WeightStream::lora_of(const nn::Parameter& parameter) const {
  const auto layer = layers_.find(&parameter);
  return layer == layers_.end() ? nullptr : layer->second->lora();
}

at::Tensor WeightStream::merged(nn::Parameter& parameter) const {
  const at::NoGradGuard no_grad;
  const Here here(*this, parameter);
  if (const nn::Lora* lora = lora_of(parameter)) return lora->merged(parameter);
  return parameter.float_value().detach().clone();
}

NamedTensors WeightStream::merged_tensors(at::ScalarType dtype) const {
  NamedTensors tensors = own_merged_tensors(dtype);
  NamedTensors of_tower = take_tower_tensors(tensors, model_);
  restore_names(model_.body(), tensors);
  if (!model_.whole.empty()) add_other_parts(tensors, model_, std::move(of_tower), dtype);
  return tensors;
}

NamedTensors WeightStream::own_merged_tensors(at::ScalarType dtype) const {
  NamedTensors tensors;
  model_.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (is_of_adapter(name)) return;
    TensorView view = view_of(parameter.whole_shape(), dtype, [this, dtype, name, p = &parameter] {
      const at::Tensor value = merged(*p).to(dtype);
      check(dtype != at::kHalf || at::isfinite(value).all().item<bool>(), "`", name,
            "` has values beyond float16's range; export with --dtype bfloat16 or float32");
      return value;
    });
    const auto source = sources_.find(&parameter);
    const TensorView* stored = source == sources_.end() || lora_of(parameter)
                                   ? nullptr
                                   : source->second->stored_as(view.dtype);
    if (stored) view.make = [view = *stored] { return view.make ? view.make() : view; };
    tensors.emplace_back(name, std::move(view));
  });
  if (adapts_tied_head(model_)) tensors.push_back(merged_tied_head(dtype));
  return tensors;
}

NamedTensors::value_type WeightStream::merged_tied_head(at::ScalarType dtype) const {
  nn::Linear* head = nullptr;
  model_.visit({.tied_head = [&](const std::string&, nn::TiedHead& tied) { head = &tied; }});
  return {"lm_head.weight", view_of(head->weight.whole_shape(), dtype, [this, dtype, head] {
            const at::NoGradGuard no_grad;
            const Here here(*this, head->weight);
            return head->lora()->merged(head->weight).to(dtype);
          })};
}

StreamedModel<CausalLM> stream_model(const std::string& directory, const std::string& adapter,
                                     const Storage& storage) {
  StreamedModel<CausalLM> out{make_model(HfConfig::load(directory)), nullptr};
  out.weights = std::make_unique<WeightStream>(*out.model, directory, storage);
  give_vision(*out.model, directory, storage);
  if (!adapter.empty()) out.weights->load_adapter(adapter);
  return out;
}

StreamedModel<CausalLM> stream_merged(const std::string& directory, const WeightStream& weights,
                                      bool untied) {
  CheckpointTensors merged{
      directory,
      HfConfig::parse(written_config(directory, untied), directory + "/config.json"),
      {},
      {}};
  NamedTensors tensors = weights.own_merged_tensors(at::kFloat);
  take_tower_tensors(tensors, weights.model());
  for (auto& [name, view] : tensors) merged.tensors[name] = std::move(view);
  StreamedModel<CausalLM> out{make_model(merged.config), nullptr};
  out.weights = std::make_unique<WeightStream>(*out.model, std::move(merged), Storage());
  return out;
}

StreamedModel<ScalarModel> stream_scalar_model(const std::string& directory,
                                               const std::string& adapter, const Storage& storage) {
  const HfConfig config = HfConfig::load(directory);
  StreamedModel<ScalarModel> out{std::make_unique<ScalarModel>(make_body(config)), nullptr};
  const std::string score = kScoreWeight;
  out.weights = std::make_unique<WeightStream>(
      *out.model, directory, storage, score,
      [&](nn::Parameter& parameter) { parameter.set_value(initial_value(parameter, score, 0)); });
  if (!adapter.empty()) out.weights->load_adapter(adapter);
  return out;
}

}  // namespace temper::models
