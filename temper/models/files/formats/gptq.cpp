// Matrices that GPTQ quantized (Frantar et al., arXiv 2210.17323), as AutoGPTQ and GPTQModel write
// them, inputs before outputs: of a linear layer
//   qweight [in bits / 32, out]      int32: codes of an output's inputs, one behind the other
//   scales  [groups, out]            float16, bfloat16 or float32
//   qzeros  [groups, out bits / 32]  int32: zero points of a group's outputs
//   g_idx   [in]                     int32: the group of each input; absent: in / groups each
// stand for the float32 values (code - zero) * scale. In the checkpoint_format `gptq` words of
// qzeros hold zero points minus one in every field; in `gptq_v2` the zero points themselves.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/models/files/formats/packed.h"
#include "temper/models/files/hf_config.h"

namespace temper::models {
namespace {

struct GptqConfig {
  int64_t bits;
  int64_t group;       // of a matrix without g_idx; -1: all inputs
  bool zero_less_one;  // the checkpoint_format `gptq`
  bool alike;          // all matrices have these bits and groups: there is no `dynamic`
};

GptqConfig gptq_config(const HfConfig& config, const Json& quantization) {
  const auto dynamic = quantization.find("dynamic");
  std::string format = quantization_text(quantization, "checkpoint_format");
  if (format.empty()) format = quantization_text(quantization, "format");
  return {.bits = quantization_integer(config, quantization, "bits", 4, 2, 8),
          .group = quantization_integer(config, quantization, "group_size", 128, -1, INT32_MAX),
          .zero_less_one = format != "gptq_v2",
          .alike = dynamic == quantization.end() || dynamic->empty()};
}

// One matrix's sizes, which its tensors agree with.
struct GptqMatrix {
  MatrixParts parts;
  int64_t bits, in, out, groups;
  bool zero_less_one;
  Groups columns;

  ops::WeightFormat format() const {
    return bits == 8 ? ops::WeightFormat::kInt8Group : ops::WeightFormat::kInt4Group;
  }
};

constexpr std::initializer_list<const char*> kGptqParts = {".qweight", ".qzeros", ".scales",
                                                           ".g_idx"};

// The bits in which `words` words hold a code of each of the inputs.
int64_t gptq_bits(const MatrixParts& parts, const GptqConfig& config, int64_t words, int64_t in) {
  if (words_of(in, config.bits) == words) return config.bits;
  for (const int64_t bits : {2, 3, 4, 8})
    if (!config.alike && words_of(in, bits) == words) return bits;
  parts.fail(".qweight", temper::str(words_of(in, config.bits), " rows, which hold ", in,
                                     " codes of ", config.bits, " bits (`g_idx`)"));
}

Groups gptq_columns(const MatrixParts& parts, const GptqConfig& config, int64_t in,
                    int64_t groups) {
  if (parts.has(".g_idx")) {
    parts.at(".g_idx", DType::kInt32, {in});
    return groups_of(parts.integers(".g_idx", 0, groups - 1));
  }
  const int64_t group = config.group > 0 ? config.group : in;
  if (groups != (in + group - 1) / group)
    parts.fail(".scales", temper::str((in + group - 1) / group, " groups of ", group));
  return even_groups(in, group);
}

// The inputs, of which g_idx has a number each.
int64_t gptq_inputs(const MatrixParts& parts, const GptqConfig& config, int64_t words) {
  if (parts.has(".g_idx")) {
    const std::vector<int64_t>& shape = parts.at(".g_idx").shape;
    if (shape.size() != 1 || shape[0] < 1 || shape[0] > INT32_MAX) parts.fail(".g_idx", "[inputs]");
    return shape[0];
  }
  check<ConfigError>(config.alike, parts.place(".g_idx"),
                     " is missing; with `dynamic` in quantization_config it is needed to find each "
                     "module's bits and groups");
  check<DataError>(words * 32 % config.bits == 0, parts.place(".qweight"), " has ", words,
                   " rows, which are no whole number of codes of ", config.bits, " bits");
  return words * 32 / config.bits;
}

GptqMatrix gptq_matrix(MatrixParts parts, const GptqConfig& config) {
  const TensorView& codes = parts.at(".qweight");
  if (codes.dtype != DType::kInt32 || codes.shape.size() != 2 || codes.num_bytes == 0)
    parts.fail(".qweight", "I32 of two dimensions; other pack_dtypes are not read");
  const int64_t words = codes.shape[0], out = codes.shape[1],
                in = gptq_inputs(parts, config, words), bits = gptq_bits(parts, config, words, in);
  const TensorView& scales = parts.at(".scales");
  if (scales.shape.size() != 2 || scales.shape[0] < 1 || scales.shape[0] > in ||
      scales.shape[1] != out)
    parts.fail(".scales", temper::str("[groups, ", out, "]"));
  const int64_t groups = scales.shape[0];
  parts.at(".qzeros", DType::kInt32, {groups, words_of(out, bits)});
  Groups columns = gptq_columns(parts, config, in, groups);
  return {std::move(parts), bits, in, out, groups, config.zero_less_one, std::move(columns)};
}

// [groups, out]. Where fields lie whole in words, one is added to all of a word's at once, as
// GPTQModel does: it took one away in the same manner, so that what a field borrowed from the next
// comes back.
std::vector<float> gptq_zeros(const GptqMatrix& m) {
  const TensorView& view = m.parts.at(".qzeros");
  const bool by_word = m.zero_less_one && m.bits != 3;
  const uint32_t ones = m.bits == 2 ? 0x55555555u : m.bits == 4 ? 0x11111111u : 0x01010101u;
  std::vector<uint32_t> words(view.num_bytes / 4);
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = word_at(view.data, static_cast<int64_t>(i)) + (by_word ? ones : 0);
  const std::vector<uint8_t> fields = unpack({.words = reinterpret_cast<std::byte*>(words.data()),
                                              .bits = m.bits,
                                              .rows = m.groups,
                                              .fields = m.out,
                                              .next_row = words_of(m.out, m.bits),
                                              .next_word = 1},
                                             {});
  std::vector<float> zeros(fields.size());
  for (size_t i = 0; i < zeros.size(); ++i)
    zeros[i] = static_cast<float>(m.zero_less_one && !by_word ? (fields[i] + 1) & 7 : fields[i]);
  return zeros;
}

ops::Codes gptq_codes(const GptqMatrix& m) {
  constexpr float kByteBias = 128;  // of codes that are stored as bytes in two's complement
  const std::vector<float> scales = m.parts.scales(".scales", 256), zeros = gptq_zeros(m);
  const TensorView& packed = m.parts.at(".qweight");
  ops::Codes codes{.format = m.format(), .rows = m.out, .width = m.in, .group = m.columns.size};
  codes.codes = unpack({.words = packed.data,
                        .bits = m.bits,
                        .rows = m.out,
                        .fields = m.in,
                        .next_row = 1,
                        .next_word = m.out},
                       m.columns.places(m.in));
  give_back_pages(packed);
  if (m.bits == 8)
    for (uint8_t& code : codes.codes) code ^= 0x80;
  const auto groups = m.columns.of.size(), rows = static_cast<size_t>(m.out);
  codes.scales.resize(rows * groups), codes.offsets.resize(rows * groups);
  for (size_t row = 0; row < rows; ++row)
    for (size_t g = 0; g < groups; ++g) {
      const size_t from = static_cast<size_t>(m.columns.of[g]) * rows + row;
      codes.scales[row * groups + g] = scales[from];
      codes.offsets[row * groups + g] = zeros[from] - (m.bits == 8 ? kByteBias : 0);
    }
  codes.order = m.columns.order;
  return codes;
}

void open_gptq(TensorMap& tensors, const HfConfig& hf, const std::string& directory) {
  const Json* quantization = quantization_of(hf, "gptq");
  if (!quantization) return;
  const GptqConfig config = gptq_config(hf, *quantization);
  for (const std::string& module : modules_with(tensors, ".qweight")) {
    const auto matrix = std::make_shared<const GptqMatrix>(
        gptq_matrix(MatrixParts(tensors, module, kGptqParts, directory), config));
    tensors[module + ".weight"] = coded_view(matrix->format(), matrix->out, matrix->in,
                                             [matrix] { return gptq_codes(*matrix); });
  }
}

std::string unread_of_gptq(const Json& quantization) {
  const std::string of_checkpoint = quantization_text(quantization, "checkpoint_format"),
                    of_code = quantization_text(quantization, "format");
  if (!of_checkpoint.empty() && !of_code.empty() && of_checkpoint != of_code)
    return "GPTQ with the checkpoint_format `" + of_checkpoint + "` and the format `" + of_code +
           "`";
  for (const char* key : {"checkpoint_format", "format"}) {
    const std::string format = quantization_text(quantization, key);
    if (!format.empty() && format != "gptq" && format != "gptq_v2")
      return "GPTQ in the " + std::string(key) + " `" + format + "` (gptq and gptq_v2 are read)";
  }
  const std::string pack = quantization_text(quantization, "pack_dtype");
  if (!pack.empty() && pack != "int32" && pack != "torch.int32")
    return "GPTQ with the pack_dtype `" + pack + "` (int32 is read)";
  for (const char* kernel : {"is_marlin_format", "use_marlin"})
    if (quantization.value(kernel, Json(false)) == true)
      return "GPTQ with `" + std::string(kernel) + "` (gptq and gptq_v2 are read)";
  if (const Json rotation = quantization.value("rotation", Json()); !rotation.is_null())
    return "GPTQ with a rotation of the weights";
  const Json bits = quantization.value("bits", Json(4));
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
    return "GPTQ in bits: " + dump_json(bits) + " (2, 3, 4 and 8 are read)";
  return "";
}

const Registered<CheckpointFormat> kGptq(&checkpoint_formats,
                                         {"gptq",
                                          {.open = &open_gptq, .unread = &unread_of_gptq},
                                          "GPTQ in 2, 3, 4 and 8 bits"});

}  // namespace
}  // namespace temper::models
