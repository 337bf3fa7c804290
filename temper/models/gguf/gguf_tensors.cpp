#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>

#include "temper/base/error.h"
#include "temper/models/adapters/adapter_parts.h"
#include "temper/models/files/tensors.h"
#include "temper/models/gguf/gguf.h"
#include "temper/models/gguf/gguf_pieces.h"

namespace temper::models {
namespace {

// What llama.cpp reads in float32 alone: vectors, also those of all experts together, routers, and
// the taps of convolutions.
bool is_float32(const std::string& name, size_t dimensions) {
  const auto is = [&](std::string_view part) { return name.find(part) != std::string::npos; };
  return dimensions < 2 || name.ends_with(".bias") || is(".ffn_gate_inp.") || is(".conv.") ||
         is(".ssm_conv1d.");
}

// The same piece of each expert.
struct StackedExperts {
  size_t place = 0;  // among the tensors
  std::vector<std::pair<GgufPiece, nn::Parameter*>> experts;

  std::vector<int64_t> shape() const {
    std::vector<int64_t> out = experts[0].first.shape;
    out.insert(out.begin(), static_cast<int64_t>(experts.size()));
    return out;
  }
};

class GgufTensors {
 public:
  GgufTensors(const GgufForm& form, at::ScalarType dtype, const ValueOf& value)
      : form_(form), dtype_(dtype), value_(value) {}

  void add(const std::string& name, nn::Parameter& parameter) {
    std::vector<GgufPiece> pieces = gguf_pieces(name, parameter, form_);
    check(!pieces.empty(), "`", name, "` has no name in GGUF");
    for (GgufPiece& piece : pieces) {
      if (piece.expert >= 0) {
        push(std::move(piece), parameter);
        continue;
      }
      if (piece.tensor == "token_embd.weight" && form_.repeats_embedding) {
        GgufPiece head = piece;
        head.tensor = "output.weight";
        add_whole(name, std::move(piece), parameter);
        piece = std::move(head);
      }
      add_whole(name, std::move(piece), parameter);
    }
  }

  std::vector<std::pair<std::string, TensorView>> take() {
    for (auto& entry : stacks_) set_stacked(std::move(entry.second));
    add_factors("rope_freqs.weight", form_.rope_factors);
    add_factors("rope_factors_long.weight", form_.long_factors);
    add_factors("rope_factors_short.weight", form_.short_factors);
    return std::move(tensors_);
  }

 private:
  void add_whole(const std::string& name, GgufPiece piece, nn::Parameter& parameter) {
    const std::string own = piece.tensor;
    const std::vector<int64_t> shape = piece.shape;
    const auto type = is_float32(own, shape.size()) ? at::kFloat : dtype_;
    tensors_.emplace_back(
        own, view_of(shape, type,
                     [name, type, value = value_, p = &parameter, piece = std::move(piece)] {
                       const at::NoGradGuard no_grad;
                       return rounded(piece.made(value(*p).detach().to(at::kFloat)).contiguous(),
                                      type, name);
                     }));
  }

  void push(GgufPiece piece, nn::Parameter& parameter) {
    const auto [found, fresh] = stacks_.try_emplace(piece.tensor);
    StackedExperts& stack = found->second;
    if (fresh) {
      stack.place = tensors_.size();
      tensors_.emplace_back(piece.tensor, TensorView());
    }
    check(piece.expert == static_cast<int64_t>(stack.experts.size()), "`", piece.tensor,
          "`: experts are not in order");
    stack.experts.emplace_back(std::move(piece), &parameter);
  }

  void set_stacked(StackedExperts stack) {
    auto& [own, view] = tensors_[stack.place];
    const std::vector<int64_t> shape = stack.shape();
    const auto type = is_float32(own, shape.size()) ? at::kFloat : dtype_;
    view = view_of(shape, type, [own, type, shape, value = value_, stack = std::move(stack)] {
      const at::NoGradGuard no_grad;
      at::Tensor all = at::empty(shape, type);
      for (const auto& [piece, parameter] : stack.experts) {
        const at::Tensor of_expert = value(*parameter).detach().to(at::kFloat);
        all[piece.expert].copy_(rounded(piece.made(of_expert), type, own));
      }
      return all;
    });
  }

  static at::Tensor rounded(const at::Tensor& value, at::ScalarType type, const std::string& name) {
    const at::Tensor made = value.to(type);
    check(type != at::kHalf || at::isfinite(made).all().item<bool>(), "`", name,
          "` has values beyond float16's range; export with --dtype bfloat16 or float32");
    return made;
  }

  void add_factors(const char* name, const std::vector<float>& factors) {
    if (!factors.empty()) tensors_.emplace_back(name, to_view(at::tensor(factors)));
  }

  const GgufForm& form_;
  at::ScalarType dtype_;
  const ValueOf& value_;
  std::vector<std::pair<std::string, TensorView>> tensors_;
  std::map<std::string, StackedExperts> stacks_;  // by name
};

}  // namespace

at::Tensor own_value(nn::Parameter& parameter) { return parameter.float_value(); }

std::vector<std::pair<std::string, TensorView>> gguf_tensors(CausalLM& model, const GgufForm& form,
                                                             at::ScalarType dtype,
                                                             const ValueOf& value) {
  GgufTensors tensors(form, dtype, value);
  model.each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (!is_of_adapter(name)) tensors.add(name, parameter);
  });
  return tensors.take();
}

}  // namespace temper::models
