// Numbers of the host on their way to a device: many small vectors in one copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "temper/ops/forest.h"

namespace temper::ops::aten_impl {

class Upload {
 public:
  // `to` gets the numbers, of this shape, by to(). It must live until then.
  void add(at::Tensor& to, const std::vector<int64_t>& numbers, std::vector<int64_t> shape);
  void to(at::Device device);

 private:
  struct Part {
    at::Tensor* to;
    std::vector<int64_t> shape;
  };
  std::vector<int64_t> numbers_;
  std::vector<Part> parts_;
};

// Ranges of rows, each padded to one length.
class PaddedRows {
 public:
  PaddedRows(int64_t length, int64_t padding) : length_(length), padding_(padding) {}
  void add(int64_t first, int64_t count, const int64_t* position);
  bool padded() const { return place_.size() != row_.size(); }
  // row and position [B, length]; the places without padding (undefined where there is none) and
  // their rows.
  void upload_to(Upload& upload, at::Tensor& row, at::Tensor& position, at::Tensor& place,
                 at::Tensor& real) const;

 private:
  int64_t length_, padding_;
  std::vector<int64_t> row_, position_, place_, real_;
};

// The ends of the open spans of such ranges of rows, [B, length] each; padding has any.
class PaddedSpans {
 public:
  explicit PaddedSpans(int64_t length) : length_(length) {}
  void add(int64_t count, const OpenSpan* open);
  void upload_to(Upload& upload, at::Tensor& end) const;

 private:
  int64_t length_;
  std::vector<int64_t> end_;
};

}  // namespace temper::ops::aten_impl
