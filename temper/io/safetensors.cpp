#include "temper/io/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"

namespace temper {
namespace {
constexpr const char* kMetadata = "__metadata__";
constexpr size_t kMaxHeader = size_t{100} << 20;  // the reference's own bound

uint64_t little_endian(const std::byte* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<uint64_t>(bytes[i]);
  return value;
}

// One entry of the header: its dtype, shape and [begin, end) within the data.
TensorView entry(const Json& description, const std::string& place,
                 std::span<const std::byte> data) {
  check<DataError>(description.is_object(), place, ": expected an object in the header");
  const auto field = [&](const char* name) -> const Json& {
    const auto it = description.find(name);
    check<DataError>(it != description.end(), place, ": the header lacks `", name, "`");
    return *it;
  };
  const Json &dtype = field("dtype"), &shape = field("shape"), &offsets = field("data_offsets");
  TensorView view;
  const auto known = dtype.is_string() ? dtype_from_name(dtype.get<std::string>()) : std::nullopt;
  check<DataError>(known.has_value(), place, ": dtype ", dump_json(dtype), " is not supported");
  view.dtype = *known;
  check<DataError>(shape.is_array() && shape.size() <= 16, place,
                   ": `shape` must be a list of sizes");
  for (const Json& extent : shape) {
    check<DataError>(extent.is_number_unsigned() && extent.get<uint64_t>() <= INT64_MAX, place,
                     ": size ", dump_json(extent), " in `shape`");
    view.shape.push_back(extent.get<int64_t>());
  }
  check<DataError>(offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() &&
                       offsets[1].is_number_unsigned(),
                   place, ": `data_offsets` must be two offsets");
  const uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  check<DataError>(begin <= end && end <= data.size(), place, ": bytes ", begin, " to ", end,
                   " lie outside the file's ", data.size(), "; the file may be truncated");
  const auto bytes = shape_bytes(view.shape, view.dtype);
  check<DataError>(bytes && *bytes == end - begin, place, ": ", end - begin,
                   " bytes do not hold shape ", dump_json(shape), " of ", dtype_name(view.dtype));
  view.data = data.data() + begin;
  view.num_bytes = end - begin;
  return view;
}

// The names of a JSON object's members as they are written, in order.
std::vector<std::string_view> written_names(std::string_view object) {
  std::vector<std::string_view> names;
  std::string_view last;
  int depth = 0;
  for (size_t i = 0; i < object.size(); ++i) {
    const char c = object[i];
    if (c == '"') {
      const size_t begin = ++i;
      while (object[i] != '"') i += object[i] == '\\' ? 2 : 1;
      last = object.substr(begin, i - begin);
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ':' && depth == 1) {
      names.push_back(last);
    }
  }
  return names;
}

// Of two members of one name parse_json() keeps the last.
void check_no_name_twice(std::string_view header, const Json& json, const std::string& where) {
  std::vector<std::string_view> names = written_names(header);
  if (names.size() == json.size()) return;
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  throw DataError(str(where, ": tensor `", twice == names.end() ? "" : *twice,
                      "` is listed twice in the header"));
}

// The header, and how many bytes it takes with its length.
std::pair<Json, size_t> header_of(std::span<const std::byte> bytes, const std::string& where) {
  check<DataError>(bytes.size() >= 8, where, ": ", bytes.size(),
                   " bytes; a safetensors file has at least 8");
  const uint64_t header_size = little_endian(bytes.data());
  check<DataError>(header_size <= kMaxHeader && header_size <= bytes.size() - 8, where,
                   ": the header claims ", header_size, " bytes of a file of ", bytes.size(),
                   "; not a safetensors file, or truncated");
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + 8, header_size);
  Json json = parse_json(header, where);
  check<DataError>(json.is_object(), where, ": the header is not a JSON object");
  check_no_name_twice(header, json, where);
  return {std::move(json), 8 + header_size};
}

}  // namespace

TensorMap parse_safetensors(std::span<const std::byte> bytes, const std::string& where,
                            std::shared_ptr<const void> owner) {
  const auto [json, header_size] = header_of(bytes, where);
  const std::span<const std::byte> data = bytes.subspan(header_size);
  TensorMap tensors;
  std::vector<std::pair<size_t, size_t>> ranges;
  for (const auto& [name, description] : json.items()) {
    if (name == kMetadata) continue;
    TensorView view = entry(description, where + ": tensor `" + name + "`", data);
    const size_t begin = static_cast<size_t>(view.data - data.data());
    ranges.emplace_back(begin, begin + view.num_bytes);
    view.owner = owner;
    check<DataError>(tensors.emplace(name, std::move(view)).second, where, ": tensor `", name,
                     "` is listed twice");
  }
  std::sort(ranges.begin(), ranges.end());
  size_t at = 0;
  for (const auto& [begin, end] : ranges) {
    check<DataError>(begin == at, where, ": tensors overlap or leave a hole at byte ", at,
                     " of the data");
    at = end;
  }
  check<DataError>(at == data.size(), where, ": ", data.size() - at,
                   " bytes after the last tensor");
  return tensors;
}

TensorMap read_safetensors(const std::string& path) {
  const auto file = MappedFile::open(path);
  TensorMap tensors = parse_safetensors({file->data(), file->size()}, path, file);
  for (auto& [name, view] : tensors) view.mapped = true;
  return tensors;
}

SafetensorsMetadata read_safetensors_metadata(const std::string& path) {
  const auto file = MappedFile::open(path);
  const Json json = header_of({file->data(), file->size()}, path).first;
  SafetensorsMetadata found;
  const auto metadata = json.find(kMetadata);
  if (metadata == json.end() || !metadata->is_object()) return found;
  for (const auto& [name, value] : metadata->items())
    if (value.is_string()) found[name] = value.get<std::string>();
  return found;
}

namespace {

// The reference orders by alignment, widest first, then by name, so that every tensor starts
// aligned.
std::vector<const TensorMap::value_type*> in_order(const TensorMap& tensors) {
  std::vector<const TensorMap::value_type*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return dtype_size(a->second.dtype) > dtype_size(b->second.dtype);
  });
  return order;
}

// The bytes before the tensors': length and header, for the tensors in this order.
std::string beginning_of(const std::vector<const TensorMap::value_type*>& order,
                         const SafetensorsMetadata& metadata) {
  Json header = {{kMetadata, {{"format", "pt"}}}};
  for (const auto& [name, value] : metadata) header[kMetadata][name] = value;
  size_t offset = 0;
  for (const auto* tensor : order) {
    const TensorView& view = tensor->second;
    header[tensor->first] = {{"dtype", std::string(dtype_name(view.dtype))},
                             {"shape", view.shape},
                             {"data_offsets", {offset, offset + view.num_bytes}}};
    offset += view.num_bytes;
  }
  std::string text = dump_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t size = text.size();
  std::string length;
  for (int i = 0; i < 8; ++i) length.push_back(static_cast<char>(size >> (8 * i)));
  return length + text;
}

// Passes the pieces of the file to `write`, in order. `where` names the file.
template <class Write>
void each_piece(const TensorMap& tensors, const SafetensorsMetadata& metadata,
                const std::string& where, const Write& write) {
  const auto order = in_order(tensors);
  const std::string beginning = beginning_of(order, metadata);
  write(reinterpret_cast<const std::byte*>(beginning.data()), beginning.size());
  for (const auto* tensor : order) {
    const TensorView& view = tensor->second;
    const TensorView made = view.make ? view.make() : view;
    check(made.num_bytes == view.num_bytes, where, ": `", tensor->first, "` was made of ",
          made.num_bytes, " bytes, not ", view.num_bytes);
    write(made.data, made.num_bytes);
    if (view.make) give_back_pages(made);
  }
}

}  // namespace

void write_safetensors(const std::string& path, const TensorMap& tensors,
                       const SafetensorsMetadata& metadata) {
  if (path.empty()) {
    for (const auto* tensor : in_order(tensors))
      if (tensor->second.make) tensor->second.make();
    return;
  }
  AtomicFile file(path);
  each_piece(tensors, metadata, path,
             [&](const std::byte* bytes, size_t count) { file.write(bytes, count); });
  file.commit();
}

namespace {

// Calls `work` with each tensor and the place of its bytes in the file.
template <class Work>
void each_place(const TensorMap& tensors, const Work& work) {
  const auto order = in_order(tensors);
  size_t place = beginning_of(order, {}).size();
  for (const auto* tensor : order) {
    work(tensor->first, tensor->second, place);
    place += tensor->second.num_bytes;
  }
}

void sync(const FileDescriptor& file, const std::string& path) {
  check(::fsync(file.get()) == 0, path, ": cannot sync: ", std::strerror(errno));
}

}  // namespace

void begin_safetensors(const std::string& path, const TensorMap& tensors) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  check(file.get() >= 0, path, ": cannot create: ", std::strerror(errno));
  const std::string beginning = beginning_of(in_order(tensors), {});
  write_all_at(file.get(), beginning.data(), beginning.size(), 0, path);
  size_t end = beginning.size();
  each_place(tensors, [&](const std::string&, const TensorView& view, size_t place) {
    end = place + view.num_bytes;
    if (view.own) return;
    const TensorView made = view.make ? view.make() : view;
    write_all_at(file.get(), made.data, made.num_bytes, place, path);
  });
  check(::ftruncate(file.get(), static_cast<off_t>(end)) == 0, path,
        ": cannot write: ", std::strerror(errno));
  sync(file, path);
}

void write_own_parts(const std::string& path, const TensorMap& tensors) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  check(file.get() >= 0, path, ": cannot open: ", std::strerror(errno));
  each_place(tensors, [&](const std::string& name, const TensorView& view, size_t place) {
    if (!view.own) return;
    view.own([&](size_t begin, const std::byte* bytes, size_t count) {
      check(begin <= view.num_bytes && count <= view.num_bytes - begin, path, ": `", name, "` has ",
            view.num_bytes, " bytes, and a part of it would end at ", begin + count);
      write_all_at(file.get(), bytes, count, place + begin, path);
    });
  });
  sync(file, path);
}

std::string safetensors_bytes(const TensorMap& tensors) {
  std::string all;
  each_piece(tensors, {}, "weights", [&](const std::byte* bytes, size_t count) {
    all.append(reinterpret_cast<const char*>(bytes), count);
  });
  return all;
}

void write_safetensors_model(const std::string& directory,
                             const std::vector<std::pair<std::string, TensorView>>& tensors,
                             size_t max_shard_bytes) {
  std::vector<TensorMap> shards(1);
  size_t shard_bytes = 0, total = 0;
  for (const auto& [name, view] : tensors) {
    if (shard_bytes > 0 && shard_bytes + view.num_bytes > max_shard_bytes) {
      shards.emplace_back();
      shard_bytes = 0;
    }
    shards.back().emplace(name, view);
    shard_bytes += view.num_bytes;
    total += view.num_bytes;
  }
  if (directory.empty()) {
    for (const TensorMap& shard : shards) write_safetensors("", shard);
    return;
  }
  if (shards.size() == 1) {
    write_safetensors(directory + "/model.safetensors", shards[0]);
    return;
  }
  Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", Json::object()}};
  for (size_t i = 0; i < shards.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    write_safetensors(directory + "/" + name, shards[i]);
    for (const auto& tensor : shards[i]) index["weight_map"][tensor.first] = name;
  }
  write_file_atomic(directory + "/model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace temper
