// What tells the files of a model on one host from those on another.
#pragma once

#include <string>

namespace temper::models {

// A line for each file of a model's or adapter's directory that a run reads (weights, configs, the
// tokenizer), or for the one file: its name, its bytes, and a hash (XXH3) of 64 pieces of 4 KiB, or
// of all of a smaller file. Cheap: it finds another model, not a flipped bit. Where there is
// nothing, it says so.
std::string file_digests(const std::string& path);

}  // namespace temper::models
