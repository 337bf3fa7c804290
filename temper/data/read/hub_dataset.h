// Data sets of the Hugging Face hub by their id, found in the local cache as models are.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace temper::data {

// "org/name[:config][/split]", as in openai/gsm8k:main/test.
struct DatasetId {
  std::string id;      // org/name
  std::string config;  // empty: the only one, or the default
  std::string split = "train";
};

// Parses a data set id; nullopt: the text has another form, or ends as files of rows do
// (rows/train.jsonl).
std::optional<DatasetId> parse_dataset_id(std::string_view text);

// The files of rows of one split, sorted by name. Which files these are is what the data set's
// README.md says (`configs`, `data_files`), else their folder is the config and a word of their
// path the split, as in Hugging Face's `datasets`: main/test-00000-of-00001.parquet. Throws
// ConfigError where the data set is not in the cache, with the command that downloads it, and where
// it has no such config or split, naming those there are.
std::vector<std::string> dataset_files(const DatasetId& dataset);

}  // namespace temper::data
