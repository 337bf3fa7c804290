// What formats of quantized matrices share: the tensors of a matrix, how its columns share scales,
// and how its codes are packed.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "temper/base/json.h"
#include "temper/models/files/checkpoint_format.h"

namespace temper::models {

// The tensors of one quantized matrix, taken out of a directory's.
class MatrixParts {
 public:
  // Takes `module` + suffix for every suffix that is there.
  MatrixParts(TensorMap& tensors, std::string module, std::initializer_list<const char*> suffixes,
              std::string directory);

  const std::string& module() const { return module_; }
  bool has(const std::string& suffix) const { return parts_.contains(module_ + suffix); }
  // Throws DataError where it is missing.
  const TensorView& at(const std::string& suffix) const;
  // The same of this dtype and shape.
  const TensorView& at(const std::string& suffix, DType dtype,
                       const std::vector<int64_t>& shape) const;
  // "DIRECTORY: `NAME`", for errors.
  std::string place(const std::string& suffix) const;
  // Throws DataError that begins with the place of a tensor and what it is.
  [[noreturn]] void fail(const std::string& suffix, const std::string& expected) const;

  // Numbers in float16, bfloat16 or float32. Throws DataError for another dtype, and where a number
  // times `largest`, a code's largest magnitude, is not finite.
  std::vector<float> scales(const std::string& suffix, float largest) const;
  // Whole numbers in int32 or int64 from `least` to `most`. Throws DataError.
  std::vector<int64_t> integers(const std::string& suffix, int64_t least, int64_t most) const;

 private:
  TensorMap parts_;
  std::string module_, directory_;
};

// The modules of which there is a tensor MODULE + suffix.
std::vector<std::string> modules_with(const TensorMap& tensors, const std::string& suffix);

// How the columns of a matrix share scales.
struct Groups {
  int64_t size = 0;            // columns of the codes that share a scale; divides the width
  std::vector<int32_t> of;     // [width / size]: whose scale these have
  std::vector<int32_t> order;  // as ops::Codes::order
  // Where input i lies in the codes.
  std::vector<int32_t> places(int64_t width) const;
};
// Groups of so many columns, of which the last may be shorter.
Groups even_groups(int64_t width, int64_t group);
// The groups that columns say they have. Columns are sorted by group where they are not.
Groups groups_of(const std::vector<int64_t>& group_of_column);

// Fields of `bits` bits follow each other in 32-bit words, the low bits first: 32 fields in `bits`
// words.
template <int bits>
void unpack_fields(const std::array<uint32_t, 8>& words, uint8_t* out) {
  constexpr uint32_t kMask = (1u << bits) - 1;
  for (int i = 0; i < 32; ++i) {
    const int word = i * bits / 32, shift = i * bits % 32;
    uint32_t field = words[static_cast<size_t>(word)] >> shift;
    if (shift + bits > 32) field |= words[static_cast<size_t>(word) + 1] << (32 - shift);
    out[i] = static_cast<uint8_t>(field & kMask);
  }
}
using UnpackFields = void (*)(const std::array<uint32_t, 8>& words, uint8_t* out);
// For 2, 3, 4 or 8 bits; null: another number.
UnpackFields unpacker(int64_t bits);
inline int64_t words_of(int64_t fields, int64_t bits) { return (fields * bits + 31) / 32; }

// Rows of fields: row r has `fields` of them in words_of(fields, bits) words; word w of it is at
// first + r * next_row + w * next_word. The data may be unaligned.
struct PackedRows {
  const std::byte* words;
  int64_t bits, rows, fields, next_row, next_word;
};
// [rows, fields], field i of a row at places[i]; places empty: at i.
std::vector<uint8_t> unpack(const PackedRows& packed, const std::vector<int32_t>& places);

inline uint32_t word_at(const std::byte* words, int64_t i) {
  uint32_t word;
  std::memcpy(&word, words + i * 4, 4);
  return word;
}

// A matrix whose codes `unpack` makes whenever they are needed.
TensorView coded_view(ops::WeightFormat format, int64_t rows, int64_t width,
                      std::function<ops::Codes()> unpack);

// The quantization_config, where it is of this method; else null.
const Json* quantization_of(const HfConfig& config, std::string_view method);
// A whole number of it. Throws ConfigError that names the key unless it is from least to most.
int64_t quantization_integer(const HfConfig& config, const Json& quantization, const char* key,
                             int64_t fallback, int64_t least, int64_t most);
// A text of it in lower case; "": absent or null. Another kind of value: as it is written.
std::string quantization_text(const Json& quantization, const char* key);

}  // namespace temper::models
