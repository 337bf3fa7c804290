#include "temper/io/weight_files.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/base/json.h"
#include "temper/io/torch_file.h"

namespace temper {
namespace {
namespace fs = std::filesystem;

using ReadFunction = TensorMap (*)(const std::string& path);

TensorMap read_tensors(const std::string& path, ReadFunction read, MappedFiles* files) {
  MappedFiles::File file = MappedFiles::look_at(path);  // first: a write in between is noticed
  TensorMap tensors = read(path);
  if (!files) return tensors;
  std::set<const void*> seen;
  for (const auto& [name, view] : tensors)
    if (seen.insert(view.owner.get()).second) file.owners.push_back(view.owner);
  files->add(std::move(file));
  return tensors;
}

TensorMap read_shards(const std::string& directory, const std::string& index_path,
                      ReadFunction read, MappedFiles* files) {
  const Json index = read_json_file(index_path, size_t{256} << 20);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  check<DataError>(index.is_object() && map != index.end() && map->is_object(), index_path,
                   ": `weight_map` is missing");
  std::map<std::string, TensorMap> shards;
  TensorMap tensors;
  for (const auto& [name, file] : map->items()) {
    check<DataError>(file.is_string(), index_path, ": tensor `", name, "`: expected a file's name");
    const std::string shard = file.get<std::string>();
    check<DataError>(!shard.empty() && shard.find('/') == std::string::npos && shard != "..",
                     index_path, ": `", shard, "` is not the name of a file in this directory");
    if (!shards.contains(shard)) {
      check<DataError>(fs::exists(directory + "/" + shard), index_path, ": shard `", shard,
                       "` is missing");
      shards[shard] = read_tensors(directory + "/" + shard, read, files);
    }
    const auto found = shards[shard].find(name);
    check<DataError>(found != shards[shard].end(), index_path, ": tensor `", name, "` is not in `",
                     shard, "`");
    tensors.emplace(name, found->second);
  }
  return tensors;
}
}  // namespace

TensorMap read_weights(const std::string& directory, MappedFiles* files) {
  const auto path = [&](const char* name) { return directory + "/" + name; };
  const auto whole = [&](const char* name, ReadFunction read) {
    return read_tensors(path(name), read, files);
  };
  const auto shards = [&](const char* name, ReadFunction read) {
    return read_shards(directory, path(name), read, files);
  };
  if (fs::exists(path("model.safetensors"))) return whole("model.safetensors", &read_safetensors);
  if (fs::exists(path("model.safetensors.index.json")))
    return shards("model.safetensors.index.json", &read_safetensors);
  if (fs::exists(path("pytorch_model.bin"))) return whole("pytorch_model.bin", &read_torch_file);
  if (fs::exists(path("pytorch_model.bin.index.json")))
    return shards("pytorch_model.bin.index.json", &read_torch_file);
  throw DataError(directory +
                  ": no weights: none of model.safetensors, model.safetensors.index.json, "
                  "pytorch_model.bin and "
                  "pytorch_model.bin.index.json is there");
}

}  // namespace temper
