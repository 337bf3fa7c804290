// Numbers of the GGUF format that its reader and writer share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "temper/io/tensor_view.h"

namespace temper::gguf {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersion = 3;
constexpr uint32_t kVersionBefore = 2;  // little-endian files are the same
constexpr uint32_t kArrayType = 9;
// alignment of tensor data in bytes, unless `general.alignment` gives another
constexpr uint64_t kAlignment = 32;
constexpr size_t kMostDimensions = 4;
constexpr size_t kMostNameBytes = 63;  // longest name of a tensor, in bytes

// ggml's type numbers for the dtypes of Temper.
constexpr std::pair<uint32_t, DType> kTensorTypes[] = {
    {0, DType::kFloat32}, {1, DType::kFloat16}, {24, DType::kInt8},    {25, DType::kInt16},
    {26, DType::kInt32},  {27, DType::kInt64},  {28, DType::kFloat64}, {30, DType::kBFloat16}};

// Formats in which a row is blocks of codes with their scales. The values of each are those of
// gguf-py's quants.py.
enum class Block {
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2K = 10,
  kQ3K = 11,
  kQ4K = 12,
  kQ5K = 13,
  kQ6K = 14,
  kIq4Nl = 20,
  kMxfp4 = 39
};
struct BlockType {
  Block type;
  const char* name;
  int64_t values;  // of a block
  size_t bytes;
};
constexpr BlockType kBlockTypes[] = {
    {Block::kQ4_0, "Q4_0", 32, 18},    {Block::kQ4_1, "Q4_1", 32, 20},
    {Block::kQ5_0, "Q5_0", 32, 22},    {Block::kQ5_1, "Q5_1", 32, 24},
    {Block::kQ8_0, "Q8_0", 32, 34},    {Block::kQ2K, "Q2_K", 256, 84},
    {Block::kQ3K, "Q3_K", 256, 110},   {Block::kQ4K, "Q4_K", 256, 144},
    {Block::kQ5K, "Q5_K", 256, 176},   {Block::kQ6K, "Q6_K", 256, 210},
    {Block::kIq4Nl, "IQ4_NL", 32, 18}, {Block::kMxfp4, "MXFP4", 32, 17}};

// Others, for errors.
constexpr std::pair<uint32_t, const char*> kUnreadTypes[] = {
    {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
    {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {29, "IQ1_M"},
    {34, "TQ1_0"}, {35, "TQ2_0"}, {40, "NVFP4"}};

constexpr uint64_t padding(uint64_t size, uint64_t alignment) {
  return (alignment - size % alignment) % alignment;
}

}  // namespace temper::gguf
