// The safetensors format: an eight-byte length, a JSON header of names, dtypes, shapes and offsets,
// then the bytes.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "temper/io/tensor_view.h"

namespace temper {

using TensorMap = std::map<std::string, TensorView>;

// The tensors of a file's bytes, checked against every rule of the format: offsets in range, in
// order, without holes or overlap, sizes equal to shape and dtype. `where` names the file. Throws
// DataError that also names the tensor.
TensorMap parse_safetensors(std::span<const std::byte> bytes, const std::string& where,
                            std::shared_ptr<const void> owner);

// Maps the file; nothing is copied.
TensorMap read_safetensors(const std::string& path);

// A file's metadata: texts by name.
using SafetensorsMetadata = std::map<std::string, std::string>;
// Reads the metadata of a file, from its header alone; values that are not text are left out.
// Throws DataError.
SafetensorsMetadata read_safetensors_metadata(const std::string& path);

// Writes the tensors, through a temporary file beside `path`, with the metadata {"format": "pt"}
// and `metadata`. Tensors that are not there yet are made one at a time (TensorView::make). With an
// empty path they are made in the same order and nothing is written: other ranks do so while one
// rank writes tensors that all make together. Throws RunError.
void write_safetensors(const std::string& path, const TensorMap& tensors,
                       const SafetensorsMetadata& metadata = {});

// The bytes of that file: one that is sent instead of written.
std::string safetensors_bytes(const TensorMap& tensors);

// The same file, written by processes that share out tensors among them (TensorView::own), side by
// side: one of them begins it, with the tensors that it has whole; when it has, each writes what it
// has of the others. All of them have the same names, shapes and dtypes. The file is whole when all
// have returned. Throws RunError.
void begin_safetensors(const std::string& path, const TensorMap& tensors);
void write_own_parts(const std::string& path, const TensorMap& tensors);

// model.safetensors, or shards model-00001-of-0000N.safetensors with model.safetensors.index.json
// where the tensors take more than max_shard_bytes. Tensors are dealt to shards in the given order.
// An empty directory is as an empty path above.
void write_safetensors_model(const std::string& directory,
                             const std::vector<std::pair<std::string, TensorView>>& tensors,
                             size_t max_shard_bytes = size_t{5} << 30);

}  // namespace temper
