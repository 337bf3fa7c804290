// Digests of model files: they tell files on one host from those on another, and a file from what
// it was before.
#pragma once

#include <atomic>
#include <string>

namespace temper::models {

// A line for each file of a model's or adapter's directory that a run reads (weights, configs, the
// tokenizer), or for the one file, of a GGUF file in parts each: its name, its bytes, and a hash
// (XXH3) of 64 pieces of 4 KiB, or of all of a smaller file. Cheap: it finds another model, not a
// flipped bit. Where there is nothing, it says so.
std::string file_digests(const std::string& path);

// A hash of the whole file as 32 hexadecimal digits: XXH3 (128 bits) of the hashes (XXH3, 64 bits)
// of its pieces of 16 MiB, which `threads` threads read and hash side by side. The file is read,
// not mapped, so that it does not stay in memory. "" where `*cancelled` became true meanwhile.
// Throws DataError.
std::string content_hash(const std::string& path, int threads = 1,
                         const std::atomic<bool>* cancelled = nullptr);
// The same hash of a text.
std::string content_hash_of(const std::string& text);

}  // namespace temper::models
