#include "temper/ops/aten/upload.h"

#include <ATen/ATen.h>

namespace temper::ops::aten_impl {

void Upload::add(at::Tensor& to, const std::vector<int64_t>& numbers, std::vector<int64_t> shape) {
  numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
  parts_.push_back({&to, std::move(shape)});
}

void Upload::to(at::Device device) {
  const at::Tensor all = at::tensor(numbers_, at::kLong).to(device);
  int64_t first = 0;
  for (const Part& part : parts_) {
    int64_t count = 1;
    for (const int64_t size : part.shape) count *= size;
    *part.to = all.narrow(0, first, count).view(part.shape);
    first += count;
  }
}

void PaddedRows::add(int64_t first, int64_t count, const int64_t* position) {
  for (int64_t i = 0; i < length_; ++i) {
    if (i < count) {
      place_.push_back(static_cast<int64_t>(row_.size()));
      real_.push_back(first + i);
    }
    row_.push_back(i < count ? first + i : first);
    position_.push_back(i < count ? position[i] : padding_);
  }
}

void PaddedRows::upload_to(Upload& upload, at::Tensor& row, at::Tensor& position, at::Tensor& place,
                           at::Tensor& real) const {
  const std::vector<int64_t> shape{static_cast<int64_t>(row_.size()) / length_, length_},
      flat{static_cast<int64_t>(real_.size())};
  upload.add(row, row_, shape);
  upload.add(position, position_, shape);
  if (padded()) upload.add(place, place_, flat);
  upload.add(real, real_, flat);
}

void PaddedSpans::add(int64_t count, const OpenSpan* open) {
  for (int64_t i = 0; i < length_; ++i) end_.push_back(i < count ? open[i].end : 0);
}

void PaddedSpans::upload_to(Upload& upload, at::Tensor& end) const {
  const std::vector<int64_t> shape{static_cast<int64_t>(end_.size()) / length_, length_};
  upload.add(end, end_, shape);
}

}  // namespace temper::ops::aten_impl
