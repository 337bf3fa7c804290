#include "temper/check/memory/traced_pass.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "temper/check/memory/memory.h"
#include "temper/dist/group.h"
#include "temper/models/split.h"
#include "temper/ops/sizes.h"
#include "temper/train/forward_pass.h"
#include "temper/train/offload/disk_inputs.h"
#include "temper/train/passes/rank_pass.h"

namespace temper::checks {
namespace {

const at::TensorOptions kSized = at::TensorOptions(at::kFloat).device(at::kMeta);

// The first of so many ranks, which sends nothing.
class FirstRank : public dist::Group {
 public:
  explicit FirstRank(int64_t size) : size_(static_cast<int>(size)) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  void barrier() override {}
  void all_reduce_sum(at::Tensor&) override {}
  void all_gather(const at::Tensor&, at::Tensor&) override {}
  void reduce_scatter_sum(const at::Tensor&, at::Tensor&) override {}
  void exchange(const at::Tensor&, at::Tensor&) override {}
  void in_turn(at::Tensor&, const std::function<void()>& add) override { add(); }

 private:
  int size_;
};

// Gives it a value without numbers.
void set_size(nn::Parameter& p, ops::WeightFormat format, bool trains) {
  if (ops::is_quantized(format) && !p.is_elsewhere()) {
    const ops::FormatRow& row = ops::row_of(format);
    auto codes = std::make_shared<ops::QuantizedWeight>();
    codes->format = format;
    codes->rows = p.shape()[0];
    codes->width = p.shape()[1];
    codes->block = ops::block_size(format, codes->width);
    codes->layout = ops::QuantizedWeight::Layout::kRows;
    const int64_t count = codes->rows * codes->width,
                  groups = ops::block_count(format, codes->rows, codes->width),
                  numbers = row.super_block > 0 ? count / row.super_block : groups;
    codes->codes = at::empty({(count * row.bits + 7) / 8}, kSized.dtype(at::kByte));
    const auto set_numbers = [&](at::Tensor& of, at::Tensor& nested) {
      of = at::empty({numbers}, kSized.dtype(row.scale_bits == 16 ? at::kHalf : at::kFloat));
      if (row.super_block > 0) nested = at::empty({groups}, kSized.dtype(at::kChar));
    };
    set_numbers(codes->scales, codes->nested_scales);
    if (row.offset != ops::OffsetKind::kNone) set_numbers(codes->offsets, codes->nested_offsets);
    return p.set_codes(std::move(codes));
  }
  if (trains && !ops::row_of(format).trains) format = ops::WeightFormat::kRoundedBFloat16;
  p.set_format(ops::WeightFormat::kFloat32);
  p.set_trainable(true);  // a constant stays as it is
  const bool is_read = !p.trainable() && p.shape() == std::vector<int64_t>{1};
  p.set_trainable(false);
  p.set_format(ops::is_quantized(format) ? ops::WeightFormat::kFloat32 : format);
  p.set_device(is_read ? at::kCPU : at::kMeta);  // the host reads such a number
  p.set_value(at::empty(p.shape(), kSized.device(p.device())));
  p.set_trainable(trains);
}

void add_adapters(nn::Module& model, const ModelRole& role) {
  const double dropout = role.drops ? 0.5 : 0, scale = 1;
  uint64_t key = 0;
  const auto add = [&](const std::string& path, nn::Linear& layer) {
    if (std::find(role.adapted.begin(), role.adapted.end(), path) == role.adapted.end()) return;
    const bool of_mixture = layer.role() == nn::Role::kExpert || layer.role() == nn::Role::kRouter;
    layer.add_lora(role.rank, scale, of_mixture ? 0 : dropout, ++key, role.dora);
  };
  model.visit({.linear = add, .tied_head = add, .router = add});
}

// The role's model as this rank has it.
std::unique_ptr<models::Model> sized_model(const ModelRole& role, const Ranks& of_run) {
  const Ranks ranks = role.ranks_of(of_run);
  const ModelShape& shape = role.shape;
  std::unique_ptr<models::Model> model = model_of(*shape.config, shape.scalar);
  const std::string& where = shape.config->where();
  if (ranks.tensor > 1)
    models::split(*model, std::make_shared<FirstRank>(ranks.tensor), "mesh.tensor", where);
  if (ranks.expert > 1)
    models::split_experts(*model, std::make_shared<FirstRank>(ranks.expert), "mesh.expert", where);
  model->token_ranks = std::make_shared<FirstRank>(ranks.context);
  models::Storage storage = role.storage;
  storage.device = at::kMeta;
  models::set_storage(*model, storage);
  std::map<std::string, const ShapedTensor*> tensors;
  for (const ShapedTensor& t : shape.tensors) tensors.emplace(t.name, &t);
  add_adapters(*model, role);
  model->each_parameter([&](const std::string& name, nn::Parameter& p) {
    const auto found = tensors.find(name);
    if (found == tensors.end()) return set_size(p, ops::WeightFormat::kFloat32, true);  // adapters
    const ShapedTensor& t = *found->second;
    set_size(p, format_of(role, t), role.trains ? t.trains : is_saved(role, t));
  });
  return model;
}

// Rows of the pass's longest unit's length, which are trained on to their ends.
train::ForwardPass sized_pass(const PassShape& shape) {
  train::ForwardPass pass;
  const int64_t longest = shape.longest > 0 ? std::min(shape.longest, shape.tokens) : shape.tokens;
  const std::vector<int32_t> tokens(static_cast<size_t>(longest));
  for (int64_t first = 0; first < shape.tokens; first += longest) {
    const int64_t count = std::min(longest, shape.tokens - first);
    const auto trained =
        std::clamp<int64_t>(static_cast<int64_t>(std::llround(static_cast<double>(shape.targets) *
                                                              static_cast<double>(count) /
                                                              static_cast<double>(shape.tokens))),
                            1, count);
    std::vector<int32_t> labels(static_cast<size_t>(count), -1);
    std::fill(labels.end() - trained, labels.end(), 0);
    train::PackUnit unit;
    unit.segments.push_back(
        {.tokens = std::span(tokens).first(static_cast<size_t>(count)), .labels = labels});
    pass.add(unit, static_cast<uint64_t>(first));
  }
  return pass;
}

using Tensors = std::vector<at::Tensor>;

// Tensors that a distillation strategy holds beside the policy's pass (ComparedShape): its own
// until the head is differentiated, then gradients of layers' tensors, each until its block is.
class Compared {
 public:
  Compared(const ComparedShape& shape, const PassShape& pass, int64_t layers)
      : shape_(shape), pass_(pass), layers_(layers), teacher_(rows(shape.teacher)) {
    if (shape.teacher_hidden > 0) teacher_.push_back(sized(pass.targets, shape.teacher_hidden));
  }
  void compare(const ops::HeadTileSize& tile) {
    student_ = rows(shape_.student);
    if (shape_.teacher_hidden == 0) return;
    // Of each tile the teacher's logits, the gradient, and packed columns of the teacher's head.
    for (int i = 0; i < 2; ++i) student_.push_back(sized(tile.rows, tile.columns));
    student_.push_back(sized(tile.columns, shape_.teacher_hidden));
  }
  void differentiate() {
    gradients_ = rows(shape_.gradients);
    Tensors scratch = rows(shape_.scratch);
    const int64_t map_rows = std::min(kMapRows, pass_.longest);
    if (shape_.map_heads > 0)
      scratch.push_back(
          sized(3, std::min(kMapNumbers, shape_.map_heads * map_rows * pass_.longest) / 2));
    student_.clear();
  }
  void end_block() {
    ++ended_;
    const auto pairs = static_cast<int64_t>(shape_.gradients.size());
    while (!gradients_.empty() &&
           static_cast<int64_t>(gradients_.size()) * layers_ > pairs * (layers_ - ended_))
      gradients_.pop_back();
  }

 private:
  // Tiles of attention maps that ops/layers/attention_maps.cpp has at once: the student's
  // probabilities and their gradient, and the teacher's.
  static constexpr int64_t kMapNumbers = int64_t{1} << 22, kMapRows = 128;
  static at::Tensor sized(int64_t rows, int64_t width) { return at::empty({rows, width}, kSized); }
  Tensors rows(const std::vector<int64_t>& widths) const {
    Tensors made;
    for (const int64_t width : widths) made.push_back(sized(pass_.tokens, width));
    return made;
  }

  const ComparedShape& shape_;
  const PassShape& pass_;
  int64_t layers_, ended_ = 0;
  Tensors teacher_, student_, gradients_;
};

// Inputs of blocks as train::DiskInputs keeps them: the last one, the one that is read ahead and
// small ones in memory.
class InputsOnDisk : public nn::BlockInputs {
 public:
  std::unique_ptr<Kept> keep(const at::Tensor& x) override {
    if (static_cast<int64_t>(x.nbytes()) < train::DiskInputs::kLeastBytes)
      return std::make_unique<Small>(x);
    last_ = x.detach();
    bytes_ += static_cast<int64_t>(x.nbytes());
    return std::make_unique<Sized>(*this, x);
  }
  int64_t bytes() const { return bytes_; }  // all that was kept

 private:
  class Small : public Kept {
   public:
    explicit Small(const at::Tensor& x) : x_(x.detach()) {}
    at::Tensor take() override { return x_; }

   private:
    at::Tensor x_;
  };
  class Sized : public Kept {
   public:
    Sized(InputsOnDisk& all, const at::Tensor& x) : all_(all), shape_(x.sizes().vec()) {}
    at::Tensor take() override {
      all_.last_ = at::empty(shape_, kSized);
      return at::empty(shape_, kSized);
    }

   private:
    InputsOnDisk& all_;
    std::vector<int64_t> shape_;
  };
  at::Tensor last_;
  int64_t bytes_ = 0;
};

// The policy and what is differentiated with it: a critic, or a second adapter on the same base.
std::vector<std::unique_ptr<models::Model>> sized_models(const RunShape& run, const Ranks& ranks) {
  std::vector<std::unique_ptr<models::Model>> models;
  for (int64_t i = 0; i < std::max<int64_t>(run.policy.trained_copies, 1); ++i)
    models.push_back(sized_model(run.policy, ranks));
  for (const ModelRole& other : run.others)
    if (other.trains && other.shape.config) models.push_back(sized_model(other, ranks));
  return models;
}

// Calls visit(value) with every tensor that has a gradient.
template <class Visit>
void each_trained(const std::vector<std::unique_ptr<models::Model>>& models, const Visit& visit) {
  for (const auto& model : models)
    model->each_parameter([&](const std::string&, nn::Parameter& p) {
      if (p.trainable() && p.has_value()) visit(p.value());
    });
}

// The models' forward passes, the policy's first, and one backward pass through all of them.
void run_pass(const RunShape& run, const PassShape& shape,
              const std::vector<std::unique_ptr<models::Model>>& models, InputsOnDisk& inputs,
              CountedTensors& counted) {
  using Stage = CountedTensors::Stage;
  train::ForwardPass pass = sized_pass(shape);
  if (run.offload_inputs) pass.inputs = &inputs;
  Compared compared(run.compared, shape, run.policy.shape.layers);
  const std::function<void(const at::Tensor&)> observe = [&](const at::Tensor& x) {
    if (x.requires_grad()) x.register_hook([&](const at::Tensor&) { compared.end_block(); });
  };
  Tensors outputs, ones;
  for (const auto& model : models) {
    const bool is_policy = model == models.front();
    const train::RankPass of_rank(*model, pass);
    const train::ForwardPass& own = of_rank.pass();
    nn::Context context =
        of_rank.context({.recompute = run.recompute, .dropout = run.policy.drops});
    if (run.compared.every_token) context.rows = nullptr;
    if (is_policy && !run.compared.gradients.empty()) context.observe = &observe;
    counted.enter(Stage::kForward);
    const at::Tensor hidden = model->forward(context);
    if (!hidden.requires_grad()) continue;
    const auto* const lm = dynamic_cast<const models::CausalLM*>(model.get());
    counted.enter(Stage::kHead);
    if (is_policy)
      hidden.register_hook([&](const at::Tensor&) {
        compared.differentiate();
        counted.enter(Stage::kBackward);
      });
    outputs.push_back(lm ? lm->token_logp(hidden, own.row_M, own.target_M).logp : hidden);
    if (is_policy) compared.compare(ops::backend_of(hidden).head_tile());
    ones.push_back(at::empty_like(outputs.back()));
  }
  if (!outputs.empty()) torch::autograd::backward(outputs, ones);
}

}  // namespace

PassPeak traced_pass(const RunShape& run, const PassShape& pass, const Ranks& ranks,
                     int64_t gradients) {
  if (!run.policy.shape.config || pass.tokens == 0) return {.gradients = {gradients, gradients}};
  const ops::SizesOf sizes(run.device);
  const std::vector<std::unique_ptr<models::Model>> models = sized_models(run, ranks);
  double trained = 0;
  each_trained(models, [&](const at::Tensor& x) { trained += static_cast<double>(x.nbytes()); });
  CountedTensors counted;
  counted.enter(CountedTensors::Stage::kBackward);
  if (!pass.first)
    each_trained(models, [](const at::Tensor& x) { x.mutable_grad() = at::empty_like(x); });
  InputsOnDisk inputs;
  run_pass(run, pass, models, inputs, counted);
  PassPeak peak =
      counted.peak(static_cast<double>(gradients) / std::max(trained, 1.0), run.number_bytes);
  peak.on_disk = inputs.bytes() / kFloat * run.number_bytes;
  return peak;
}

}  // namespace temper::checks
