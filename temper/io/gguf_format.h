// Numbers of the GGUF format that its reader and writer share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "temper/io/tensor_view.h"

namespace temper::gguf {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersion = 3;
constexpr uint32_t kArrayType = 9;
// alignment of tensor data in bytes, unless `general.alignment` gives another
constexpr uint64_t kAlignment = 32;
constexpr size_t kMostDimensions = 4;
constexpr size_t kMostNameBytes = 63;  // longest name of a tensor, in bytes

// ggml's type numbers for the dtypes of Temper.
constexpr std::pair<uint32_t, DType> kTensorTypes[] = {
    {0, DType::kFloat32}, {1, DType::kFloat16}, {24, DType::kInt8},    {25, DType::kInt16},
    {26, DType::kInt32},  {27, DType::kInt64},  {28, DType::kFloat64}, {30, DType::kBFloat16}};

constexpr uint64_t padding(uint64_t size, uint64_t alignment) {
  return (alignment - size % alignment) % alignment;
}

}  // namespace temper::gguf
