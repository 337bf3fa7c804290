#include "temper/models/weight_cache.h"

#include <ATen/ATen.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "temper/base/error.h"
#include "temper/io/safetensors.h"
#include "temper/models/files/tensors.h"

namespace temper::models {
namespace {
namespace fs = std::filesystem;

constexpr const char* kSource = "source";  // the text that the file was made from
constexpr const char* kHash = "hash";      // of everything else in the file
constexpr const char* kFirstWord = "weights ";
constexpr const char* kPath = "path ";  // how a line of the source begins that names a file
constexpr const char* kCodes = ".codes";
constexpr const char* kScales = ".scales";
constexpr const char* kShape = ".shape";

std::string weight_cache_directory() {
  if (const char* own = std::getenv("TEMPER_CACHE_DIR")) return own;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    return str(cache, "/temper");
  const char* home = std::getenv("HOME");
  return home && *home ? str(home, "/.cache/temper") : "";
}

std::string in_hexadecimal(const XXH128_hash_t& hash) {
  char out[33];
  std::snprintf(out, sizeof out, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return out;
}

std::string hash_of(const std::string& text) {
  return in_hexadecimal(XXH3_128bits(text.data(), text.size()));
}

// A hash of the tensors' names and bytes.
std::string hash_of(const TensorMap& tensors) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_128bits_reset(state.get());
  for (const auto& [name, view] : tensors) {
    if (name == kHash) continue;
    XXH3_128bits_update(state.get(), name.c_str(), name.size() + 1);
    XXH3_128bits_update(state.get(), view.data, view.num_bytes);
  }
  return in_hexadecimal(XXH3_128bits_digest(state.get()));
}

bool is_whole(const TensorMap& tensors) {
  const auto hash = tensors.find(kHash);
  return hash != tensors.end() && bytes_of(hash->second) == hash_of(tensors);
}

// Whether it is a file of this cache, of a model that is no longer where it was. What is not known
// to be the cache's own is left alone.
bool is_orphan(const fs::path& file) {
  const std::string stem = file.stem().string();
  if (file.extension() != ".safetensors" || stem.size() != 32 ||
      stem.find_first_not_of("0123456789abcdef") != std::string::npos)
    return false;
  try {
    const TensorMap tensors = read_safetensors(file.string());
    const auto source = tensors.find(kSource);
    if (source == tensors.end()) return false;
    const std::string text = bytes_of(source->second);
    if (!text.starts_with(kFirstWord)) return false;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(kPath) && !fs::exists(line.substr(std::string_view(kPath).size())))
        return true;
  } catch (const std::exception&) {
  }
  return false;
}

void remove_orphans(const fs::path& directory) {
  std::vector<fs::path> gone;
  for (const auto& entry : fs::directory_iterator(directory))
    if (is_orphan(entry.path())) gone.push_back(entry.path());
  std::error_code ignored;
  for (const fs::path& path : gone) fs::remove(path, ignored);
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
                                                      const std::string& name,
                                                      ops::WeightFormat format) {
  const auto shape = tensors.find(name + kShape), codes = tensors.find(name + kCodes),
             scales = tensors.find(name + kScales);
  for (const auto& it : {shape, codes, scales})
    if (it == tensors.end()) return nullptr;
  const at::Tensor size = to_tensor(shape->second, at::kLong);
  if (size.numel() != 2 || codes->second.dtype != DType::kUInt8 ||
      scales->second.dtype != DType::kFloat32)
    return nullptr;
  auto weight = std::make_shared<ops::QuantizedWeight>();
  weight->format = format;
  weight->rows = size.const_data_ptr<int64_t>()[0];
  weight->width = size.const_data_ptr<int64_t>()[1];
  if (weight->rows <= 0 || weight->width <= 0 || weight->rows > INT32_MAX ||
      weight->width > INT32_MAX)
    return nullptr;
  weight->block = ops::block_size(format, weight->width);
  weight->codes = to_tensor(codes->second, at::kByte);
  weight->scales = to_tensor(scales->second, at::kFloat);
  return ops::is_in_panels(*weight) ? weight : nullptr;
}

}  // namespace

WeightCache::WeightCache(const MappedFiles& files, ops::WeightFormat format) : format_(format) {
  std::string name = str(kFirstWord, "3, code ",
                         static_cast<int>(format) - static_cast<int>(ops::WeightFormat::kInt8),
                         ", panels of ", ops::panel_width(), "\n");
  for (const MappedFiles::File& file : files.files()) {
    const std::string path = fs::absolute(file.path).lexically_normal().string();
    name += kPath + path + "\n";
    source_ += str(path, " ", file.device, " ", file.inode, " ", file.size, " ", file.seconds, ".",
                   file.nanoseconds, " ", change_of(file.path), "\n");
  }
  source_ = name + source_;
  const std::string in = weight_cache_directory();
  if (!in.empty()) path_ = in + "/weights/" + hash_of(name) + ".safetensors";
}

QuantizedWeights WeightCache::read() const {
  std::error_code none;
  if (path_.empty() || !fs::exists(path_, none)) return {};
  QuantizedWeights weights;
  try {
    const TensorMap tensors = read_safetensors(path_);
    const auto source = tensors.find(kSource);
    if (source == tensors.end() || bytes_of(source->second) != source_ || !is_whole(tensors))
      return {};
    for (const auto& [key, view] : tensors) {
      if (!key.ends_with(kCodes)) continue;
      const std::string name = key.substr(0, key.size() - std::string_view(kCodes).size());
      auto weight = weight_of(tensors, name, format_);
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
  const std::string hash = hash_of(tensors);
  tensors[kHash] = bytes_view(hash);
  try {
    const fs::path in = fs::path(path_).parent_path();
    fs::create_directories(in);
    write_safetensors(path_, tensors);
    remove_orphans(in);
  } catch (const std::exception&) {
    return;  // no place for it: the next start quantizes again
  }
}

std::string WeightCache::directory() {
  const std::string in = weight_cache_directory();
  return in.empty() ? "" : in + "/weights";
}

int64_t WeightCache::total_bytes() {
  int64_t total = 0;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(directory(), none)) {
    const auto bytes = entry.file_size(none);
    if (!none) total += static_cast<int64_t>(bytes);
  }
  return total;
}

}  // namespace temper::models
