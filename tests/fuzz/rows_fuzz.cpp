// Any bytes as a file of rows, plain, gzip or zstd by the first byte: the stream and the file of
// random access agree on every row, and each row becomes tokens or is a DataError that names the
// file and line. Seeds: tests/fuzz/seeds/rows.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "temper/base/error.h"
#include "temper/data/read/jsonl.h"
#include "temper/data/read/row_file.h"
#include "temper/data/rows/prompt_row.h"
#include "temper/data/rows/sft_row.h"

namespace {
using namespace temper;
using namespace temper::data;

// Characters a to j and a template of ChatML's kind.
SftFormat sft_format() {
  SftFormat format;
  format.tokenizer =
      Tokenizer::parse(R"({"model": {"type": "BPE", "unk_token": "u", "merges": [["a", "b"]],
    "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "ab": 4, "u": 5}}})",
                       "tokenizer");
  format.chat = std::make_shared<const ChatTemplate>(
      ChatTemplate::parse("{% for m in messages %}a{{ m.role }}b{{ m['content'] }}{{ m.tool_calls "
                          "}}c{% endfor %}{% if add_generation_prompt %}aassistantb{% endif %}",
                          "template", Json::object()));
  format.vocabulary = 6;
  format.max_length = 64;
  format.eos = 5;
  return format;
}

PromptFormat prompt_format(const SftFormat& sft) {
  PromptFormat format;
  format.tokenizer = sft.tokenizer;
  format.chat = sft.chat;
  format.max_length = 64;
  format.vocabulary = 6;
  return format;
}

void check_row(const SftRow& row) {
  std::vector<size_t> length;  // to each segment's end
  for (const Segment& s : row.segments) {
    const auto parent = static_cast<size_t>(s.parent);
    length.push_back(s.tokens.size() + (s.parent < 0 ? 0 : length.at(parent)));
    if (s.tokens.empty() || s.tokens.size() != s.labels.size() || length.back() > 64) std::abort();
  }
  if (row.segments.empty() || (row.supervised() == 0) == row.untrained.empty()) std::abort();
}

void tokens_of(const Json& row, const std::string& where) {
  static const SftFormat sft = sft_format();
  static const PromptFormat prompt = prompt_format(sft);
  bool truncated = false;
  try {
    const auto made = read_sft_row(sft, row, where, &truncated);
    if (made) check_row(*made);
  } catch (const DataError& e) {
    if (!std::string_view(e.what()).starts_with(where)) std::abort();
  }
  try {
    const auto made = read_prompt_row(prompt, row, where, &truncated);
    if (made && made->tokens.empty()) std::abort();
  } catch (const DataError& e) {
    if (!std::string_view(e.what()).starts_with(where)) std::abort();
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const std::string base = std::filesystem::temp_directory_path() /
                                  ("temper-fuzz-rows-" + std::to_string(::getpid()) + ".jsonl");
  static const std::string paths[] = {base, base + ".gz", base + ".zst"};
  const std::string& path = paths[data[0] % 3];
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data) + 1, static_cast<std::streamsize>(size - 1));
  try {
    const RowFile file(path);
    RowReader reader(path);
    for (int64_t i = 0; i < file.size(); ++i) {
      Json row, streamed;
      std::string problem, problem_streamed;
      try {
        row = file.row(i);
      } catch (const DataError& e) {
        problem = e.what();
      }
      try {
        if (!reader.next(streamed)) std::abort();
      } catch (const DataError& e) {
        problem_streamed = e.what();
      }
      if (problem != problem_streamed || row != streamed ||
          (problem.empty() && file.where(i) != reader.where()))
        std::abort();
      if (problem.empty()) tokens_of(row, file.where(i));
    }
  } catch (const DataError& e) {
    if (!std::string_view(e.what()).starts_with(path)) std::abort();
  }
  ::unlink(path.c_str());
  return 0;
}
