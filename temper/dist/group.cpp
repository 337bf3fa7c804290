#include "temper/dist/group.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>

#include "temper/base/error.h"

namespace temper::dist {
namespace {

class SingleProcess : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce_sum(at::Tensor&) override {}
  std::shared_ptr<Group> clone_for_thread(const std::string&) override {
    return std::make_shared<SingleProcess>();
  }
  void barrier() override {}
};

}  // namespace

std::shared_ptr<Group> alone() { return std::make_shared<SingleProcess>(); }

std::shared_ptr<Group> Group::clone_for_thread(const std::string& name) {
  throw RunError(str("this group cannot be made again as `", name, "`"));
}

// Sums in which every rank adds its own part to zeros.
void Group::all_gather(const at::Tensor& part, at::Tensor& whole) {
  const at::NoGradGuard no_grad;
  whole.zero_();
  whole.view({size(), -1})[rank()].copy_(part.view({-1}));
  all_reduce_sum(whole);
}

void Group::reduce_scatter_sum(const at::Tensor& whole, at::Tensor& part) {
  const at::NoGradGuard no_grad;
  at::Tensor sum = whole.clone();
  all_reduce_sum(sum);
  part.view({-1}).copy_(sum.view({size(), -1})[rank()]);
}

void Group::exchange(const at::Tensor& given, at::Tensor& taken) {
  const at::NoGradGuard no_grad;
  at::Tensor all = at::empty({size(), given.numel()}, given.options());
  all_gather(given, all);
  taken.view({size(), -1}).copy_(all.view({size(), size(), -1}).select(1, rank()));
}

void Group::broadcast(at::Tensor& tensor, int root) {
  const at::NoGradGuard no_grad;
  if (rank() != root) tensor.zero_();
  all_reduce_sum(tensor);
}

void Group::in_turn(at::Tensor& tensor, const std::function<void()>& add) {
  for (int root = 0; root < size(); ++root) {
    if (rank() == root) add();
    if (tensor.numel() > 0) broadcast(tensor, root);
  }
}

void Group::send(const at::Tensor&, int) { throw RunError("this group sends nothing"); }
void Group::receive(at::Tensor&, int) { throw RunError("this group receives nothing"); }

void Group::all_reduce_sum(std::vector<double>& values) {
  if (size() == 1) return;
  at::Tensor tensor = at::tensor(values, at::kDouble);
  all_reduce_sum(tensor);
  std::memcpy(values.data(), tensor.const_data_ptr<double>(), values.size() * sizeof(double));
}

std::vector<std::string> Group::all_gather(const std::string& bytes) {
  if (size() == 1) return {bytes};
  std::vector<double> lengths(static_cast<size_t>(size()));
  lengths[static_cast<size_t>(rank())] = static_cast<double>(bytes.size());
  all_reduce_sum(lengths);
  const auto longest = static_cast<int64_t>(*std::max_element(lengths.begin(), lengths.end()));
  if (longest == 0) return std::vector<std::string>(lengths.size());
  at::Tensor mine = at::zeros({longest}, at::kByte), all = at::empty({size() * longest}, at::kByte);
  std::memcpy(mine.mutable_data_ptr(), bytes.data(), bytes.size());
  all_gather(mine, all);
  std::vector<std::string> out;
  const char* from = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>());
  for (const double length : lengths) {
    out.emplace_back(from, static_cast<size_t>(length));
    from += longest;
  }
  return out;
}

double Group::all_reduce_max(double value) {
  std::vector<double> values(static_cast<size_t>(size()));
  values[static_cast<size_t>(rank())] = value;
  all_reduce_sum(values);
  return *std::max_element(values.begin(), values.end());
}

}  // namespace temper::dist
