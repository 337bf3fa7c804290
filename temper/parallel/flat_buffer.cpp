#include "temper/parallel/flat_buffer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

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
  at::Tensor x = at::empty({0}, bytes.options().dtype(dtype));
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return x.set_(bytes.storage(), offset / element, sizes, strides);
}

void allocate_memory(const at::Tensor& x, int64_t bytes) {
  const c10::OptionalDeviceGuard guard(x.device());  // allocators of GPUs ask for the current one
  c10::StorageImpl* storage = x.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(static_cast<size_t>(bytes)));
  storage->set_nbytes(static_cast<size_t>(bytes));
}

}  // namespace

size_t FlatBuffer::add(const at::Tensor& x) {
  sources_.push_back(x);
  offsets_.push_back(round_up(total_, kAlignment));
  total_ = offsets_.back() + static_cast<int64_t>(x.nbytes());
  return sources_.size() - 1;
}

void FlatBuffer::lay_out() {
  const at::NoGradGuard no_grad;
  part_ = round_up((total_ + group_->size() - 1) / group_->size(), kAlignment);
  const at::TensorOptions bytes =
      (sources_.empty() ? at::TensorOptions() : sources_[0].options()).dtype(at::kByte);
  kept_ = at::zeros({part_}, bytes);
  whole_ = at::empty({part_ * group_->size()}, bytes);
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

nn::Placement FlatBuffer::placement(size_t i) const {
  nn::Placement p;
  p.fsdp = group_;
  const auto element = static_cast<int64_t>(c10::elementSize(dtypes_[i]));
  p.bounds.push_back(0);
  for (int r = 0; r < group_->size(); ++r)
    p.bounds.push_back(std::max(p.bounds.back(), range(i, r).second / element));
  return p;
}

void FlatBuffer::allocate() {
  if (!empty()) allocate_memory(whole_, part_ * group_->size());
}

void FlatBuffer::gather(dist::Group& group) {
  if (!empty()) group.all_gather(kept_, whole_);
}

void FlatBuffer::release() {
  if (!empty()) free_memory(whole_);
}

at::Tensor FlatBuffer::flatten(std::vector<at::Tensor> gradients) const {
  const at::NoGradGuard no_grad;
  const auto floats = static_cast<int64_t>(sizeof(float));
  at::Tensor all = at::empty({part_ * group_->size() / floats}, kept_.options().dtype(at::kFloat));
  int64_t written = 0;  // gaps between gradients, and undefined gradients, are zeros
  for (size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor gradient = std::exchange(gradients[i], {});
    if (!gradient.defined()) continue;
    const int64_t begin = offsets_[i] / floats;
    all.narrow(0, written, begin - written).zero_();
    all.narrow(0, begin, gradient.numel()).view(gradient.sizes()).copy_(gradient);
    written = begin + gradient.numel();
  }
  all.narrow(0, written, all.numel() - written).zero_();
  return all;
}

at::Tensor FlatBuffer::empty_part() const {
  return at::empty({part_ / static_cast<int64_t>(sizeof(float))},
                   kept_.options().dtype(at::kFloat));
}

std::vector<at::Tensor> FlatBuffer::parts_of(const at::Tensor& sums) const {
  const auto floats = static_cast<int64_t>(sizeof(float));
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < offsets_.size(); ++i) {
    const auto [begin, end] = range(i, group_->rank());
    const int64_t first = offsets_[i] + begin - group_->rank() * part_;
    parts.push_back(begin < end ? sums.narrow(0, first / floats, (end - begin) / floats)
                                : at::empty({0}, sums.options()));
  }
  return parts;
}

// The bytes of tensor i that a rank keeps, within the tensor.
std::pair<int64_t, int64_t> FlatBuffer::range(size_t i, int rank) const {
  const int64_t bytes = i < bytes_.size() ? bytes_[i] : static_cast<int64_t>(sources_[i].nbytes());
  const int64_t first = rank * part_ - offsets_[i];
  const auto within = [&](int64_t at) { return std::clamp<int64_t>(at, 0, bytes); };
  return {within(first), within(first + part_)};
}

at::Tensor FlatBuffer::kept_bytes(size_t i) const {
  const auto [begin, end] = range(i, group_->rank());
  if (begin >= end) return kept_.narrow(0, 0, 0);
  return kept_.narrow(0, offsets_[i] + begin - group_->rank() * part_, end - begin);
}

}  // namespace temper::parallel
