#include "temper/models/gguf/gguf_rows.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstring>

#include "temper/base/error.h"
#include "temper/models/files/checkpoint_format.h"
#include "temper/models/files/tensors.h"
#include "temper/models/gguf/gguf_blocks.h"

namespace temper::models {
namespace {

// The rows of a matrix, wherever they lie.
struct MatrixRows {
  std::vector<GgufStored> parts;
  GgufRowMap rows;
  int64_t count = 0, width = 0;

  const std::byte* at(int64_t row) const {
    const auto [part, of_part] =
        rows.empty() ? std::pair<uint32_t, int64_t>(0, row) : rows[static_cast<size_t>(row)];
    return parts[part].bytes.data + static_cast<size_t>(of_part) * parts[part].row_bytes();
  }
  void give_back() const {
    for (const GgufStored& part : parts) give_back_pages(part.bytes);
  }
};

at::Tensor values_of(const MatrixRows& m, gguf::Block type) {
  at::Tensor values = at::empty({m.count, m.width}, at::kFloat);
  auto* const to = values.mutable_data_ptr<float>();
#pragma omp parallel if (m.count * m.width > 65536)
  {
    GgufRow row;
#pragma omp for schedule(static)
    for (int64_t i = 0; i < m.count; ++i) {
      read_gguf_row(type, m.at(i), m.width, row);
      gguf_row_values(type, row, m.width, to + i * m.width);
    }
  }
  m.give_back();
  return values;
}

class GgufMatrix final : public CodedMatrix {
 public:
  GgufMatrix(MatrixRows rows, gguf::Block type, std::string place)
      : m_(std::move(rows)), type_(type), place_(std::move(place)) {}

  ops::WeightFormat format() const override { return gguf_format(type_); }
  TensorView values() const override { return to_view(values_of(m_, type_)); }

  ops::Codes unpacked() const override {
    GgufRow first;
    read_gguf_row(type_, m_.at(0), m_.width, first);
    ops::Codes codes{.format = format(), .rows = m_.count, .width = m_.width, .group = first.group};
    const auto size = [&](const auto& of_row) {
      return of_row.size() * static_cast<size_t>(m_.count);
    };
    codes.codes.resize(size(first.codes));
    codes.scales.resize(size(first.scales));
    codes.offsets.resize(size(first.offsets));
    codes.sub_scales.resize(size(first.sub_scales));
    codes.sub_offsets.resize(size(first.sub_offsets));
#pragma omp parallel if (m_.count * m_.width > 65536)
    {
      GgufRow row;
#pragma omp for schedule(static)
      for (int64_t i = 0; i < m_.count; ++i) {
        read_gguf_row(type_, m_.at(i), m_.width, row);
        const auto copy = [i](const auto& from, auto& to) {
          std::copy(from.begin(), from.end(), to.begin() + static_cast<int64_t>(from.size()) * i);
        };
        copy(row.codes, codes.codes);
        copy(row.scales, codes.scales);
        copy(row.offsets, codes.offsets);
        copy(row.sub_scales, codes.sub_scales);
        copy(row.sub_offsets, codes.sub_offsets);
      }
    }
    m_.give_back();
    check_finite(codes);
    return codes;
  }

 private:
  // Of a float16 scale every value is finite; of a power of two not of the largest.
  void check_finite(const ops::Codes& codes) const {
    constexpr float kMost = 0x1p125f;
    for (const auto* numbers : {&codes.scales, &codes.offsets})
      for (size_t i = 0; i < numbers->size(); ++i)
        check<DataError>(std::abs((*numbers)[i]) <= kMost, place_, ": the values of row ",
                         i / (numbers->size() / static_cast<size_t>(m_.count)),
                         " are not all finite: the scale of a block is ", (*numbers)[i]);
  }

  const MatrixRows m_;
  const gguf::Block type_;
  const std::string place_;
};

at::Tensor copied_rows(const MatrixRows& m, at::ScalarType dtype) {
  at::Tensor values = at::empty({m.count, m.width}, dtype);
  const size_t bytes = m.parts[0].row_bytes();
  auto* const to = static_cast<std::byte*>(values.mutable_data_ptr());
  for (int64_t i = 0; i < m.count; ++i)
    std::memcpy(to + static_cast<size_t>(i) * bytes, m.at(i), bytes);
  m.give_back();
  return values;
}

at::ScalarType scalar_type_of(DType dtype) {
  if (dtype == DType::kBFloat16) return at::kBFloat16;
  return dtype == DType::kFloat16 ? at::kHalf : at::kFloat;
}

}  // namespace

at::Tensor GgufStored::values() const {
  if (block) return values_of({{*this}, {}, count, width}, block->type);
  return to_tensor(bytes, at::kFloat).reshape({count, width});
}

TensorView gguf_rows(std::vector<GgufStored> parts, GgufRowMap rows, std::vector<int64_t> shape,
                     const std::string& place) {
  MatrixRows m{std::move(parts), std::move(rows), 0, 0};
  // Of a tensor of another number of dimensions than two, all of its rows.
  m.count = m.rows.empty() ? m.parts[0].count : static_cast<int64_t>(m.rows.size());
  m.width = m.parts[0].width;
  if (m.parts[0].block && shape.size() == 2) {
    const gguf::Block type = m.parts[0].block->type;
    return coded_view(DType::kFloat32, shape,
                      std::make_shared<const GgufMatrix>(std::move(m), type, place));
  }
  if (m.parts[0].block)
    return view_of(shape, at::kFloat, [m = std::move(m), shape] {
      return values_of(m, m.parts[0].block->type).reshape(shape);
    });
  if (m.rows.empty()) {
    TensorView view = m.parts[0].bytes;
    view.shape = std::move(shape);
    return view;
  }
  const at::ScalarType dtype = scalar_type_of(m.parts[0].bytes.dtype);
  return view_of(shape, dtype,
                 [m = std::move(m), shape, dtype] { return copied_rows(m, dtype).reshape(shape); });
}

}  // namespace temper::models
