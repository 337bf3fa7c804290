// Stored (uncompressed) entries of a zip archive, as torch.save writes them, with zip64.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

namespace temper {

// Name -> bytes within `archive`. Throws DataError ("WHERE: ...") for anything out of bounds,
// compressed or encrypted.
std::map<std::string, std::span<const std::byte>> stored_entries(std::span<const std::byte> archive,
                                                                 const std::string& where);

}  // namespace temper
