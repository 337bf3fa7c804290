// What llama.cpp's architecture for a family computes; of a config that asks for something else,
// `export --format gguf` says which key it is (gguf_form.h).
#pragma once

#include <cstdint>

namespace temper::models {

struct GgufArchitecture {
  const char* name;           // general.architecture
  bool interleaved = false;   // rotates pairs (2i, 2i + 1)
  bool rope_factors = false;  // reads rope_freqs
  bool gelu = false;
  bool output_bias = false;  // of attention
  bool mlp_bias = false;
  bool own_head = true;       // reads output.weight
  bool own_head_size = true;  // heads of another size than hidden_size / heads
  bool soft_caps = false;  // always caps scores and logits; others cap logits where a key says so
  bool windows = false;
  int64_t window_period = 0;     // every layer has a window but each window_period-th
  int64_t exception_layers = 0;  // of a model of so many layers, queries are scaled by
                                 // hidden_size / heads
};

}  // namespace temper::models
