#include "temper/models/files/file_digests.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <vector>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/io/gguf.h"

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

namespace {

constexpr int64_t kHashedPiece = int64_t{16} << 20, kReadAtOnce = int64_t{1} << 20;

uint64_t hash_piece(int fd, int64_t begin, int64_t end, std::vector<char>& buffer,
                    const std::string& path) {
  XXH3_state_t* const state = XXH3_createState();
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> freed(state, XXH3_freeState);
  XXH3_64bits_reset(state);
  while (begin < end) {
    const ssize_t count =
        ::pread(fd, buffer.data(), static_cast<size_t>(std::min(end - begin, kReadAtOnce)), begin);
    if (count < 0 && errno == EINTR) continue;
    check<DataError>(count > 0, path,
                     ": cannot read: ", count < 0 ? std::strerror(errno) : "it has become shorter");
    XXH3_64bits_update(state, buffer.data(), static_cast<size_t>(count));
    begin += count;
  }
  return XXH3_64bits_digest(state);
}

std::string hash_of_pieces(const std::vector<uint64_t>& pieces, int64_t bytes) {
  std::vector<uint64_t> all = pieces;
  all.push_back(static_cast<uint64_t>(bytes));
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size() * sizeof(uint64_t));
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace

std::string content_hash(const std::string& path, int threads, const std::atomic<bool>* cancelled) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about{};
  check<DataError>(file.get() >= 0 && ::fstat(file.get(), &about) == 0, path,
                   ": cannot open: ", std::strerror(errno));
  const int64_t bytes = about.st_size;
  std::vector<uint64_t> pieces(static_cast<size_t>((bytes + kHashedPiece - 1) / kHashedPiece));
  std::atomic<size_t> next = 0;
  const auto stopped = [&] { return cancelled && *cancelled; };
  const auto work = [&] {
    std::vector<char> buffer(kReadAtOnce);
    for (size_t i; !stopped() && (i = next++) < pieces.size();) {
      const int64_t begin = static_cast<int64_t>(i) * kHashedPiece;
      pieces[i] =
          hash_piece(file.get(), begin, std::min(begin + kHashedPiece, bytes), buffer, path);
    }
  };
  std::vector<std::future<void>> others;
  const auto useful = std::min<size_t>(static_cast<size_t>(std::max(threads, 1)), pieces.size());
  for (size_t t = 1; t < useful; ++t) others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
  return stopped() ? "" : hash_of_pieces(pieces, bytes);
}

std::string content_hash_of(const std::string& text) {
  std::vector<uint64_t> pieces;
  for (size_t at = 0; at < text.size(); at += kHashedPiece)
    pieces.push_back(XXH3_64bits(text.data() + at,
                                 std::min(text.size() - at, static_cast<size_t>(kHashedPiece))));
  return hash_of_pieces(pieces, static_cast<int64_t>(text.size()));
}

namespace {

// A GGUF file and its other parts; empty: it is none that can be read.
std::vector<fs::path> files_of_gguf(const std::string& path) {
  try {
    if (!is_gguf_file(path)) return {};
    const std::vector<std::string> parts = gguf_shards(path);
    return {parts.begin(), parts.end()};
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::string file_digests(const std::string& path) {
  std::error_code none;
  std::vector<fs::path> files = files_of_gguf(path);
  if (files.empty() && fs::is_regular_file(path, none)) files = {path};
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
