#include "temper/models/gguf/gguf_parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <set>

#include "temper/base/error.h"
#include "temper/models/files/tensors.h"
#include "temper/models/gguf/gguf_pieces.h"
#include "temper/models/gguf/gguf_rows.h"
#include "temper/models/gguf/gguf_source.h"
#include "temper/models/model.h"

namespace temper::models {
namespace {

// Tensors that the configuration was made of, or that it says twice.
constexpr const char* kTensorsOfConfig[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                            "rope_factors_short.weight"};

// The number of the block of "blk.N.NAME"; below 0: it is in none.
int64_t block_number(const std::string& name) {
  constexpr std::string_view kBlock = "blk.";
  if (!name.starts_with(kBlock)) return -1;
  const size_t dot = name.find('.', kBlock.size());
  const std::string digits = name.substr(kBlock.size(), dot - kBlock.size());
  const bool number =
      !digits.empty() && digits.size() < 9 && digits.find_first_not_of("0123456789") == digits.npos;
  return number ? std::stol(digits) : -1;
}

int64_t product_of(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t extent : shape) product *= extent;
  return product;
}

// What a parameter is put together of.
struct PieceOfFile {
  GgufPiece piece;
  GgufStored stored;
};

class ParametersOfFile {
 public:
  ParametersOfFile(const GgufFile& file, const HfConfig& config, const std::string& where)
      : file_(file), where_(where), form_(gguf_form(config)), model_(make_model(config)) {}

  TensorMap take() {
    int64_t layers = 0;
    model_->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
      add(name, parameter);
      constexpr std::string_view kLayers = "model.layers.";
      if (name.starts_with(kLayers))
        layers = std::max<int64_t>(layers, std::stol(name.substr(kLayers.size())) + 1);
    });
    const int64_t blocks = GgufSource(file_, where_).number("block_count");
    const bool tied = form_.repeats_embedding;
    const auto is_known = [&](const std::string& name) {
      if (used_.contains(name) || (tied && name == "output.weight")) return true;
      const int64_t block = block_number(name);
      if (block >= layers && block < blocks) return true;  // layers that draft tokens
      return std::find(std::begin(kTensorsOfConfig), std::end(kTensorsOfConfig), name) !=
             std::end(kTensorsOfConfig);
    };
    for (const auto& [name, view] : file_.tensors)
      if (!is_known(name)) out_.emplace(name, view);
    for (const auto& [name, blocks] : file_.blocks)
      if (!is_known(name)) out_.emplace(name, blocks.bytes);
    return std::move(out_);
  }

 private:
  std::string place(const std::string& tensor) const {
    return str(where_, ": tensor `", tensor, "`");
  }

  // nullopt: the file does not have it.
  std::optional<GgufStored> find(const GgufPiece& piece) {
    const auto plain = file_.tensors.find(piece.tensor);
    const auto blocks = file_.blocks.find(piece.tensor);
    const bool coded = plain == file_.tensors.end();
    if (coded && blocks == file_.blocks.end()) return {};
    used_.insert(piece.tensor);
    const std::vector<int64_t>& found = coded ? blocks->second.shape : plain->second.shape;
    std::vector<int64_t> expected = piece.shape;
    int64_t entries = 1;
    if (piece.expert >= 0) {
      check<DataError>(!found.empty() && piece.expert < found[0], place(piece.tensor), ": has ",
                       found.empty() ? 0 : found[0], " experts, expected more than ", piece.expert);
      entries = found[0];
      expected.insert(expected.begin(), entries);
    }
    check<DataError>(found == expected, place(piece.tensor), ": is ", shape_text(found),
                     ", expected ", shape_text(expected));
    GgufStored stored;
    stored.bytes = coded ? blocks->second.bytes : plain->second;
    if (coded) stored.block = blocks->second.type;
    check<DataError>(coded || is_float(stored.bytes.dtype), place(piece.tensor), ": found ",
                     dtype_name(stored.bytes.dtype), ", expected floats");
    stored.bytes.num_bytes /= static_cast<size_t>(entries);
    stored.bytes.data +=
        stored.bytes.num_bytes * static_cast<size_t>(std::max<int64_t>(piece.expert, 0));
    stored.width = piece.shape.empty() ? 1 : piece.shape.back();
    const int64_t values = product_of(piece.shape);
    check<DataError>(values > 0, place(piece.tensor), ": is empty");
    stored.count = values / stored.width;
    stored.bytes.shape =
        coded ? std::vector<int64_t>{static_cast<int64_t>(stored.bytes.num_bytes)} : piece.shape;
    return stored;
  }
  static bool is_float(DType dtype) {
    return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  }

  void add(const std::string& name, const nn::Parameter& parameter) {
    std::vector<PieceOfFile> pieces;
    for (GgufPiece& piece : gguf_pieces(name, parameter, form_)) {
      std::optional<GgufStored> stored = find(piece);
      if (!stored) return;  // the error is that the parameter is missing
      pieces.push_back({std::move(piece), *std::move(stored)});
    }
    if (pieces.empty()) return;
    const std::vector<int64_t> shape(parameter.whole_shape().begin(),
                                     parameter.whole_shape().end());
    if (are_rows(pieces, shape))
      out_.emplace(name, rows_view(pieces, shape));
    else
      out_.emplace(name, values_view(std::move(pieces), shape));
  }

  // Whether the parameter's rows are rows of the pieces, as they are.
  bool are_rows(const std::vector<PieceOfFile>& pieces, const std::vector<int64_t>& shape) const {
    const GgufStored& first = pieces[0].stored;
    const bool whole = pieces.size() == 1 && !pieces[0].piece.part.arrange;
    for (const auto& [piece, stored] : pieces) {
      const bool alike = stored.block.has_value() == first.block.has_value() &&
                         (stored.block ? stored.block->type == first.block->type
                                       : stored.bytes.dtype == first.bytes.dtype);
      if (!alike || piece.part.elements || piece.part.undo) return false;
      if (!whole && shape.size() != 2) return false;
      if (shape.size() >= 2 && stored.width != shape.back()) return false;
    }
    return true;
  }

  TensorView rows_view(const std::vector<PieceOfFile>& pieces, const std::vector<int64_t>& shape) {
    std::vector<GgufStored> parts;
    GgufRowMap rows;
    const bool whole = pieces.size() == 1 && !pieces[0].piece.part.arrange;
    if (!whole) rows.assign(static_cast<size_t>(shape[0]), {UINT32_MAX, 0});
    for (const auto& [piece, stored] : pieces) {
      if (!whole) {
        const at::Tensor sources = piece.sources(shape);
        const auto* const of = sources.const_data_ptr<int64_t>();
        for (int64_t i = 0; i < sources.numel(); ++i)
          rows[static_cast<size_t>(of[i])] = {static_cast<uint32_t>(parts.size()), i};
      }
      parts.push_back(stored);
    }
    for (const auto& [part, row] : rows)
      check(part != UINT32_MAX, place(pieces[0].piece.tensor), ": does not make a whole parameter");
    return gguf_rows(std::move(parts), std::move(rows), shape, place(pieces[0].piece.tensor));
  }

  // Made in float32: values or their places change.
  TensorView values_view(std::vector<PieceOfFile> pieces, const std::vector<int64_t>& shape) {
    return view_of(shape, at::kFloat, [pieces = std::move(pieces), shape] {
      const at::NoGradGuard no_grad;
      const int64_t rows = shape.empty() ? 1 : shape[0];
      at::Tensor out = at::empty(shape, at::kFloat);
      for (const auto& [piece, stored] : pieces) {
        at::Tensor values = stored.values();
        if (piece.part.undo) values = piece.part.undo(values);
        const at::Tensor sources = piece.sources(shape);
        at::Tensor to = piece.part.elements ? out.view({-1, 1}) : out.view({rows, -1});
        to.index_copy_(0, sources, values.reshape({sources.numel(), -1}));
      }
      return out;
    });
  }

  const GgufFile& file_;
  const std::string& where_;
  const GgufForm form_;
  const std::unique_ptr<CausalLM> model_;
  std::set<std::string> used_;
  TensorMap out_;
};

}  // namespace

TensorMap gguf_parameters(const GgufFile& file, const HfConfig& config, const std::string& where) {
  return ParametersOfFile(file, config, where).take();
}

}  // namespace temper::models
