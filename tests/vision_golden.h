// What tests of models that read images share: tests/golden/vision, made by
// tests/golden/make_vision_goldens.py.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temper/base/json.h"
#include "temper/io/safetensors.h"
#include "temper/models/files/load.h"
#include "temper/models/vision/encoder.h"
#include "temper/models/vision/load.h"
#include "tests/golden.h"

namespace temper::vision_golden {

inline std::string directory_of(const std::string& name) { return golden_path("vision/" + name); }

inline std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("vision")))
    all.push_back(entry.path().filename().string());
  std::sort(all.begin(), all.end());
  return all;
}

struct Golden {
  explicit Golden(const std::string& name)
      : directory(directory_of(name)),
        tensors(read_safetensors(directory + "/expected.safetensors")),
        json(read_json_file(directory + "/expected.json")) {}

  at::Tensor tensor(const std::string& key) const {
    return models::to_tensor(tensors.at(key), at::kFloat);
  }
  bool has(const std::string& key) const { return tensors.contains(key); }
  int64_t num_images() const { return std::ssize(json["images"]); }
  models::ImagePixels pixels(int64_t image) const {
    const Json& described = json["images"][static_cast<size_t>(image)];
    models::ImagePixels pixels{tensor(str("pixels.", image))};
    if (described.contains("grid")) {
      pixels.grid_rows = described["grid"][0];
      pixels.grid_columns = described["grid"][1];
    }
    if (described.contains("tiles"))
      pixels.tiles = described["tiles"].get<std::vector<std::array<int64_t, 2>>>();
    pixels.values = as_patches(pixels);
    return pixels;
  }
  // transformers' processors give tiles as [tiles, channels, height, width] or as [tiles, patches,
  // ..] with padding, the towers take the patches alone.
  at::Tensor as_patches(const models::ImagePixels& pixels) const {
    const at::Tensor& x = pixels.values;
    if (x.dim() == 4) {
      const int64_t p = read_json_file(directory + "/config.json")["vision_config"]["patch_size"],
                    rows = x.size(2) / p, columns = x.size(3) / p;
      return x.view({x.size(0), x.size(1), rows, p, columns, p})
          .permute({0, 2, 4, 1, 3, 5})
          .reshape({x.size(0) * rows * columns, x.size(1) * p * p});
    }
    if (x.dim() == 3) {
      std::vector<at::Tensor> parts;
      for (size_t t = 0; t < pixels.tiles.size(); ++t)
        parts.push_back(
            x[static_cast<int64_t>(t)].narrow(0, 0, pixels.tiles[t][0] * pixels.tiles[t][1]));
      return at::cat(parts);
    }
    return x;
  }
  int64_t num_rows() const { return std::ssize(json["rows"]); }
  std::vector<int32_t> tokens(int64_t row) const {
    return json["rows"][static_cast<size_t>(row)]["tokens"];
  }
  // Of a row's images, in the order of its placeholders.
  std::vector<ExternalRows> rows(int64_t row, models::Encoder& encoder) const {
    const std::vector<int32_t> ids = tokens(row);
    const std::vector<int64_t> images = json["rows"][static_cast<size_t>(row)]["images"];
    const int32_t placeholder = json["placeholder"];
    std::vector<ExternalRows> all;
    int64_t at = 0;
    for (const int64_t image : images) {
      const std::vector<int64_t> parts = json["images"][static_cast<size_t>(image)]["parts"];
      int64_t first = 0;
      for (const int64_t count : parts) {
        while (ids[static_cast<size_t>(at)] != placeholder) ++at;
        all.push_back(encoder.rows({.begin = at,
                                    .count = count,
                                    .first = first,
                                    .digest = str("image ", image),
                                    .pixels = [&, image] { return pixels(image); }}));
        first += count;
        at += count;
      }
    }
    return all;
  }

  std::string directory;
  TensorMap tensors;
  Json json;
};

// log p of every token after a row's first that is no placeholder, all rows packed.
inline at::Tensor log_probabilities(models::CausalLM& model, const Golden& golden,
                                    models::Encoder& encoder) {
  auto forest = std::make_shared<Forest>();
  std::vector<int64_t> rows, target;
  for (int64_t r = 0; r < golden.num_rows(); ++r) {
    const std::vector<int32_t> ids = golden.tokens(r);
    const int64_t start = forest->num_tokens();
    forest->add_root(ids, 0, golden.rows(r, encoder));
    for (size_t i = 1; i < ids.size(); ++i) {
      if (ids[i] == golden.json["placeholder"].get<int32_t>()) continue;
      rows.push_back(start + static_cast<int64_t>(i) - 1);
      target.push_back(ids[i]);
    }
  }
  const at::Tensor hidden = model.forward({.forest = forest});
  return model.token_logp(hidden, rows, target).logp;
}

}  // namespace temper::vision_golden
