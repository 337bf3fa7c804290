#include "temper/ops/native/kernels/quantized.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "temper/base/exact_math.h"

namespace temper::kernels {
namespace {

constexpr int64_t kNf4Block = row_of(WeightFormat::kNf4).block;
constexpr int64_t kAbsmaxBlock = 256;  // block maxima that share a scale

// The bytes of four_bit_bytes().
constexpr std::array<uint8_t, 64> bytes_of(const float* values) {
  std::array<uint8_t, 64> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(std::bit_cast<uint32_t>(values[i % 16]) >> 8 * (i / 16));
  return bytes;
}

// Values ascend; nearest(x) is the index of the one nearest to x, the lower of two as near.
template <size_t kCount>
struct Nearest {
  std::array<float, kCount - 1> middle;
  explicit Nearest(const float* values) {
    for (size_t i = 0; i + 1 < kCount; ++i) middle[i] = (values[i] + values[i + 1]) / 2;
  }
  uint8_t operator()(float x) const {
    return static_cast<uint8_t>(std::lower_bound(middle.begin(), middle.end(), x) - middle.begin());
  }
};

float largest_magnitude(const float* values, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::abs(values[i]);
    if (magnitude > largest || std::isnan(magnitude)) largest = magnitude;  // NaN stays
  }
  return largest;
}

// Seven ranges, each ten times the one before: range i has 2^i means of equal parts of [0.1, 1),
// positive and negative; and 0 and 1.
std::array<float, 256> dynamic_map() {
  std::vector<float> values{0.0f, 1.0f};
  for (int range = 0; range < 7; ++range) {
    const int parts = 1 << range;
    const double power = exact::pow(10.0, range - 6);
    const auto boundary = [&](int i) {
      return static_cast<float>(0.1 + 0.9 * static_cast<double>(i) / parts);
    };
    for (int i = 0; i < parts; ++i) {
      const float mean = (boundary(i) + boundary(i + 1)) / 2.0f;
      const float value = static_cast<float>(power) * mean;
      values.push_back(value);
      values.push_back(-value);
    }
  }
  std::sort(values.begin(), values.end());
  std::array<float, 256> map{};
  std::copy(values.begin(), values.end(), map.begin());
  return map;
}

}  // namespace

const uint8_t* four_bit_bytes(WeightFormat format) {
  alignas(64) static constexpr auto kBytes = [] {
    std::array<std::array<uint8_t, 64>, ops::kWeightFormats.size()> bytes{};
    for (size_t i = 0; i < bytes.size(); ++i)
      if (const float* values = ops::kWeightFormats[i].values) bytes[i] = bytes_of(values);
    return bytes;
  }();
  return kBytes[static_cast<size_t>(format)].data();
}

const float* dynamic_map_values() {
  static const std::array<float, 256> map = dynamic_map();
  return map.data();
}

int64_t code_bytes(WeightFormat format, int64_t rows, int64_t width) {
  return packed_size(width, rows) * row_of(format).bits / 8;
}

int64_t group_count(int64_t rows, int64_t width, int64_t group) {
  return packed_size(width / group, rows);
}

void quantize_nf4(const float* values, int64_t count, uint8_t* code, float* absmax) {
  static const Nearest<16> nearest(ops::kNf4Values.data());
  const int64_t blocks = (count + kNf4Block - 1) / kNf4Block;
#pragma omp parallel for schedule(static) if (count > 32768)
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = b * kNf4Block, size = std::min(kNf4Block, count - first);
    absmax[b] = largest_magnitude(values + first, size);
    const float inverse = 1.0f / std::max(absmax[b], 1e-38f);
    // nearest() of each as a count of the middles below it: loops that the compiler vectorizes.
    float scaled[kNf4Block];
    int32_t index[kNf4Block] = {};
    for (int64_t i = 0; i < size; ++i) scaled[i] = values[first + i] * inverse;
    std::fill(scaled + size, scaled + kNf4Block, 0.0f);
    for (const float middle : nearest.middle)
      for (int64_t i = 0; i < kNf4Block; ++i) index[i] += scaled[i] > middle;
    for (int64_t i = 0; i < size; ++i) code[first + i] = static_cast<uint8_t>(index[i]);
  }
}

void quantize_int8(const float* values, int64_t rows, int64_t width, uint8_t* code, float* scale) {
#pragma omp parallel for schedule(static) if (rows * width > 32768)
  for (int64_t r = 0; r < rows; ++r) {
    scale[r] = largest_magnitude(values + r * width, width) / 127.0f;
    if (!std::isfinite(scale[r])) continue;  // refused by whoever reads it
    const float divisor = std::max(scale[r], 1e-38f);
    for (int64_t i = r * width; i < (r + 1) * width; ++i)
      code[i] = static_cast<uint8_t>(
          static_cast<int8_t>(std::clamp(std::nearbyint(values[i] / divisor), -127.0f, 127.0f)));
  }
}

void quantize_absmax(float* absmax, int64_t count) {
  static const Nearest<256> nearest(dynamic_map_values());
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(absmax[i]);
  const float mean = static_cast<float>(sum / static_cast<double>(std::max<int64_t>(count, 1)));
  for (int64_t first = 0; first < count; first += kAbsmaxBlock) {
    const int64_t end = std::min(count, first + kAbsmaxBlock);
    for (int64_t i = first; i < end; ++i) absmax[i] -= mean;
    const float scale = largest_magnitude(absmax + first, end - first);
    const float inverse = 1.0f / std::max(scale, 1e-38f);
    for (int64_t i = first; i < end; ++i) {
      const float value = dynamic_map_values()[nearest(absmax[i] * inverse)] * scale;
      absmax[i] = value + mean;
    }
  }
}

}  // namespace temper::kernels
