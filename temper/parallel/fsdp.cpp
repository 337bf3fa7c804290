#include "temper/parallel/fsdp.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <vector>

#include "temper/base/error.h"
#include "temper/nn/unit.h"

namespace temper::parallel {
namespace {

// Parts begin at such offsets, in bytes: whole vectors and whole blocks of any dtype.
constexpr int64_t kAlignment = 1024;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

at::Tensor bytes_of(const at::Tensor& x) {
  return x.detach().contiguous().view({-1}).view(at::kByte);
}

// Gives a tensor's memory back; the tensor and its views stay, without any.
void free_memory(const at::Tensor& x) {
  c10::StorageImpl* storage = x.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, x.device()));
  storage->set_nbytes(0);
}

// A tensor in the memory of another one: no view of it, so that autograd does not take what is
// gathered into that one for a change of this one, which has the same values at every use.
at::Tensor view_of_memory(const at::Tensor& bytes, int64_t offset, at::IntArrayRef sizes,
                          at::ScalarType dtype) {
  at::Tensor x = at::empty({0}, dtype);
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return x.set_(bytes.storage(), offset / element, sizes, strides);
}

void allocate_memory(const at::Tensor& x, int64_t bytes) {
  c10::StorageImpl* storage = x.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(static_cast<size_t>(bytes)));
  storage->set_nbytes(static_cast<size_t>(bytes));
}

// Tensors one after the other in one buffer, of which each rank keeps an even part.
class FlatBuffer {
 public:
  explicit FlatBuffer(std::shared_ptr<dist::Group> group) : group_(std::move(group)) {}

  // Before lay_out(); gives the tensor's number.
  size_t add(const at::Tensor& x) {
    sources_.push_back(x);
    offsets_.push_back(round_up(total_, kAlignment));
    total_ = offsets_.back() + static_cast<int64_t>(x.nbytes());
    return sources_.size() - 1;
  }
  // Takes this rank's part of every tensor, and lets go of them.
  void lay_out() {
    const at::NoGradGuard no_grad;
    part_ = round_up((total_ + group_->size() - 1) / group_->size(), kAlignment);
    kept_ = at::zeros({part_}, at::kByte);
    whole_ = at::empty({part_ * group_->size()}, at::kByte);
    for (size_t i = 0; i < sources_.size(); ++i) {
      const auto [begin, end] = range(i, group_->rank());
      sizes_.push_back(sources_[i].sizes().vec());
      dtypes_.push_back(sources_[i].scalar_type());
      bytes_.push_back(static_cast<int64_t>(sources_[i].nbytes()));
      if (begin < end) kept_bytes(i).copy_(bytes_of(sources_[i]).narrow(0, begin, end - begin));
      values_.push_back(view_of_memory(whole_, offsets_[i], sizes_[i], dtypes_[i]));
      sources_[i].reset();
    }
    free_memory(whole_);
  }
  bool empty() const { return offsets_.empty(); }

  // Of tensor i: a view of the gathered buffer, and the flat part that is kept here.
  at::Tensor value(size_t i) const { return values_[i].detach(); }
  at::Tensor kept(size_t i) const { return kept_bytes(i).view(dtypes_[i]).detach(); }
  nn::Placement placement(size_t i) const {
    nn::Placement p;
    p.fsdp = group_;
    const auto element = static_cast<int64_t>(c10::elementSize(dtypes_[i]));
    p.bounds.push_back(0);
    for (int r = 0; r < group_->size(); ++r)
      p.bounds.push_back(std::max(p.bounds.back(), range(i, r).second / element));
    return p;
  }

  void gather() {
    if (empty()) return;
    allocate_memory(whole_, part_ * group_->size());
    group_->all_gather(kept_, whole_);
  }
  void release() {
    if (!empty()) free_memory(whole_);
  }

  // From gradients of the whole tensors (float32, undefined: zeros) those of the parts kept here.
  std::vector<at::Tensor> reduce(std::vector<at::Tensor> gradients) const {
    const at::NoGradGuard no_grad;
    const auto floats = static_cast<int64_t>(sizeof(float));
    at::Tensor all = at::zeros({part_ * group_->size() / floats}, at::kFloat);
    for (size_t i = 0; i < gradients.size(); ++i)
      if (at::Tensor gradient = std::exchange(gradients[i], {}); gradient.defined())
        all.narrow(0, offsets_[i] / floats, gradient.numel()).copy_(gradient.reshape({-1}));
    at::Tensor mine = at::empty({part_ / floats}, at::kFloat);
    group_->reduce_scatter_sum(all, mine);
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const auto [begin, end] = range(i, group_->rank());
      const int64_t first = offsets_[i] + begin - group_->rank() * part_;
      parts.push_back(begin < end ? mine.narrow(0, first / floats, (end - begin) / floats)
                                  : at::empty({0}, at::kFloat));
    }
    return parts;
  }

 private:
  // The bytes of tensor i that a rank keeps, within the tensor.
  std::pair<int64_t, int64_t> range(size_t i, int rank) const {
    const int64_t bytes =
        i < bytes_.size() ? bytes_[i] : static_cast<int64_t>(sources_[i].nbytes());
    const int64_t first = rank * part_ - offsets_[i];
    const auto within = [&](int64_t at) { return std::clamp<int64_t>(at, 0, bytes); };
    return {within(first), within(first + part_)};
  }
  at::Tensor kept_bytes(size_t i) const {
    const auto [begin, end] = range(i, group_->rank());
    if (begin >= end) return kept_.narrow(0, 0, 0);
    return kept_.narrow(0, offsets_[i] + begin - group_->rank() * part_, end - begin);
  }

  std::shared_ptr<dist::Group> group_;
  std::vector<at::Tensor> sources_, values_;
  std::vector<int64_t> offsets_, bytes_;
  std::vector<std::vector<int64_t>> sizes_;
  std::vector<at::ScalarType> dtypes_;
  int64_t total_ = 0, part_ = 0;
  at::Tensor kept_, whole_;
};

class ShardedUnit : public nn::Unit {
 public:
  ShardedUnit(nn::Module& module, const std::shared_ptr<dist::Group>& group)
      : trained_(group), frozen_(group) {
    module.each_parameter([&](const std::string&, nn::Parameter& parameter) {
      parameters_.push_back(&parameter);
      if (const auto codes = parameter.stored().quantized) {
        frozen_.add(codes->codes);
        frozen_.add(codes->scales);
      } else if (parameter.trainable()) {
        trainable_.push_back(&parameter);
        trained_.add(parameter.value());
      } else {
        frozen_.add(parameter.value());
      }
    });
    trained_.lay_out();
    frozen_.lay_out();
    size_t trained = 0, frozen = 0;
    for (nn::Parameter* parameter : parameters_) {
      if (const auto codes = parameter->stored().quantized) {
        auto views = std::make_shared<ops::QuantizedWeight>(*codes);
        views->codes = frozen_.value(frozen++);
        views->scales = frozen_.value(frozen++);
        parameter->shard(*this, std::move(views));
        continue;
      }
      const FlatBuffer& buffer = parameter->trainable() ? trained_ : frozen_;
      const size_t place = parameter->trainable() ? trained++ : frozen++;
      parameter->shard(*this, buffer.placement(place), buffer.kept(place), buffer.value(place));
    }
  }

  void reduce(std::vector<std::pair<nn::Parameter*, at::Tensor>>& gradients) override {
    std::vector<at::Tensor> whole(trainable_.size());
    const auto place = [&](const nn::Parameter* parameter) {
      return static_cast<size_t>(std::find(trainable_.begin(), trainable_.end(), parameter) -
                                 trainable_.begin());
    };
    for (auto& [parameter, gradient] : gradients)
      if (const size_t i = place(parameter); i < whole.size()) whole[i] = std::move(gradient);
    const std::vector<at::Tensor> parts = trained_.reduce(std::move(whole));
    for (auto& [parameter, gradient] : gradients)
      if (const size_t i = place(parameter); i < parts.size()) gradient = parts[i];
  }

 private:
  void fetch() override {
    trained_.gather();
    frozen_.gather();
  }
  void drop() override {
    trained_.release();
    frozen_.release();
    for (nn::Parameter* parameter : parameters_) parameter->release();
  }

  std::vector<nn::Parameter*> parameters_, trainable_;
  FlatBuffer trained_, frozen_;
};

}  // namespace

void shard(nn::Module& model, const std::shared_ptr<dist::Group>& fsdp) {
  if (fsdp->size() == 1) return;
  model.each_module([&](const std::string&, nn::Module& module) {
    if (module.runs_as_unit() && !module.unit())
      module.set_unit(std::make_shared<ShardedUnit>(module, fsdp));
  });
  model.each_parameter([](const std::string&, nn::Parameter& parameter) {
    const bool whole = !parameter.placement() || !parameter.placement()->fsdp;
    if (whole && parameter.trainable()) parameter.own();  // it may be mapped from a file
  });
}

}  // namespace temper::parallel
