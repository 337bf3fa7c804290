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
constexpr uint64_t kAlignment = 32;  // of tensors, where `general.alignment` says nothing else
constexpr size_t kMostDimensions = 4;
constexpr size_t kMostNameBytes = 63;  // of a tensor

// ggml's numbers of the types that Temper has.
constexpr std::pair<uint32_t, DType> kTensorTypes[] = {
    {0, DType::kFloat32}, {1, DType::kFloat16}, {24, DType::kInt8},    {25, DType::kInt16},
    {26, DType::kInt32},  {27, DType::kInt64},  {28, DType::kFloat64}, {30, DType::kBFloat16}};

constexpr uint64_t padding(uint64_t size, uint64_t alignment) {
  return (alignment - size % alignment) % alignment;
}

}  // namespace temper::gguf
