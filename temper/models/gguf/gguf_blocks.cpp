#include "temper/models/gguf/gguf_blocks.h"

#include <c10/util/Half.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

namespace temper::models {
namespace {

using gguf::Block;

constexpr int64_t kSuper = 256;  // values of a super-block of K-quants

float half_at(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return static_cast<float>(c10::Half(bits, c10::Half::from_bits()));
}

// Sixteen bytes of two codes each: the low halves, then the high ones.
void read_nibbles(const uint8_t* from, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = from[i] & 15;
    codes[16 + i] = from[i] >> 4;
  }
}
// Adds the fifth bits, of 32 codes.
void add_fifth_bits(const uint8_t* bits, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] |= static_cast<uint8_t>((bits[i / 8] >> (i % 8) & 1) << 4);
}

// Two bits of each of 256 codes: each byte has those of four runs of 32.
void read_pairs_of_bits(const uint8_t* from, uint8_t* codes) {
  for (int i = 0; i < 256; ++i) codes[i] = from[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3;
}
// Four bits of each of 256 codes: each byte has those of two runs of `run`.
void read_halves(const uint8_t* from, int run, uint8_t* codes) {
  for (int i = 0; i < 256; ++i)
    codes[i] = from[i / (2 * run) * run + i % run] >> (4 * (i / run % 2)) & 15;
}

// Scales and minimums of Q4_K and Q5_K, six bits each.
void read_six_bits(const uint8_t* from, int8_t* scales, uint8_t* offsets) {
  for (int i = 0; i < 4; ++i) {
    scales[i] = static_cast<int8_t>(from[i] & 63);
    offsets[i] = from[4 + i] & 63;
    scales[4 + i] = static_cast<int8_t>((from[8 + i] & 15) | (from[i] & 0xC0) >> 2);
    offsets[4 + i] = static_cast<uint8_t>(from[8 + i] >> 4 | (from[4 + i] & 0xC0) >> 2);
  }
}

void read_q2k(const uint8_t* b, size_t at, GgufRow& row) {
  for (size_t i = 0; i < 16; ++i) {
    row.sub_scales[16 * at + i] = static_cast<int8_t>(b[i] & 15);
    row.sub_offsets[16 * at + i] = b[i] >> 4;
  }
  read_pairs_of_bits(b + 16, &row.codes[256 * at]);
  row.scales[at] = half_at(b + 80);
  row.offsets[at] = half_at(b + 82);
}

void read_q3k(const uint8_t* b, size_t at, GgufRow& row) {
  uint8_t* const codes = &row.codes[256 * at];
  read_pairs_of_bits(b + 32, codes);
  for (int i = 0; i < 256; ++i) codes[i] |= static_cast<uint8_t>((b[i % 32] >> (i / 32) & 1) << 2);
  const uint8_t* const s = b + 96;
  for (size_t i = 0; i < 16; ++i) {
    const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4, high = s[8 + i % 4] >> (2 * (i / 4)) & 3;
    row.sub_scales[16 * at + i] = static_cast<int8_t>((low | high << 4) - 32);
  }
  row.scales[at] = half_at(b + 108);
}

void read_q45k(const uint8_t* b, size_t at, bool fifth, GgufRow& row) {
  row.scales[at] = half_at(b);
  row.offsets[at] = half_at(b + 2);
  read_six_bits(b + 4, &row.sub_scales[8 * at], &row.sub_offsets[8 * at]);
  uint8_t* const codes = &row.codes[256 * at];
  read_halves(b + (fifth ? 48 : 16), 32, codes);
  if (!fifth) return;
  for (int i = 0; i < 256; ++i)
    codes[i] |= static_cast<uint8_t>((b[16 + i % 32] >> (i / 32) & 1) << 4);
}

void read_q6k(const uint8_t* b, size_t at, GgufRow& row) {
  uint8_t *const codes = &row.codes[256 * at], high[256];
  read_halves(b, 64, codes);
  read_pairs_of_bits(b + 128, high);
  for (int i = 0; i < 256; ++i) codes[i] |= static_cast<uint8_t>(high[i] << 4);
  std::memcpy(&row.sub_scales[16 * at], b + 192, 16);
  row.scales[at] = half_at(b + 208);
}

// Blocks of 32 values.
void read_small(Block type, const uint8_t* b, size_t at, GgufRow& row) {
  uint8_t* const codes = &row.codes[32 * at];
  row.scales[at] = type == Block::kMxfp4 ? std::ldexp(1.0f, b[0] - 127) : half_at(b);
  if (!row.offsets.empty()) row.offsets[at] = -half_at(b + 2);
  switch (type) {
    case Block::kQ8_0:
      std::memcpy(codes, b + 2, 32);
      return;
    case Block::kMxfp4:
      return read_nibbles(b + 1, codes);
    case Block::kQ4_1:
      return read_nibbles(b + 4, codes);
    case Block::kQ5_0:
      read_nibbles(b + 6, codes);
      return add_fifth_bits(b + 2, codes);
    case Block::kQ5_1:
      read_nibbles(b + 8, codes);
      return add_fifth_bits(b + 4, codes);
    default:
      return read_nibbles(b + 2, codes);
  }
}

void read_super(Block type, const uint8_t* b, size_t at, GgufRow& row) {
  if (type == Block::kQ2K) return read_q2k(b, at, row);
  if (type == Block::kQ3K) return read_q3k(b, at, row);
  if (type == Block::kQ6K) return read_q6k(b, at, row);
  read_q45k(b, at, type == Block::kQ5K, row);
}

const gguf::BlockType& row_of(Block type) {
  for (const gguf::BlockType& row : gguf::kBlockTypes)
    if (row.type == type) return row;
  return gguf::kBlockTypes[0];
}

// Both tables call a format by the name that GGUF has for it.
constexpr std::optional<ops::WeightFormat> format_titled(std::string_view title) {
  for (const ops::FormatRow& row : ops::kWeightFormats)
    if (row.of_files && title == row.title) return row.format;
  return {};
}
static_assert([] {
  for (const gguf::BlockType& row : gguf::kBlockTypes)
    if (!format_titled(row.name)) return false;
  return true;
}());

bool has_offsets(Block type) {
  return ops::row_of(gguf_format(type)).offset != ops::OffsetKind::kNone;
}

// What a code stands for before it is scaled.
float kind_of(const ops::FormatRow& format, int code) {
  if (format.kind == ops::CodeKind::kTable) return format.values[code & 15];
  return static_cast<float>(format.kind == ops::CodeKind::kInt8 ? static_cast<int8_t>(code)
                                                                : code + format.first);
}

}  // namespace

ops::WeightFormat gguf_format(Block type) { return *format_titled(row_of(type).name); }

void read_gguf_row(Block type, const std::byte* bytes, int64_t width, GgufRow& row) {
  const gguf::BlockType& format = row_of(type);
  const bool super = format.values == kSuper;
  const auto blocks = static_cast<size_t>(width / format.values);
  row.group = ops::row_of(gguf_format(type)).block;
  const auto groups = static_cast<size_t>(width / row.group);
  row.codes.resize(static_cast<size_t>(width));
  row.scales.resize(blocks);
  row.offsets.resize(has_offsets(type) ? blocks : 0);
  row.sub_scales.resize(super ? groups : 0);
  row.sub_offsets.resize(super && has_offsets(type) ? groups : 0);
  const auto* from = reinterpret_cast<const uint8_t*>(bytes);
  for (size_t i = 0; i < blocks; ++i, from += format.bytes)
    super ? read_super(type, from, i, row) : read_small(type, from, i, row);
}

void gguf_row_values(Block type, const GgufRow& row, int64_t width, float* values) {
  const bool super = !row.sub_scales.empty();
  float kinds[256];
  for (int code = 0; code < 256; ++code)
    kinds[code] = kind_of(ops::row_of(gguf_format(type)), code);
  for (int64_t first = 0; first < width; first += row.group) {
    const auto group = static_cast<size_t>(first / row.group),
               block = super ? static_cast<size_t>(first / kSuper) : group;
    float scale = row.scales[block];
    if (super) scale = scale * static_cast<float>(row.sub_scales[group]);
    float offset = 0;
    if (!row.offsets.empty()) {
      offset = row.offsets[block];
      if (super) offset = offset * static_cast<float>(row.sub_offsets[group]);
    }
    const uint8_t* const codes = row.codes.data() + first;
    if (row.offsets.empty())
      for (int64_t i = 0; i < row.group; ++i) values[first + i] = scale * kinds[codes[i]];
    else
      for (int64_t i = 0; i < row.group; ++i) values[first + i] = scale * kinds[codes[i]] - offset;
  }
}

}  // namespace temper::models
