#include "temper/models/weight_cache.h"

#include <ATen/ATen.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "temper/base/error.h"
#include "temper/base/random.h"
#include "temper/io/safetensors.h"
#include "temper/models/tensors.h"

namespace temper::models {
namespace {
namespace fs = std::filesystem;

constexpr const char* kSource = "source";  // the text that the file was made from
constexpr const char* kCodes = ".codes";
constexpr const char* kScales = ".scales";
constexpr const char* kShape = ".shape";

std::string directory() {
  if (const char* own = std::getenv("TEMPER_CACHE_DIR")) return own;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    return str(cache, "/temper");
  const char* home = std::getenv("HOME");
  return home && *home ? str(home, "/.cache/temper") : "";
}

// 128 bits, in hexadecimal: Philox keyed by what came before.
std::string hash_of(const std::string& text) {
  std::array<uint32_t, 4> words{};
  for (size_t i = 0; i < text.size(); ++i)
    words = philox({words[0], words[1]},
                   {words[2], words[3], static_cast<uint8_t>(text[i]), static_cast<uint32_t>(i)});
  char out[33];
  std::snprintf(out, sizeof out, "%08x%08x%08x%08x", words[0], words[1], words[2], words[3]);
  return out;
}

// When a file was last changed in any way. A time of writing can be set, and a number of a removed
// file be given again; this cannot.
std::string change_of(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return "gone";
  return str(status.st_ctim.tv_sec, ".", status.st_ctim.tv_nsec);
}

// One weight of a file's tensors; null where they do not fit together.
std::shared_ptr<const ops::QuantizedWeight> weight_of(const TensorMap& tensors,
                                                      const std::string& name, kernels::Code code) {
  const auto shape = tensors.find(name + kShape), codes = tensors.find(name + kCodes),
             scales = tensors.find(name + kScales);
  for (const auto& it : {shape, codes, scales})
    if (it == tensors.end()) return nullptr;
  const at::Tensor size = to_tensor(shape->second, at::kLong);
  if (size.numel() != 2 || codes->second.dtype != DType::kUInt8 ||
      scales->second.dtype != DType::kFloat32)
    return nullptr;
  auto weight = std::make_shared<ops::QuantizedWeight>();
  weight->code = code;
  weight->rows = size.const_data_ptr<int64_t>()[0];
  weight->width = size.const_data_ptr<int64_t>()[1];
  if (weight->rows <= 0 || weight->width <= 0 || weight->rows > INT32_MAX ||
      weight->width > INT32_MAX)
    return nullptr;
  weight->codes = to_tensor(codes->second, at::kByte);
  weight->scales = to_tensor(scales->second, at::kFloat);
  if (weight->codes.numel() != kernels::code_bytes(code, weight->rows, weight->width) ||
      weight->scales.numel() != kernels::scale_count(code, weight->rows, weight->width))
    return nullptr;
  return weight;
}

}  // namespace

WeightCache::WeightCache(const MappedFiles& files, kernels::Code code) : code_(code) {
  std::string name =
      str("weights 2, code ", static_cast<int>(code), ", panels of ", kernels::panel_width(), "\n");
  for (const MappedFiles::File& file : files.files()) {
    const std::string path = fs::absolute(file.path).lexically_normal().string();
    name += path + "\n";
    source_ += str(path, " ", file.device, " ", file.inode, " ", file.size, " ", file.seconds, ".",
                   file.nanoseconds, " ", change_of(file.path), "\n");
  }
  source_ = name + source_;
  const std::string in = directory();
  if (!in.empty()) path_ = in + "/weights/" + hash_of(name) + ".safetensors";
}

QuantizedWeights WeightCache::read() const {
  std::error_code none;
  if (path_.empty() || !fs::exists(path_, none)) return {};
  QuantizedWeights weights;
  try {
    const TensorMap tensors = read_safetensors(path_);
    const auto source = tensors.find(kSource);
    if (source == tensors.end() || bytes_of(source->second) != source_) return {};
    for (const auto& [key, view] : tensors) {
      if (!key.ends_with(kCodes)) continue;
      const std::string name = key.substr(0, key.size() - std::string_view(kCodes).size());
      auto weight = weight_of(tensors, name, code_);
      if (!weight) return {};
      weights[name] = std::move(weight);
    }
  } catch (const Error&) {
    return {};  // damaged: quantize again
  }
  return weights;
}

void WeightCache::write(const QuantizedWeights& weights) const {
  if (path_.empty()) return;
  TensorMap tensors{{kSource, bytes_view(source_)}};
  for (const auto& [name, weight] : weights) {
    tensors[name + kCodes] = to_view(weight->codes);
    tensors[name + kScales] = to_view(weight->scales);
    tensors[name + kShape] = to_view(at::tensor({weight->rows, weight->width}, at::kLong));
  }
  try {
    fs::create_directories(fs::path(path_).parent_path());
    write_safetensors(path_, tensors);
  } catch (const std::exception&) {
    return;  // no place for it: the next start quantizes again
  }
}

}  // namespace temper::models
