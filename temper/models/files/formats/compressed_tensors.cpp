// Matrices as compressed-tensors writes them. Of a linear layer, in `pack-quantized`
//   weight_packed [out, in bits / 32]  int32: codes of an output's inputs, one behind the other,
//                                      each plus 2^(bits - 1)
//   weight_shape  [2]                  out and in
//   weight_scale                       one number, [out, 1] or [out, groups]
//   weight_zero_point [out bits / 32, groups]  int32, packed as codes are; or int8 as weight_scale;
//                                      absent: zero
//   weight_g_idx  [in]                 the group of each input (actorder: group); absent: in order
// and in `int-quantized`, `float-quantized` and `naive-quantized`
//   weight [out, in]                   int8 or E4M3
//   weight_scale, weight_zero_point    as above, or one number a block
// stand for the float32 values (code - zero) * scale. Which of these a layer has, its tensors say.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/files/formats/packed.h"
#include "temper/models/files/formats/scaled.h"
#include "temper/models/files/hf_config.h"

namespace temper::models {
namespace {

// The weights of each of config_groups that is an object.
std::vector<Json> weight_schemes(const Json& quantization) {
  std::vector<Json> schemes;
  const auto groups = quantization.find("config_groups");
  if (groups == quantization.end() || !groups->is_object()) return schemes;
  for (const auto& [name, group] : groups->items())
    if (group.is_object() && group.contains("weights") && group["weights"].is_object())
      schemes.push_back(group["weights"]);
  return schemes;
}

bool orders_groups(const Json& weights) {
  const std::string order = quantization_text(weights, "actorder");
  return order == "group" || order == "dynamic" || order == "true";
}

struct PackedScheme {
  std::vector<int64_t> bits;  // that codes may have
  bool ordered = false;       // matrices have weight_g_idx
  BlockShape block;
};

PackedScheme packed_scheme(const HfConfig& config, const Json& quantization) {
  const std::vector<Json> schemes = weight_schemes(quantization);
  PackedScheme out{.bits = {}, .ordered = !schemes.empty(), .block = {128, 128}};
  for (const Json& weights : schemes) {
    out.bits.push_back(quantization_integer(config, weights, "num_bits", 8, 2, 8));
    out.block.groups.push_back(
        quantization_integer(config, weights, "group_size", -1, -1, INT32_MAX));
    out.ordered = out.ordered && orders_groups(weights);
    const auto block = weights.find("block_structure");
    if (block == weights.end() || block->is_null()) continue;
    const bool two = block->is_array() && block->size() == 2 && (*block)[0].is_number_integer() &&
                     (*block)[1].is_number_integer();
    const bool fits =
        two && (*block)[0] >= 1 && (*block)[1] >= 1 && (*block)[0] <= 65536 && (*block)[1] <= 65536;
    if (!fits)
      config.fail("quantization_config", "`block_structure`: expected two positive integers");
    out.block.rows = (*block)[0].get<int64_t>();
    out.block.columns = (*block)[1].get<int64_t>();
  }
  if (out.bits.empty()) out.bits = {4, 8};
  return out;
}

struct PackedMatrix {
  MatrixParts parts;
  int64_t bits, width;
  ScaleGrid grid;

  int64_t bias() const { return int64_t{1} << (bits - 1); }  // of codes as they are stored
  ops::WeightFormat format() const {
    return bits == 8 ? ops::WeightFormat::kInt8Group : ops::WeightFormat::kInt4Group;
  }
};

constexpr std::initializer_list<const char*> kPackedParts = {
    ".weight_packed", ".weight_shape", ".weight_scale", ".weight_zero_point", ".weight_g_idx"};

ScaleGrid packed_grid(const MatrixParts& parts, const PackedScheme& scheme, int64_t rows,
                      int64_t width) {
  ScaleGrid grid = scale_grid(parts, ".weight_scale", rows, width, {.groups = scheme.block.groups});
  if (grid.columns == 1 || (!scheme.ordered && !parts.has(".weight_g_idx"))) return grid;
  parts.at(".weight_g_idx", DType::kInt32, {width});
  const std::vector<int64_t> group = parts.integers(".weight_g_idx", -1, grid.columns - 1);
  const bool unset = std::find(group.begin(), group.end(), -1) != group.end();
  if (!unset) grid.groups = groups_of(group);
  return grid;
}

PackedMatrix packed_matrix(MatrixParts parts, const PackedScheme& scheme) {
  const TensorView& codes = parts.at(".weight_packed");
  if (codes.dtype != DType::kInt32 || codes.shape.size() != 2 || codes.num_bytes == 0)
    parts.fail(".weight_packed", "I32 of two dimensions");
  const std::vector<int64_t> shape = parts.integers(".weight_shape", 1, INT32_MAX);
  if (shape.size() != 2) parts.fail(".weight_shape", "two numbers");
  const int64_t rows = shape[0], width = shape[1], words = codes.shape[1];
  const auto bits = std::find_if(scheme.bits.begin(), scheme.bits.end(),
                                 [&](int64_t n) { return words_of(width, n) == words; });
  if (rows != codes.shape[0] || bits == scheme.bits.end())
    parts.fail(".weight_packed", temper::str("that of `weight_shape` ", shape_text(shape), " in ",
                                             scheme.bits[0], " bits"));
  ScaleGrid grid = packed_grid(parts, scheme, rows, width);
  if (parts.has(".weight_zero_point")) {
    const TensorView& zero = parts.at(".weight_zero_point");
    if (zero.dtype == DType::kInt32)
      parts.at(".weight_zero_point", DType::kInt32, {words_of(rows, *bits), grid.columns});
    else
      parts.at(".weight_zero_point", DType::kInt8, parts.at(".weight_scale").shape);
    check<DataError>(zero.dtype == DType::kInt8 || grid.row_block == 1,
                     parts.place(".weight_zero_point"), ": packed beside one scale for all rows");
  }
  return {std::move(parts), *bits, width, std::move(grid)};
}

// As they are stored beside codes: plus bias(). For each number of the grid.
std::vector<float> packed_zeros(const PackedMatrix& m) {
  const TensorView& view = m.parts.at(".weight_zero_point");
  std::vector<float> zeros;
  if (view.dtype == DType::kInt8) {
    for (size_t i = 0; i < view.num_bytes; ++i)
      zeros.push_back(static_cast<float>(static_cast<int8_t>(view.data[i]) + m.bias()));
    return zeros;
  }
  const int64_t rows = m.grid.rows, columns = m.grid.columns;
  const std::vector<uint8_t> fields = unpack({.words = view.data,
                                              .bits = m.bits,
                                              .rows = columns,
                                              .fields = rows,
                                              .next_row = 1,
                                              .next_word = columns},
                                             {});
  zeros.resize(fields.size());
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t g = 0; g < columns; ++g)
      zeros[static_cast<size_t>(row * columns + g)] = fields[static_cast<size_t>(g * rows + row)];
  return zeros;
}

ops::Codes packed_codes(const PackedMatrix& m) {
  const TensorView& packed = m.parts.at(".weight_packed");
  ops::Codes codes{
      .format = m.format(), .rows = m.grid.rows, .width = m.width, .group = m.grid.groups.size};
  codes.scales = m.grid.spread(m.parts.scales(".weight_scale", 256));
  if (m.parts.has(".weight_zero_point"))
    codes.offsets = m.grid.spread(packed_zeros(m));
  else
    codes.offsets.assign(m.grid.count(), static_cast<float>(m.bias()));
  codes.codes = unpack({.words = packed.data,
                        .bits = m.bits,
                        .rows = m.grid.rows,
                        .fields = m.width,
                        .next_row = words_of(m.width, m.bits),
                        .next_word = 1},
                       m.grid.groups.places(m.width));
  give_back_pages(packed);
  codes.order = m.grid.groups.order;
  if (m.bits != 8) return codes;
  for (uint8_t& code : codes.codes) code ^= 0x80;  // less the bias, in two's complement
  for (float& zero : codes.offsets) zero -= static_cast<float>(m.bias());
  return codes;
}

void open_compressed_tensors(TensorMap& tensors, const HfConfig& hf, const std::string& directory) {
  const Json* quantization = quantization_of(hf, "compressed-tensors");
  if (!quantization) return;
  const PackedScheme scheme = packed_scheme(hf, *quantization);
  drop_activation_scales(tensors);
  for (const std::string& module : modules_with(tensors, ".weight_packed")) {
    const auto matrix = std::make_shared<const PackedMatrix>(
        packed_matrix(MatrixParts(tensors, module, kPackedParts, directory), scheme));
    tensors[module + ".weight"] = coded_view(matrix->format(), matrix->grid.rows, matrix->width,
                                             [matrix] { return packed_codes(*matrix); });
  }
  for (const std::string& module : modules_with(tensors, ".weight_scale")) {
    MatrixParts parts(tensors, module, {".weight", ".weight_scale", ".weight_zero_point"},
                      directory);
    tensors[module + ".weight"] =
        scaled_view(std::move(parts), ".weight_scale", ".weight_zero_point", scheme.block);
  }
}

// "" where weights of a config group are read.
std::string unread_weights(const Json& weights) {
  std::string type = quantization_text(weights, "type");
  if (type.empty()) type = "int";
  const Json bits = weights.value("num_bits", Json(8));
  const bool read =
      type == "float" ? bits == 8 : type == "int" && (bits == 2 || bits == 4 || bits == 8);
  if (!read)
    return "weights of num_bits " + dump_json(bits) + ", type " + type +
           " (int of 2, 4 and 8 bits and float of 8 are read)";
  const std::string strategy = quantization_text(weights, "strategy");
  for (const char* known : {"", "tensor", "channel", "group", "block"})
    if (strategy == known) return "";
  return "the strategy `" + strategy + "` (tensor, channel, group and block are read)";
}

std::string unread_format(const Json& holder, bool may_be_mixed) {
  const std::string format = quantization_text(holder, "format");
  for (const char* known :
       {"", "pack-quantized", "int-quantized", "float-quantized", "naive-quantized"})
    if (format == known) return "";
  if (may_be_mixed && format == "mixed-precision") return "";
  return "the format `" + format +
         "` (pack-quantized, int-quantized, float-quantized and naive-quantized are read)";
}

bool says_something(const Json& quantization, const char* key) {
  const auto it = quantization.find(key);
  return it != quantization.end() && !it->is_null() && !it->empty();
}

std::string unread_part(const Json& quantization) {
  std::string part = unread_format(quantization, true);
  if (says_something(quantization, "sparsity_config") && part.empty()) {
    const Json& sparsity = quantization["sparsity_config"];
    const std::string format = sparsity.is_object() ? quantization_text(sparsity, "format") : "?";
    if (!format.empty() && format != "dense") part = "sparsity (`sparsity_config`: " + format + ")";
  }
  for (const char* key : {"transform_config", "moe_sparsity_config"})
    if (part.empty() && says_something(quantization, key)) part = "`" + std::string(key) + "`";
  const auto groups = quantization.find("config_groups");
  if (groups != quantization.end() && groups->is_object())
    for (const auto& [name, group] : groups->items())
      if (part.empty() && group.is_object()) part = unread_format(group, false);
  for (const Json& weights : weight_schemes(quantization))
    if (part.empty()) part = unread_weights(weights);
  return part;
}

std::string unread_of_compressed_tensors(const Json& quantization) {
  const std::string part = unread_part(quantization);
  return part.empty() ? "" : "compressed-tensors with " + part;
}

const Registered<CheckpointFormat> kCompressedTensors(
    &checkpoint_formats,
    {"compressed-tensors",
     {.open = &open_compressed_tensors, .unread = &unread_of_compressed_tensors},
     "compressed-tensors: integers of 2, 4 and 8 bits, FP8"});

}  // namespace
}  // namespace temper::models
