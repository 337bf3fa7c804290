#include "temper/io/torch_file.h"

#include <cstring>
#include <deque>
#include <optional>
#include <unordered_map>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/io/unpickler.h"
#include "temper/io/zip.h"

namespace temper {
namespace {
using pickle::Dict, pickle::Items, pickle::Ref, pickle::Storage, pickle::Tensor, pickle::Unpickler;

// A strided view of a storage as a contiguous tensor. Copies where it must, at most `may_copy`
// bytes, and subtracts the bytes copied from `may_copy`.
TensorView materialize(const Tensor& tensor, std::span<const std::byte> storage,
                       const std::string& place, const std::shared_ptr<const void>& owner,
                       size_t& may_copy) {
  const size_t width = dtype_size(tensor.storage.dtype);
  check<DataError>(tensor.size.size() == tensor.stride.size() && tensor.offset >= 0, place,
                   ": bad shape or stride");
  const auto bytes = shape_bytes(tensor.size, tensor.storage.dtype);
  check<DataError>(bytes.has_value(), place, ": bad shape");
  TensorView view{tensor.storage.dtype, tensor.size, nullptr, *bytes, owner};
  if (*bytes == 0) return view;
  uint64_t last = static_cast<uint64_t>(tensor.offset), expected = 1;
  bool contiguous = true;
  for (size_t d = tensor.size.size(); d-- > 0;) {
    uint64_t reach;
    check<DataError>(tensor.stride[d] >= 0 &&
                         !__builtin_mul_overflow(static_cast<uint64_t>(tensor.size[d] - 1),
                                                 static_cast<uint64_t>(tensor.stride[d]), &reach) &&
                         !__builtin_add_overflow(last, reach, &last),
                     place, ": bad stride");
    if (tensor.size[d] != 1 && static_cast<uint64_t>(tensor.stride[d]) != expected)
      contiguous = false;
    expected *= static_cast<uint64_t>(tensor.size[d]);
  }
  check<DataError>(last < storage.size() / width, place, ": reaches past its storage of ",
                   storage.size(), " bytes");
  const std::byte* base = storage.data() + static_cast<size_t>(tensor.offset) * width;
  if (contiguous) {
    view.data = base;
    return view;
  }
  check<DataError>(*bytes <= may_copy, place, ": an expanded tensor of ", *bytes,
                   " bytes over a storage of ", storage.size());
  may_copy -= *bytes;
  auto copy = std::make_shared<std::vector<std::byte>>(*bytes);
  std::vector<int64_t> index(tensor.size.size(), 0);
  for (size_t at = 0; at < *bytes; at += width) {
    size_t from = 0;
    for (size_t d = 0; d < index.size(); ++d)
      from += static_cast<size_t>(index[d] * tensor.stride[d]);
    std::memcpy(copy->data() + at, base + from * width, width);
    for (size_t d = index.size(); d-- > 0 && ++index[d] == tensor.size[d];) index[d] = 0;
  }
  view.data = copy->data();
  view.owner = copy;
  return view;
}

template <class Find>
TensorMap tensors_of(Ref root, std::span<const std::byte> file, const std::string& where,
                     const std::shared_ptr<const void>& owner, Find storage_of) {
  size_t may_copy = file.size() * 16;  // thousands of small entries could expand one storage
  const Dict* dict = std::get_if<Dict>(&root->is);
  check<DataError>(dict != nullptr, where, ": expected a dict of tensors");
  TensorMap tensors;
  for (const auto& [key, value] : dict->items) {
    const std::string* name = std::get_if<std::string>(&key->is);
    const Tensor* tensor = std::get_if<Tensor>(&value->is);
    check<DataError>(name != nullptr, where,
                     ": a key that is not text; expected a dict of tensors");
    const std::string place = where + ": tensor `" + *name + "`";
    check<DataError>(
        tensor != nullptr, place,
        ": not a tensor; expected a state dict (a training checkpoint must be exported first)");
    tensors[*name] =
        materialize(*tensor, storage_of(tensor->storage, place), place, owner, may_copy);
  }
  return tensors;
}

TensorMap parse_zip(std::span<const std::byte> bytes, const std::string& where,
                    const std::shared_ptr<const void>& owner) {
  const auto entries = stored_entries(bytes, where);
  std::string root;
  for (const auto& [name, data] : entries)
    if (name.ends_with("/data.pkl")) root = name.substr(0, name.size() - 8);
  check<DataError>(!root.empty(), where,
                   ": a zip archive without data.pkl; torch.save did not write it");
  if (const auto order = entries.find(root + "byteorder"); order != entries.end()) {
    const std::string text(reinterpret_cast<const char*>(order->second.data()),
                           order->second.size());
    check<DataError>(text == "little", where, ": byte order `", text, "` is not supported");
  }
  Unpickler unpickler(entries.at(root + "data.pkl"), where);
  return tensors_of(unpickler.load(), bytes, where, owner,
                    [&](const Storage& storage, const std::string& place) {
                      const auto it = entries.find(root + "data/" + *storage.key);
                      check<DataError>(it != entries.end(), place, ": its storage `", *storage.key,
                                       "` is not in the archive");
                      return it->second;
                    });
}

// Before torch 1.6: five pickles in a row (magic number, protocol, system, the object, storage
// keys), then each storage's element count and bytes.
TensorMap parse_legacy(std::span<const std::byte> bytes, const std::string& where,
                       const std::shared_ptr<const void>& owner) {
  size_t at = 0;
  std::deque<Unpickler> unpicklers;
  const auto next = [&] {
    Unpickler& unpickler = unpicklers.emplace_back(bytes.subspan(at), where);
    const Ref value = unpickler.load();
    at += unpickler.position();
    return value;
  };
  const Ref magic = next();
  const int64_t* number = std::get_if<int64_t>(&magic->is);
  constexpr uint64_t kMagic = 0xa86a20f9469cfc6c;  // the low 64 bits of 0x1950a86a20f9469cfc6c
  check<DataError>(number != nullptr && static_cast<uint64_t>(*number) == kMagic, where,
                   ": not a file of torch.save");
  next();
  next();
  const Ref object = next(), keys = next();
  const Items* order = std::get_if<Items>(&keys->is);
  check<DataError>(order != nullptr, where, ": no list of storages");
  // The widths stand in the object's tensors.
  std::unordered_map<std::string, size_t> width;
  if (const Dict* dict = std::get_if<Dict>(&object->is))
    for (const auto& item : dict->items)
      if (const Tensor* tensor = std::get_if<Tensor>(&item.second->is))
        width[*tensor->storage.key] = dtype_size(tensor->storage.dtype);
  std::unordered_map<std::string, std::span<const std::byte>> storages;
  for (const Ref key : *order) {
    const std::string* name = std::get_if<std::string>(&key->is);
    check<DataError>(name != nullptr && width.contains(*name) && bytes.size() - at >= 8, where,
                     ": storages are cut short");
    uint64_t count, size;
    std::memcpy(&count, bytes.data() + at, 8);
    at += 8;
    check<DataError>(!__builtin_mul_overflow(count, static_cast<uint64_t>(width[*name]), &size) &&
                         size <= bytes.size() - at,
                     where, ": storage `", *name, "` of ", count, " elements is cut short");
    storages[*name] = bytes.subspan(at, size);
    at += size;
  }
  return tensors_of(
      object, bytes, where, owner, [&](const Storage& storage, const std::string& place) {
        const auto it = storages.find(*storage.key);
        check<DataError>(it != storages.end(), place, ": its storage is not in the file");
        return it->second;
      });
}

}  // namespace

TensorMap parse_torch_file(std::span<const std::byte> bytes, const std::string& where,
                           std::shared_ptr<const void> owner) {
  check<DataError>(bytes.size() >= 4, where, ": ", bytes.size(),
                   " bytes are not a file of torch.save");
  const bool zip = std::memcmp(bytes.data(), "PK\x03\x04", 4) == 0;
  return zip ? parse_zip(bytes, where, owner) : parse_legacy(bytes, where, owner);
}

TensorMap read_torch_file(const std::string& path) {
  const auto file = MappedFile::open(path);
  TensorMap tensors = parse_torch_file({file->data(), file->size()}, path, file);
  for (auto& [name, view] : tensors)  // others were copied
    view.mapped = view.data >= file->data() && view.data < file->data() + file->size();
  return tensors;
}

}  // namespace temper
