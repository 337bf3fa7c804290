// GGUF, the file format of llama.cpp (version 3, little-endian): keys with typed values, then named
// tensors.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "temper/io/gguf_format.h"
#include "temper/io/safetensors.h"

namespace temper {

class MappedFiles;

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

// A tensor whose rows are blocks. Its innermost dimension is a multiple of the block's.
struct GgufBlocks {
  gguf::BlockType type;
  std::vector<int64_t> shape;  // of its values
  TensorView bytes;            // kUInt8, one dimension
};

struct GgufFile {
  GgufKeys keys;                             // in the order of the file
  TensorMap tensors;                         // shapes outermost dimension first, as everywhere else
  std::map<std::string, GgufBlocks> blocks;  // tensors in block formats
  const GgufValue* find(std::string_view key) const;  // null: absent
  // The value of a key, or null where it is absent or of another type. List: of an array's items.
  template <class T>
  const T* get(std::string_view key) const {
    const GgufValue* value = find(key);
    return value ? std::get_if<T>(value) : nullptr;
  }
  template <class T>
  const std::vector<T>* list(std::string_view key) const {
    const auto* array = get<GgufArray>(key);
    return array ? std::get_if<std::vector<T>>(array) : nullptr;
  }
};

// The keys and tensors of a file's bytes, checked before anything is allocated: counts and lengths
// against the bytes that are left, offsets aligned, in order and without overlap. `where` names the
// file. Throws DataError that names the key, or the tensor and its type.
GgufFile parse_gguf(std::span<const std::byte> bytes, const std::string& where,
                    std::shared_ptr<const void> owner);

// Maps the file; tensors are not copied.
GgufFile read_gguf(const std::string& path);

// Whether the path is that of a GGUF file: it ends with .gguf, and there is a file.
bool is_gguf_file(const std::string& path);
// The files of a model: the one, or, where it says that it is the first of several
// (NAME-00001-of-00003.gguf), all of them, in order. Throws DataError for another of these.
std::vector<std::string> gguf_shards(const std::string& path);
// A model's keys, those of its first file, and the tensors of all its files, which are added to
// `files`. Throws DataError also for files that do not belong together.
GgufFile read_gguf_model(const std::string& path, MappedFiles* files = nullptr);

// Writes keys and tensors in the given order, through a temporary file beside `path`. Tensors that
// are not there yet are made one at a time (TensorView::make). Throws RunError.
void write_gguf(const std::string& path, const GgufKeys& keys,
                const std::vector<std::pair<std::string, TensorView>>& tensors);

}  // namespace temper
