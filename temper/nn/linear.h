// Linear layers with an optional low-rank adapter, and the other small layers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/nn/context.h"
#include "temper/nn/lora.h"
#include "temper/nn/module.h"
#include "temper/nn/weights/weight_versions.h"
#include "temper/ops/layers/linear.h"

namespace temper::nn {

// How the ranks of a tensor group divide a linear layer among them (Shoeybi et al., arXiv
// 1909.08053, section 3).
enum class LinearSplit {
  kNone,
  kColumns,  // each gives a part of the outputs, from the same input
  kRows,     // each reads a part of the inputs; the outputs are summed over the ranks
};

class Linear : public Module {
 public:
  Linear(Module& parent, std::string name, int64_t in, int64_t out, bool bias, double init_std,
         LinearSplit may_split = LinearSplit::kNone);

  at::Tensor forward(const ops::LinearInput& x, const Context& context);
  at::Tensor forward(const at::Tensor& x, const Context& context) {
    return forward(ops::LinearInput::plain(x), context);
  }

  // The layer joins several whose outputs, of these widths, lie one after the other: ranks divide
  // each of them.
  void set_joined(std::vector<int64_t> outputs) { joined_ = std::move(outputs); }
  // How ranks may divide it. What else computes with its input or output says so, too: kColumns
  // gives each rank the outputs of its part alone.
  LinearSplit may_split() const { return may_split_; }
  // Before the layer has values: this rank keeps its part. Throws ConfigError where it does not
  // divide.
  void split(std::shared_ptr<dist::Group> group);
  // Before the layer has values: that rank of the group has all of it, with the adapters that it
  // gets, and the others nothing (Parameter::give_to).
  void give_to(int owner, std::shared_ptr<dist::Group> group);

  // Adds an adapter; the base weight no longer trains. `key` is unique among the model's modules.
  // A magnitude (`dora`) has no value until it is set.
  void add_lora(int64_t rank, double scale, double dropout, uint64_t key, bool dora = false);
  Lora* lora() { return lora_.get(); }
  // The weight becomes Lora::merged, and the adapter is gone; what add_lora froze stays frozen.
  // Throws RunError where there are frozen copies: they would add to the merged weight.
  void merge_lora();
  // The adapter is gone; frozen copies of it stay.
  void remove_lora();

  // Copies the matrices of an adapter (0: the layer's own) as they are now: one more adapter that
  // has no dropout, is no parameter of the model, and does not train unless its owner makes it.
  // Gives its number for Context::adapter: that of the first copy that was removed, else 1, 2, ...;
  // a layer without an adapter counts along and adds nothing.
  int add_frozen_copy(int from = 0);
  // Gives a copy's memory back. Nothing computes with it any more.
  void remove_frozen_copy(int index);
  // Counts the copies of another layer, of which this one has none: their numbers agree from here
  // on.
  void count_copies_as(const Linear& other);
  // What Context::adapter = `index` means to this layer; null: the base weight alone. Throws
  // RunError for a copy that was not made.
  Lora* adapter(int index);

  // Whether it has an adapter or a copy of one.
  bool is_adapted() const;
  // Whether rows of several adapters may go through it together (mixed_adapters.h).
  bool mixes_adapters() const { return split_ == LinearSplit::kNone && rows_are_tokens_; }
  // What this rank adds to its outputs, [out]; undefined: nothing.
  at::Tensor added_bias() const;
  // Its rows are not in the order of the pass's tokens.
  void set_rows_are_not_tokens() { rows_are_tokens_ = false; }

  // Of the whole layer.
  int64_t in() const { return weight.whole_shape()[1]; }
  int64_t out() const { return weight.whole_shape()[0]; }

 private:
  std::optional<Parameter> own_weight_;

 public:
  Parameter& weight;              // [out, in]
  std::optional<Parameter> bias;  // [out]

 protected:
  // One whose weight is another module's, which outlives it.
  Linear(Module& parent, std::string name, Parameter& shared_weight);
  void accept(const std::string& path, const LayerVisitor& visitor) override;

 private:
  friend std::vector<at::Tensor> project(const ops::LinearInput&, const std::vector<Linear*>&,
                                         const Context&);
  struct FrozenCopy {
    std::unique_ptr<Module> owner;  // which the model does not list
    std::unique_ptr<Lora> lora;     // null in a layer without an adapter
    bool removed = false;
  };
  std::unique_ptr<Lora> make_lora(Module& owner, int64_t rank, double scale, double dropout,
                                  uint64_t key, bool dora) const;

  std::unique_ptr<Lora> lora_;
  std::vector<FrozenCopy> copies_;
  std::vector<int64_t> joined_;  // empty: it is one layer
  LinearSplit may_split_ = LinearSplit::kNone, split_ = LinearSplit::kNone;  // split_: it is so
  bool rows_are_tokens_ = true;
  std::shared_ptr<dist::Group> group_;  // null: the layer is whole
  int owner_ = -1;                      // the rank of the group that has all of it; -1: none
};

// A vocabulary head with a weight of its own, which an adapter may replace.
class LmHead : public Linear {
 public:
  LmHead(Module& parent, std::string name, int64_t width, int64_t vocabulary, double init_std);
  WeightVersions versions;

 protected:
  void accept(const std::string& path, const LayerVisitor& visitor) override;
};

// A vocabulary head that reads the embedding's weight: a place for an adapter of the head alone, as
// PEFT has it where target_modules names the lm_head of a tied model. What the embedding gives
// stays the base model's.
class TiedHead : public Linear {
 public:
  TiedHead(Module& parent, std::string name, Parameter& embedding_weight)
      : Linear(parent, std::move(name), embedding_weight) {
    set_role(Role::kHead);
  }

 protected:
  void accept(const std::string& path, const LayerVisitor& visitor) override;
};

// Several layers over one input, which split alike: what they read is normalized or gated once.
std::vector<at::Tensor> project(const ops::LinearInput& x, const std::vector<Linear*>& layers,
                                const Context& context);

class RmsNorm : public Module {
 public:
  // add_unit_offset: Gemma's norms multiply by 1 + weight and begin at 0. centered: the row's mean
  // is subtracted first, which makes it a layer norm without bias (Cohere).
  RmsNorm(Module& parent, std::string name, int64_t width, double eps, bool add_unit_offset = false,
          bool centered = false);

  // As the input of linear layers: computed again in the backward pass, not kept.
  ops::LinearInput input(const at::Tensor& x) const;
  at::Tensor forward(const at::Tensor& x) const { return ops::materialize(input(x)); }

  Parameter weight;
  double eps;
  bool add_unit_offset, centered;
};

class Embedding : public Module {
 public:
  Embedding(Module& parent, std::string name, int64_t vocabulary, int64_t width, double init_std,
            double scale = 1.0);
  // [N, width] of the context's tokens, with its noise where it has any; where the forest has
  // external rows, these as they are. Throws RunError for rows of another width.
  at::Tensor forward(const Context& context);
  // The same of the tokens alone: without noise and external rows.
  at::Tensor of_tokens(const Context& context);

  Parameter weight;  // [vocabulary, width]
  WeightVersions versions;
  double scale;

  // Before it has a value: this rank keeps its part of the vocabulary.
  void split(std::shared_ptr<dist::Group> group);

 protected:
  void accept(const std::string& path, const LayerVisitor& visitor) override;

 private:
  at::Tensor of_ids(const std::vector<int64_t>& ids, const Context& context);

  std::shared_ptr<dist::Group> group_;
};

}  // namespace temper::nn
