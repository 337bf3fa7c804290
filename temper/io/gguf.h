// GGUF, the file format of llama.cpp (version 3, little-endian): keys with typed values, then named
// tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "temper/io/safetensors.h"

namespace temper {

// The alternatives stand in the order of the format's type numbers; 9 is an array, and arrays of
// arrays are not supported.
using GgufArray =
    std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>,
                 std::vector<int16_t>, std::vector<uint32_t>, std::vector<int32_t>,
                 std::vector<float>, std::vector<bool>, std::vector<std::string>, std::monostate,
                 std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>>;
using GgufValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool,
                               std::string, GgufArray, uint64_t, int64_t, double>;
using GgufKeys = std::vector<std::pair<std::string, GgufValue>>;

struct GgufFile {
  GgufKeys keys;      // in the order of the file
  TensorMap tensors;  // shapes outermost dimension first, as everywhere else
  const GgufValue* find(std::string_view key) const;  // null: absent
};

// The keys and tensors of a file's bytes, checked before anything is allocated: counts and lengths
// against the bytes that are left, offsets aligned, in order and without overlap. `where` names the
// file. Tensors in block formats (Q4_0 and so on) are refused. Throws DataError that names the key
// or the tensor.
GgufFile parse_gguf(std::span<const std::byte> bytes, const std::string& where,
                    std::shared_ptr<const void> owner);

// Maps the file; tensors are not copied.
GgufFile read_gguf(const std::string& path);

// Writes keys and tensors in the given order, through a temporary file beside `path`. Tensors that
// are not there yet are made one at a time (TensorView::make). Throws RunError.
void write_gguf(const std::string& path, const GgufKeys& keys,
                const std::vector<std::pair<std::string, TensorView>>& tensors);

}  // namespace temper
