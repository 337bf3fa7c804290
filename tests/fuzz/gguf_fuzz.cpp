// Any bytes as a GGUF file: parsed, its tokenizer made and read, or a DataError. Seeds:
// tests/fuzz/seeds/gguf, tests/golden/gguf.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/io/gguf.h"
#include "temper/io/gguf_vocabulary.h"
#include "temper/text/tokenizer/tokenizer.h"
#include "tests/fuzz/read_tensors.h"

namespace {

void read_blocks(const temper::GgufFile& file, size_t size) {
  temper::TensorMap bytes;
  for (const auto& [name, blocks] : file.blocks) {
    const auto block = static_cast<size_t>(blocks.type.values);
    const auto values = temper::shape_bytes(blocks.shape, temper::DType::kUInt8);
    if (!values || *values / block * blocks.type.bytes != blocks.bytes.num_bytes) std::abort();
    bytes[name] = blocks.bytes;
  }
  read_tensors(bytes, size);
}

void read_tokenizer(const temper::GgufFile& file) {
  if (!temper::has_gguf_tokenizer(file)) return;
  temper::gguf_tokenizer_config(file, "fuzz");
  temper::gguf_chat_template(file);
  temper::gguf_end_ids(file);
  const std::string json = temper::gguf_tokenizer_json(file, "fuzz");
  temper::Tokenizer::parse(json, "fuzz")->encode("It's 12 \xE2\x96\x81x <s>", true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  try {
    const GgufFile file =
        parse_gguf({reinterpret_cast<const std::byte*>(data), size}, "fuzz", nullptr);
    read_tensors(file.tensors, size);
    read_blocks(file, size);
    read_tokenizer(file);
  } catch (const DataError&) {
  }
  return 0;
}
