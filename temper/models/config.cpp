#include "temper/models/config.h"

namespace temper {

template <>
inline constexpr std::array enum_names<models::ModelSection::Dtype> = {"float32", "bfloat16"};
template <>
inline constexpr std::array enum_names<models::ModelSection::Device> = {"auto", "cpu", "cuda"};
template <>
inline constexpr std::array enum_names<models::ModelSection::Storage> = {"float32", "bfloat16",
                                                                         "int8", "nf4"};
template <>
inline constexpr std::array enum_names<models::ModelSection::Arithmetic> = {"exact", "fast"};
template <>
inline constexpr std::array enum_names<models::AdapterSection::Method> = {"none", "lora", "qlora"};

}  // namespace temper

namespace temper::models {

void ModelSection::fields(Fields& f) {
  f.add("path", path, "directory of a Hugging Face model");
  f.add("dtype", dtype,
        "number type of the weights in matrix products; sums, activations, master weights and the "
        "optimizer's state stay float32; frozen weights are kept in it");
  f.add("arithmetic", arithmetic,
        "products under dtype: bfloat16; fast rounds activations and gradients to bfloat16 as they "
        "are multiplied, sums are float32; exact keeps them in float32");
  f.add("device", device, "device that computes");
  f.add("storage", storage,
        "how frozen weights are kept; int8 and nf4: the blocks' linear layers, the rest as dtype "
        "says; null: as dtype says, nf4 under qlora");
}
void AdapterSection::fields(Fields& f) {
  f.add("method", method,
        "none trains all weights; lora a low-rank update; qlora the same over 4-bit weights");
  f.add("rank", rank, "rank of the update", at_least(1));
  f.add("alpha", alpha, "the update is scaled by alpha / rank", above(0));
  f.add("dropout", dropout, "dropout probability on the adapter's input", fraction());
  f.add("target_modules", target_modules, "all-linear, or names of linear layers", one_or_list());
  f.add("use_rslora", use_rslora, "scale by alpha / sqrt(rank)");
  f.add("use_dora", use_dora,
        "weight-decomposed: rows of the adapted weight have a trained length of their own (DoRA)");
  f.add("modules_to_save", modules_to_save,
        "modules that train whole beside the adapter and are saved with it: embed_tokens, lm_head",
        one_or_list());
  f.add("loraplus_ratio", loraplus_ratio,
        "factor on the learning rate of the adapter's B matrices and magnitudes (LoRA+)", above(0));
  f.add("path", path, "a PEFT adapter to go on from; rank, alpha and modules are its own");
}

}  // namespace temper::models
