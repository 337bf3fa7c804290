// The tokenizer and chat templates of a model directory, as files.
#pragma once

#include <cstdint>
#include <string>

namespace temper::models {

// The size in bytes of the files that copy_tokenizer_files copies.
int64_t tokenizer_file_bytes(const std::string& directory);

}  // namespace temper::models
