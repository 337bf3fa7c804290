// Any bytes as the JSON of a model directory that says how images are processed: layouts of
// pictures that fit together, or a ConfigError or DataError. The first two bytes are a picture's
// size, the next two bounds of its pixels. Seeds: tests/fuzz/seeds/processor.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/image/processor.h"

namespace {
using namespace temper;
namespace fs = std::filesystem;

constexpr size_t kHead = 4;

void check_layout(const ImageProcessor& processor, const ImageLayout& layout) {
  const ImagePatches& patches = processor.patches();
  if (layout.tiles.empty() || layout.tokens() < 1 || layout.patches() < 1) std::abort();
  for (size_t i = 0; i < layout.canvases.size(); ++i) {
    const ImageCanvas& canvas = layout.canvases[i];
    if (canvas.from >= static_cast<int>(i) || canvas.size.width < 1 || canvas.size.height < 1)
      std::abort();
  }
  for (const ImageTile& tile : layout.tiles) {
    const ImageSize& canvas = layout.canvases.at(static_cast<size_t>(tile.canvas)).size;
    if (tile.rows < 1 || tile.columns < 1 || tile.tokens() < 1) std::abort();
    if (tile.left + tile.columns * patches.size > canvas.width ||
        tile.top + tile.rows * patches.size > canvas.height)
      std::abort();
  }
  const std::string text = processor.expand(layout), &image = processor.tokens().image;
  int64_t count = 0;
  for (size_t at = text.find(image); at != text.npos; at = text.find(image, at + image.size()))
    ++count;
  if (count < layout.tokens()) std::abort();
}

// Sides from 1 to 4,000, more small ones than large ones; bounds from 1 to 2^63 - 1.
int64_t side_of(uint8_t byte) { return 1 + int64_t{byte} * byte / 16; }
std::optional<int64_t> bound_of(uint8_t byte) {
  if (byte < 64) return {};
  return (int64_t{1} << (byte & 63) % 63) + (byte >> 6) - 1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fs::path directory =
      fs::temp_directory_path() / ("temper-fuzz-processor-" + std::to_string(::getpid()));
  fs::create_directories(directory);
  if (size < kHead) return 0;
  const ImageSize picture{side_of(data[0]), side_of(data[1])};
  const PixelBounds bounds{bound_of(data[2]), bound_of(data[3])};
  Json files;
  try {
    files = parse_json({reinterpret_cast<const char*>(data) + kHead, size - kHead}, "files");
  } catch (const DataError&) {
    return 0;
  }
  // {"preprocessor_config": {..}, "config": {..}, ..}
  for (const char* name :
       {"preprocessor_config", "processor_config", "config", "tokenizer_config"}) {
    const fs::path path = directory / (std::string(name) + ".json");
    fs::remove(path);
    if (files.is_object() && files.contains(name))
      std::ofstream(path, std::ios::binary) << dump_json(files[name]);
  }
  try {
    const auto processor = ImageProcessor::open(directory.string(), bounds);
    check_layout(*processor, processor->layout(picture));
  } catch (const ConfigError&) {
  } catch (const DataError&) {
  }
  return 0;
}
