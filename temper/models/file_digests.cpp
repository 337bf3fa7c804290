#include "temper/models/file_digests.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/file.h"

namespace temper::models {
namespace {
namespace fs = std::filesystem;

constexpr size_t kPiece = 4096, kPieces = 64;
constexpr std::array kExtensions{".safetensors", ".bin", ".gguf",  ".json",   ".jinja",
                                 ".model",       ".txt", ".jsonl", ".parquet"};

uint64_t sampled_hash(const MappedFile& file) {
  if (file.size() <= kPieces * kPiece) return XXH3_64bits(file.data(), file.size());
  std::vector<uint64_t> pieces;
  const size_t last = file.size() - kPiece;
  for (size_t i = 0; i < kPieces; ++i) {
    const size_t place = last / (kPieces - 1) * i;
    pieces.push_back(XXH3_64bits(file.data() + (i + 1 < kPieces ? place : last), kPiece));
  }
  return XXH3_64bits(pieces.data(), pieces.size() * sizeof(uint64_t));
}

std::string line_of(const fs::path& path) {
  const std::string name = path.filename().string();
  try {
    const std::shared_ptr<MappedFile> file = MappedFile::open(path.string());
    return str(name, " of ", file->size(), " bytes, hash ", std::hex, sampled_hash(*file));
  } catch (const Error&) {
    return name + ", which cannot be read";
  }
}

}  // namespace

std::string file_digests(const std::string& path) {
  std::error_code none;
  if (fs::is_regular_file(path, none)) return line_of(path) + "\n";
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(path, none)) {
    const std::string extension = entry.path().extension().string();
    if (std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end() &&
        entry.is_regular_file(none))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string lines;
  for (const fs::path& file : files) lines += line_of(file) + "\n";
  return files.empty() ? "no files in " + path + "\n" : lines;
}

}  // namespace temper::models
