#include "temper/models/files/formats/scaled.h"

#include <algorithm>
#include <memory>

#include "temper/base/error.h"

namespace temper::models {
namespace {

constexpr float kLargestE4m3 = 448, kLargestInt8 = 256;  // a code less its zero point

struct ScaledMatrix {
  MatrixParts parts;
  std::string scales, zeros;  // suffixes
  ScaleGrid grid;
  int64_t width;
  ops::WeightFormat format;
};

std::vector<uint8_t> scaled_bytes(const ScaledMatrix& m) {
  const TensorView& codes = m.parts.at(".weight");
  const auto* bytes = reinterpret_cast<const uint8_t*>(codes.data);
  std::vector<uint8_t> out(codes.num_bytes);
  int64_t not_numbers = 0;
  const bool floats = m.format == ops::WeightFormat::kFp8;
#pragma omp parallel for schedule(static) reduction(+ : not_numbers) if (out.size() > 32768)
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = bytes[i];
    not_numbers += floats && (bytes[i] & 0x7f) == 0x7f;
  }
  check<DataError>(not_numbers == 0, m.parts.place(".weight"), " holds NaN (", not_numbers,
                   " times)");
  give_back_pages(codes);
  return out;
}

std::vector<float> zero_points(const ScaledMatrix& m) {
  if (m.zeros.empty()) return {};
  const TensorView& view = m.parts.at(m.zeros);
  const auto* bytes = reinterpret_cast<const int8_t*>(view.data);
  return m.grid.spread({bytes, bytes + view.num_bytes});
}

ops::Codes scaled_codes(const ScaledMatrix& m) {
  const bool floats = m.format == ops::WeightFormat::kFp8;
  ops::Codes codes{
      .format = m.format, .rows = m.grid.rows, .width = m.width, .group = m.grid.groups.size};
  codes.scales = m.grid.spread(m.parts.scales(m.scales, floats ? kLargestE4m3 : kLargestInt8));
  codes.offsets = zero_points(m);
  codes.codes = scaled_bytes(m);
  return codes;
}

// Zero points of codes that are floats are zero.
bool all_zero(const TensorView& view) {
  return std::all_of(view.data, view.data + view.num_bytes,
                     [](std::byte byte) { return byte == std::byte{0}; });
}

void check_groups(const MatrixParts& parts, const std::string& suffix, int64_t width,
                  int64_t columns, const std::vector<int64_t>& sizes) {
  const auto fits = [&](int64_t size) {
    return columns == 1 ? size < 1 || size >= width : size * columns == width;
  };
  if (!sizes.empty() && std::ranges::none_of(sizes, fits))
    parts.fail(suffix, temper::str("scales of ", width,
                                   " inputs by the `group_size` of quantization_config"));
}

}  // namespace

std::vector<float> ScaleGrid::spread(const std::vector<float>& numbers) const {
  std::vector<float> out(count());
  const size_t width = groups.of.size();
  for (int64_t row = 0; row < rows; ++row)
    for (size_t g = 0; g < width; ++g)
      out[static_cast<size_t>(row) * width + g] = numbers[index(row, g)];
  return out;
}

ScaleGrid scale_grid(const MatrixParts& parts, const std::string& suffix, int64_t rows,
                     int64_t width, const BlockShape& block) {
  const std::vector<int64_t>& shape = parts.at(suffix).shape;
  const bool one = std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n == 1; });
  if (one && shape.size() <= 2) {
    check_groups(parts, suffix, width, 1, block.groups);
    return {rows, rows, 1, even_groups(width, width)};
  }
  const int64_t down = shape[0], across = shape.size() == 1 ? 1 : shape[1];
  const auto blocks = [](int64_t count, int64_t size) { return (count + size - 1) / size; };
  // First: blocks of one row may end in a shorter one.
  if (shape.size() == 2 && block.rows > 0 && down == blocks(rows, block.rows) &&
      across == blocks(width, block.columns))
    return {rows, block.rows, across, even_groups(width, block.columns)};
  if (shape.size() <= 2 && down == rows && across >= 1 && width % across == 0) {
    check_groups(parts, suffix, width, across, block.groups);
    return {rows, 1, across, even_groups(width, width / across)};
  }
  std::string expected = temper::str("one number, or for a matrix ", shape_text({rows, width}),
                                     " one a row or [", rows, ", groups]");
  if (block.rows > 0)
    expected += ", or " + shape_text({blocks(rows, block.rows), blocks(width, block.columns)}) +
                " of blocks " + shape_text({block.rows, block.columns});
  parts.fail(suffix, expected);
}

TensorView scaled_view(MatrixParts parts, const std::string& scales, const std::string& zeros,
                       const BlockShape& block) {
  const TensorView& codes = parts.at(".weight");
  const bool floats = codes.dtype == DType::kFloat8E4M3;
  if ((!floats && codes.dtype != DType::kInt8) || codes.shape.size() != 2 || codes.num_bytes == 0)
    parts.fail(".weight", temper::str("I8 or F8_E4M3 of two dimensions beside `", scales, "`"));
  const int64_t rows = codes.shape[0], width = codes.shape[1];
  check<DataError>(rows <= INT32_MAX && width <= INT32_MAX, parts.place(".weight"), ": shape ",
                   shape_text(codes.shape));
  ScaleGrid grid = scale_grid(parts, scales, rows, width, block);
  std::string subtracted = !zeros.empty() && parts.has(zeros) ? zeros : "";
  if (floats && !subtracted.empty() && all_zero(parts.at(zeros))) subtracted.clear();
  if (!subtracted.empty() &&
      (floats || parts.at(zeros).dtype != DType::kInt8 ||
       parts.at(zeros).num_bytes != shape_bytes(parts.at(scales).shape, DType::kInt8)))
    parts.fail(zeros, floats ? "zeros" : "I8 of the shape of its scales");
  const auto format = floats ? ops::WeightFormat::kFp8 : ops::WeightFormat::kInt8Group;
  const auto matrix = std::make_shared<const ScaledMatrix>(ScaledMatrix{
      std::move(parts), scales, std::move(subtracted), std::move(grid), width, format});
  return coded_view(format, rows, width, [matrix] { return scaled_codes(*matrix); });
}

void drop_activation_scales(TensorMap& tensors) {
  constexpr std::string_view kSuffixes[] = {
      ".input_scale",      ".input_zero_point",  ".input_scale_ub", ".activation_scale",
      ".output_scale",     ".output_zero_point", ".q_scale",        ".k_scale",
      ".v_scale",          ".q_zero_point",      ".k_zero_point",   ".v_zero_point",
      ".prob_output_scale"};
  std::erase_if(tensors, [&](const auto& tensor) {
    return std::any_of(std::begin(kSuffixes), std::end(kSuffixes),
                       [&](std::string_view end) { return tensor.first.ends_with(end); });
  });
}

}  // namespace temper::models
