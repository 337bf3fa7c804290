// The sizes that decide a run's memory and its traffic between ranks, for every verb.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "temper/models/family.h"
#include "temper/models/model.h"
#include "temper/nn/latent_attention.h"
#include "temper/train/config.h"

namespace temper::checks {

struct ShapedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::optional<int64_t> split = {};  // the dimension that ranks of a tensor group divide
  nn::Role role = nn::Role::kNone;    // of what it is a parameter of
  int64_t unit = -1;                  // that FSDP gathers it with; -1: it stays whole
  bool in_block = false;              // a linear layer of a block: Storage::blocks
  bool matrix = false;                // a linear layer's, an embedding's or a head's
  // The format in which the files hold it quantized, where it is kept so: Storage::file.
  std::optional<ops::WeightFormat> held = {};
  bool absorbed = false;  // nn::LatentAttention's kv_b_proj: products read copies of it
  bool of_tower = false;  // of a vision tower, which is as it is on every rank
  bool trains = true;     // where the model does: train.freeze leaves others as they are
  int64_t size() const;
  bool is(nn::Role of) const { return role == of; }
  bool has_columns() const { return split == 0; }  // divided by its layer's outputs,
  bool has_rows() const { return split == 1; }     // or its inputs
};

struct CachedHeads {
  int64_t number, dim;  // heads of keys and of values, or of latents, and their size
};

// What a model is made of, told by its config.json alone: the tensors that ranks divide, and how
// many numbers a token leaves behind in a forward pass. No weight is read.
struct ModelShape {
  std::shared_ptr<const models::HfConfig> config;  // null: made by hand, and never run
  bool scalar = false;                             // its head is that of a ScalarModel
  std::vector<ShapedTensor> tensors;
  int64_t units = 0;  // embedding, blocks, a head that is not tied
  int64_t layers = 0, hidden = 0, vocabulary = 0, max_positions = 0;
  // Of the layer with the most parameters, or the first one with attention where that has none.
  // Where attention is latent, all heads share one key.
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::vector<CachedHeads> cached;  // by layer that a sampler caches keys of
  // Numbers of a token that mesh.context's ranks gather (keys and values), and that they exchange
  // for its heads and back (layers with a state), in all layers.
  int64_t gathered = 0, exchanged = 0;
  int64_t states = 0;  // numbers of a sequence's states in all layers (ops/layers/recurrent.h)
  int64_t experts = 0, experts_per_token = 0;  // of a mixture of experts
  std::optional<nn::LatentConfig> latent;      // nn::LatentAttention
  bool tied = false;
  // Numbers that the vision tower's own pass keeps for each token of an image; 0: it has none.
  int64_t tower_numbers = 0;

  int64_t parameters() const;
  // Products of a token with weights, in multiply-adds: of what every token goes through, every
  // matrix but the embedding's look-up, and of the experts that a token goes to.
  int64_t dense_multiplications() const, expert_multiplications() const;
  int64_t sparse_layers() const;  // layers with experts
  // Whether training gives heads keys and values of their own on a device, not latents
  // (nn::LatentAttention).
  bool expands_latents(at::Device device) const;
};

// Throw ConfigError for a config that no family of the program takes.
std::unique_ptr<models::Model> model_of(const models::HfConfig& config, bool scalar_head);
ModelShape shape_of(const models::HfConfig& config, bool scalar_head = false);
// Adds the vision tower that the model of the shape has; `taken`: it is the model's (Model::tower).
// `patches`: of an image, for each of its tokens.
void add_tower(ModelShape& shape, models::Tower& tower, bool taken, double patches);

using Ranks = dist::AxisSizes;

// A forward pass of a rank.
struct PassShape {
  int64_t tokens = 0, targets = 0;
  bool first = true;    // the step's first pass: no gradients are there yet
  int64_t longest = 0;  // tokens of its longest unit
};

// The ranks that share out a model: all of the mesh, as the policy; those of mesh.fsdp alone; or
// none, where each has it whole.
enum class SharedBy { kMesh, kFsdp, kNone };

// A model of the run: the policy, or one beside it.
struct ModelRole {
  std::string role;  // "policy", "reference", ...
  ModelShape shape;
  models::Storage storage;
  bool trains = true;  // all of its weights train
  SharedBy shared_by = SharedBy::kMesh;
  std::vector<std::string> adapted;  // paths of linear layers with an adapter
  std::vector<std::string> saved;    // weights that the adapter brings whole (modules_to_save)
  std::map<std::string, int64_t> token_rows;  // rows that train (LoraConfig::trained_tokens)
  int64_t rank = 0;
  bool dora = false, drops = false;  // the adapter has a magnitude; it has dropout
  int64_t adapters = 0;              // adapters in memory: a copy is the reference
  int64_t trained_copies = 0;        // adapters that train
  // Takes note of what the files of a directory hold quantized, where it is kept so.
  void note_held(const std::string& directory);
  // The format of integers (ops::has_integers) in which most of its values are kept; none: no
  // values are.
  std::optional<ops::WeightFormat> most_used_integers() const;
  // One beside the policy that completes rows of SamplingShape as well, at another time.
  bool samples = false;
  // Of so many ranks those that share it out; of an axis that does not, one.
  Ranks ranks_of(Ranks ranks) const;
};

// The completions that a rank samples at once.
struct SamplingShape {
  bool samples = false;
  // copies of what trains with which this process samples ahead, while it trains (rl.max_staleness)
  int64_t versions = 0;
  int64_t sequences = 0, prompts = 0;  // sequences at once, and their different prompts
  int64_t prompt_tokens = 0, new_tokens = 0;
  int64_t max_batch = 256;
  int64_t cache_bytes = 0;  // most bytes of keys and values
  ops::CacheDtype cache_dtype = ops::CacheDtype::kFloat32;
};

// Tensors that a distillation strategy keeps beside both models' own passes (temper/distill):
// widths, in numbers for each token of the pass.
struct ComparedShape {
  // every token is compared: the last block computes more than the targets' rows
  bool every_token = false;
  std::vector<int64_t> teacher;  // teacher's tensors, kept until the backward pass has ended
  // student's tensors, kept until the comparison is differentiated, which is before all blocks
  std::vector<int64_t> student;
  // gradients of layers' tensors, made by the comparison; each waits for its block
  std::vector<int64_t> gradients;
  std::vector<int64_t> scratch;  // tensors needed while one pair of layers is compared
  int64_t map_heads = 0;         // attention heads of both models: their maps exist by tiles
  // width of the teacher's hidden states of the targets, where distributions are compared
  int64_t teacher_hidden = 0;
};

// Bytes that a run writes besides its checkpoints.
struct DiskShape {
  int64_t rollouts = 0, rollout_file = 0;  // rollout files kept at once, and one file
  int64_t batch_state = 0;                 // the unfinished rollout batch in a checkpoint
  int64_t reference = 0;                   // in a checkpoint, of a reference that follows
  int64_t merged = 0;                      // critic/, merged where it shares the policy's base
};

struct RunShape {
  ModelRole policy;
  std::vector<ModelRole> others;
  at::Device device = at::kCPU;  // computes all models
  train::OptimizerSection optimizer;
  bool recompute = false;
  bool offload_inputs = false, offload_optimizer = false;  // train.offload
  int64_t number_bytes = 4;                                // bytes of an activation
  std::vector<PassShape> largest;  // passes: the largest first one of a step, the largest later one
  int64_t step_tokens = 0;         // tokens through the model in a step, all ranks
  int64_t passes = 1;              // passes of a rank in a step
  SamplingShape sampling;
  ComparedShape compared;
  DiskShape disk;
  bool snapshot = false;  // a copy of what trains is in memory while a thread writes a checkpoint
};

}  // namespace temper::checks
