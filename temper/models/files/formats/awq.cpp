// Matrices that AWQ quantized (Lin et al., arXiv 2306.00978) in four bits, in the version `gemm`,
// inputs before outputs: of a linear layer
//   qweight [in, out / 8]      int32: codes of outputs, eight in a word in the order of kAwqOrder
//   qzeros  [groups, out / 8]  int32: zero points, in the same order
//   scales  [groups, out]      float16, bfloat16 or float32
// stand for the float32 values (code - zero) * scale.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/files/formats/packed.h"
#include "temper/models/files/hf_config.h"

namespace temper::models {
namespace {

constexpr int64_t kAwqFields = 8;  // of a word
// The output whose code is at 4 i bits of a word.
constexpr std::array<int64_t, kAwqFields> kAwqOrder{0, 2, 4, 6, 1, 3, 5, 7};

struct AwqMatrix {
  MatrixParts parts;
  int64_t in, out, groups;
  Groups columns;
};

AwqMatrix awq_matrix(MatrixParts parts, int64_t group_size) {
  const TensorView& codes = parts.at(".qweight");
  if (codes.dtype != DType::kInt32 || codes.shape.size() != 2 || codes.num_bytes == 0)
    parts.fail(".qweight", "I32 of two dimensions");
  const int64_t in = codes.shape[0], words = codes.shape[1], out = words * kAwqFields,
                group = group_size > 0 ? group_size : in;
  check<DataError>(in <= INT32_MAX && in % group == 0, parts.place(".qweight"), " has ", in,
                   " rows, which groups of ", group, " do not divide");
  const int64_t groups = in / group;
  parts.at(".qzeros", DType::kInt32, {groups, words});
  if (parts.at(".scales").shape != std::vector<int64_t>{groups, out})
    parts.fail(".scales", shape_text({groups, out}));
  return {std::move(parts), in, out, groups, even_groups(in, group)};
}

// The fields of `rows` rows of words, transposed: [8 words, rows].
std::vector<uint8_t> awq_fields(const TensorView& packed, int64_t rows, int64_t words) {
  constexpr int64_t kTile = 64;
  std::vector<uint8_t> out(static_cast<size_t>(rows * words * kAwqFields));
#pragma omp parallel for schedule(static) if (rows * words > 4096)
  for (int64_t word = 0; word < words; word += 16)
    for (int64_t first = 0; first < rows; first += kTile)
      for (int64_t w = word; w < std::min(word + 16, words); ++w)
        for (int64_t row = first; row < std::min(first + kTile, rows); ++row) {
          const uint32_t fields = word_at(packed.data, row * words + w);
          for (int64_t i = 0; i < kAwqFields; ++i)
            out[static_cast<size_t>((w * kAwqFields + kAwqOrder[static_cast<size_t>(i)]) * rows +
                                    row)] = fields >> (4 * i) & 15;
        }
  return out;
}

ops::Codes awq_codes(const AwqMatrix& m) {
  const std::vector<float> scales = m.parts.scales(".scales", 16);
  const int64_t words = m.out / kAwqFields;
  const TensorView& packed = m.parts.at(".qweight");
  const std::vector<uint8_t> zeros = awq_fields(m.parts.at(".qzeros"), m.groups, words);
  ops::Codes codes{.format = ops::WeightFormat::kInt4Group,
                   .rows = m.out,
                   .width = m.in,
                   .group = m.columns.size};
  codes.codes = awq_fields(packed, m.in, words);
  give_back_pages(packed);
  codes.offsets.assign(zeros.begin(), zeros.end());
  codes.scales.resize(scales.size());
  const auto rows = static_cast<size_t>(m.out), groups = static_cast<size_t>(m.groups);
  for (size_t row = 0; row < rows; ++row)
    for (size_t g = 0; g < groups; ++g) codes.scales[row * groups + g] = scales[g * rows + row];
  return codes;
}

void open_awq(TensorMap& tensors, const HfConfig& hf, const std::string& directory) {
  const Json* quantization = quantization_of(hf, "awq");
  if (!quantization) return;
  const char* key = quantization->contains("group_size") ? "group_size" : "q_group_size";
  const int64_t group = quantization_integer(hf, *quantization, key, 128, -1, INT32_MAX);
  for (const std::string& module : modules_with(tensors, ".qweight")) {
    const auto matrix = std::make_shared<const AwqMatrix>(awq_matrix(
        MatrixParts(tensors, module, {".qweight", ".qzeros", ".scales"}, directory), group));
    tensors[module + ".weight"] = coded_view(ops::WeightFormat::kInt4Group, matrix->out, matrix->in,
                                             [matrix] { return awq_codes(*matrix); });
  }
}

std::string unread_of_awq(const Json& quantization) {
  for (const char* key : {"version", "format", "checkpoint_format"}) {
    const std::string version = quantization_text(quantization, key);
    if (!version.empty() && version != "gemm")
      return "AWQ in the " + std::string(key) + " `" + version + "` (gemm is read)";
  }
  if (quantization_text(quantization, "backend") == "llm-awq")
    return "AWQ in the backend `llm-awq` (autoawq's version gemm is read)";
  for (const char* key : {"bits", "w_bit"}) {
    const Json bits = quantization.value(key, Json(4));
    if (bits != 4) return "AWQ in " + std::string(key) + ": " + dump_json(bits) + " (4 is read)";
  }
  return "";
}

const Registered<CheckpointFormat> kAwq(&checkpoint_formats,
                                        {"awq",
                                         {.open = &open_awq, .unread = &unread_of_awq},
                                         "AWQ in 4 bits, version gemm"});

}  // namespace
}  // namespace temper::models
