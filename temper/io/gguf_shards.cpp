#include <cstdio>
#include <filesystem>
#include <set>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/io/gguf.h"
#include "temper/io/mapped_files.h"

namespace temper {
namespace {

constexpr int64_t kMostShards = 99999;  // of as many digits as names have

// A whole number of any of GGUF's types; nullopt: the file has no such key.
std::optional<int64_t> shard_number(const GgufFile& file, const char* key,
                                    const std::string& path) {
  const GgufValue* value = file.find(key);
  if (!value) return {};
  const auto number = std::visit(
      [](const auto& v) -> std::optional<int64_t> {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
          if (v >= 0 && static_cast<uint64_t>(v) <= INT32_MAX) return static_cast<int64_t>(v);
        return {};
      },
      *value);
  check<DataError>(number.has_value(), path, ": `", key, "`: expected a whole number from 0 on");
  return number;
}

std::string shard_end(int64_t number, int64_t count) {
  char text[40];
  std::snprintf(text, sizeof text, "-%05lld-of-%05lld.gguf", static_cast<long long>(number),
                static_cast<long long>(count));
  return text;
}

std::vector<std::string> shards_of(const GgufFile& first, const std::string& path) {
  const int64_t count = shard_number(first, "split.count", path).value_or(1);
  if (count <= 1) return {path};
  check<DataError>(count <= kMostShards, path, ": `split.count`: found ", count,
                   ", expected at most ", kMostShards);
  const int64_t own = shard_number(first, "split.no", path).value_or(0);
  const std::string end = shard_end(own + 1, count);
  check<DataError>(path.ends_with(end), path, ": is part ", own + 1, " of ", count,
                   ", whose name ends with ", end, "; give it its name back");
  const std::string stem = path.substr(0, path.size() - end.size());
  check<DataError>(own == 0, path, ": is part ", own + 1, " of ", count, "; name the first one, ",
                   stem, shard_end(1, count));
  std::vector<std::string> paths;
  for (int64_t i = 1; i <= count; ++i) {
    paths.push_back(stem + shard_end(i, count));
    check<DataError>(is_file(paths.back()), path, ": its part ", paths.back(), " is missing");
  }
  return paths;
}

void add_owners(const GgufFile& file, MappedFiles::File& to) {
  std::set<const void*> seen;
  const auto add = [&](const TensorView& view) {
    if (seen.insert(view.owner.get()).second) to.owners.push_back(view.owner);
  };
  for (const auto& [name, view] : file.tensors) add(view);
  for (const auto& [name, blocks] : file.blocks) add(blocks.bytes);
}

GgufFile read_shard(const std::string& path, MappedFiles* files) {
  MappedFiles::File mapped = MappedFiles::look_at(path);  // first: a write in between is noticed
  GgufFile file = read_gguf(path);
  if (!files) return file;
  add_owners(file, mapped);
  files->add(std::move(mapped));
  return file;
}

}  // namespace

bool is_gguf_file(const std::string& path) {
  std::error_code ignored;
  return path.ends_with(".gguf") && std::filesystem::is_regular_file(path, ignored);
}

std::vector<std::string> gguf_shards(const std::string& path) {
  return shards_of(read_gguf(path), path);
}

GgufFile read_gguf_model(const std::string& path, MappedFiles* files) {
  GgufFile all = read_shard(path, files);
  const std::vector<std::string> paths = shards_of(all, path);
  for (size_t i = 1; i < paths.size(); ++i) {
    GgufFile next = read_shard(paths[i], files);
    check<DataError>(
        shard_number(next, "split.no", paths[i]) == static_cast<int64_t>(i) &&
            shard_number(next, "split.count", paths[i]) == static_cast<int64_t>(paths.size()),
        paths[i], ": `split.no` and `split.count`: expected ", i, " and ", paths.size(),
        ", as its name says");
    const auto take = [&](auto& from, auto& to) {
      for (auto& [name, tensor] : from) {
        check<DataError>(!all.tensors.contains(name) && !all.blocks.contains(name), paths[i],
                         ": tensor `", name, "`: is in an earlier part, too");
        to.emplace(name, std::move(tensor));
      }
    };
    take(next.tensors, all.tensors);
    take(next.blocks, all.blocks);
  }
  const auto found = static_cast<int64_t>(all.tensors.size() + all.blocks.size());
  const auto expected = shard_number(all, "split.tensors.count", path);
  check<DataError>(paths.size() == 1 || !expected || *expected == found, path, ": its parts hold ",
                   found, " tensors; `split.tensors.count` says ", expected.value_or(0));
  return all;
}

}  // namespace temper
