// A model of 148 numbers, whose bytes can be counted by hand.
#pragma once

#include "temper/check/memory/run_shape.h"

namespace temper::checks::tiny {

// An embedding and a head of 10 x 4, two blocks of one 8 x 4 layer each, divided by its rows under
// tensor parallelism, and a norm of 4 that FSDP leaves whole.
inline ModelShape shape() {
  const auto block = [](int64_t number) {
    return ShapedTensor{.name = "model.layers." + std::to_string(number) + ".a.weight",
                        .shape = {8, 4},
                        .split = 0,
                        .role = nn::Role::kMlp,
                        .unit = number + 1,
                        .in_block = true,
                        .matrix = true};
  };
  ModelShape shape;
  shape.tensors = {{.name = "model.embed_tokens.weight",
                    .shape = {10, 4},
                    .role = nn::Role::kEmbedding,
                    .unit = 0,
                    .matrix = true},
                   block(0),
                   block(1),
                   {.name = "model.norm.weight", .shape = {4}, .role = nn::Role::kNorm},
                   {.name = "lm_head.weight",
                    .shape = {10, 4},
                    .role = nn::Role::kHead,
                    .unit = 3,
                    .matrix = true}};
  shape.units = 4;
  shape.layers = shape.heads = shape.kv_heads = shape.head_dim = 2;
  shape.cached.assign(2, {2, 2});
  shape.hidden = 4;
  shape.vocabulary = 10;
  return shape;
}

inline RunShape run() {
  RunShape run;
  run.policy.role = "policy";
  run.policy.shape = shape();
  run.largest = {{8, 8, true}, {8, 8, false}};
  return run;
}

// An adapter of rank 3 on the layer of the first block: 3 x (4 + 8) numbers.
inline void adapt(ModelRole& role) {
  role.trains = false;
  role.adapted = {"model.layers.0.a"};
  role.rank = 3;
  role.adapters = role.trained_copies = 1;
}

}  // namespace temper::checks::tiny
