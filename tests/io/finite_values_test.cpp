#include "temper/io/finite_values.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

using namespace temper;

namespace {

template <class T>
std::optional<size_t> find_in(DType dtype, const std::vector<T>& values) {
  TensorView view;
  view.dtype = dtype;
  view.shape = {static_cast<int64_t>(values.size())};
  view.data = reinterpret_cast<const std::byte*>(values.data());
  view.num_bytes = values.size() * sizeof(T);
  return find_not_finite(view);
}

}  // namespace

TEST_CASE("NaN and infinity are found in every floating-point dtype, and nothing else is") {
  for (const size_t place : {0, 1, 4095, 4096, 9998}) {
    std::vector<float> f32(9999, std::numeric_limits<float>::max());
    CHECK(!find_in(DType::kFloat32, f32));
    f32[place] = -std::numeric_limits<float>::infinity();
    CHECK(find_in(DType::kFloat32, f32) == place);
    std::vector<double> f64(9999, -std::numeric_limits<double>::max());
    CHECK(!find_in(DType::kFloat64, f64));
    f64[place] = std::nan("");
    CHECK(find_in(DType::kFloat64, f64) == place);
    std::vector<uint16_t> bits(9999, 0xFF7F);  // bfloat16's least, and a NaN of float16
    CHECK(!find_in(DType::kBFloat16, bits));
    CHECK(find_in(DType::kFloat16, bits) == 0);
    bits[place] = 0x7F80;
    CHECK(find_in(DType::kBFloat16, bits) == place);
    std::vector<uint16_t> half(9999, 0x7BFF);
    CHECK(!find_in(DType::kFloat16, half));
    half[place] = 0xFC00;
    CHECK(find_in(DType::kFloat16, half) == place);
    CHECK(!find_in(DType::kInt16, half));
  }
  CHECK(!find_in(DType::kFloat32, std::vector<float>()));
}
