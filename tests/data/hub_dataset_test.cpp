#include "temper/data/read/hub_dataset.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "temper/base/error.h"
#include "temper/data/read/row_set.h"

using namespace temper;
using namespace temper::data;
namespace fs = std::filesystem;

namespace {

// A Hugging Face cache of its own for the time of a test.
class HubCache {
 public:
  HubCache() : root_(fs::temp_directory_path() / str("temper-hub-", ::getpid())) {
    fs::remove_all(root_);
    ::setenv("HF_HUB_CACHE", root_.c_str(), 1);
  }
  ~HubCache() {
    ::unsetenv("HF_HUB_CACHE");
    fs::remove_all(root_);
  }
  // A file of org/name's snapshot; rows that say where they are from.
  void add(const std::string& name, const std::string& file, const std::string& text = "") {
    const fs::path repository = root_ / ("datasets--org--" + name);
    fs::create_directories((repository / "snapshots/c0ffee" / file).parent_path());
    fs::create_directories(repository / "refs");
    std::ofstream(repository / "refs/main") << "c0ffee\n";
    std::ofstream(repository / "snapshots/c0ffee" / file)
        << (text.empty() ? "{\"text\": \"" + file + "\"}\n" : text);
  }

 private:
  fs::path root_;
};

std::vector<std::string> files_of(const std::string& text) {
  const std::optional<DatasetId> dataset = parse_dataset_id(text);
  REQUIRE(dataset);
  std::vector<std::string> names;
  for (const std::string& file : dataset_files(*dataset))
    names.push_back(file.substr(file.find("c0ffee/") + 7));
  return names;
}

std::string problem_of(const std::string& text) {
  try {
    files_of(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != text.npos;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a data set id has an organization, a name, and perhaps a config and a split") {
  const auto plain = parse_dataset_id("openai/gsm8k");
  REQUIRE(plain);
  CHECK(plain->id == "openai/gsm8k");
  CHECK(plain->config.empty());
  CHECK(plain->split == "train");
  const auto full = parse_dataset_id("openai/gsm8k:main/test");
  REQUIRE(full);
  CHECK(full->id == "openai/gsm8k");
  CHECK(full->config == "main");
  CHECK(full->split == "test");
  const auto split = parse_dataset_id("openai/gsm8k/test");
  REQUIRE(split);
  CHECK(split->config.empty());
  CHECK(split->split == "test");
  const auto config = parse_dataset_id("openai/gsm8k:main");
  REQUIRE(config);
  CHECK(config->config == "main");
  CHECK(config->split == "train");
  for (const char* other : {"rows", "rows/train.jsonl", "rows/a.parquet", "/tmp/rows", "../x/y",
                            "a/b/c/d", "a/b:", "a/b:c/", "a/", "./rows"})
    CHECK_MESSAGE(!parse_dataset_id(other), other);
}

TEST_CASE("without metadata the folders are configs and words of the path splits") {
  HubCache cache;
  for (const char* file : {"main/train-00000-of-00002.jsonl", "main/train-00001-of-00002.jsonl",
                           "main/test-00000-of-00001.jsonl", "socratic/train-00000-of-00001.jsonl"})
    cache.add("sums", file);
  CHECK(files_of("org/sums:main") ==
        Names{"main/train-00000-of-00002.jsonl", "main/train-00001-of-00002.jsonl"});
  CHECK(files_of("org/sums:main/test") == Names{"main/test-00000-of-00001.jsonl"});
  CHECK(has(problem_of("org/sums"),
            "several configs: main, socratic; name one, as in org/sums:main/train"));
  CHECK(has(problem_of("org/sums:mian"), "no config `mian`; it has: main, socratic"));
  CHECK(has(problem_of("org/sums:socratic/test"), "no split `test`; it has: train"));
  cache.add("flat", "data/dev.jsonl");
  cache.add("flat", "data/training_rows.jsonl");
  cache.add("flat", "README.txt", "no rows");
  CHECK(files_of("org/flat") == Names{"data/training_rows.jsonl"});
  CHECK(files_of("org/flat/validation") == Names{"data/dev.jsonl"});
}

TEST_CASE("files that name no split belong to none where others do") {
  HubCache cache;
  for (const char* file : {"train.jsonl", "test.jsonl", "raw_dump.jsonl", "trainer.jsonl"})
    cache.add("mixed", file);
  CHECK(files_of("org/mixed") == Names{"train.jsonl"});
  for (const char* file :
       {"data/train_sft-00000-of-00001.jsonl", "data/train_gen-00000-of-00001.jsonl"})
    cache.add("named", file);
  CHECK(files_of("org/named/train_sft") == Names{"data/train_sft-00000-of-00001.jsonl"});
  CHECK(has(problem_of("org/named"), "no split `train`; it has: train_gen, train_sft"));
  // JSON Lines in a file named .json; a config beside it is none.
  cache.add("json", "train.json", "{\"a\": 1}\n{\"a\": 2}\n");
  cache.add("json", "dataset_infos.json", "{\n\"a\": 1}\n");
  CHECK(files_of("org/json") == Names{"train.json"});

  cache.add("plain", "rows.jsonl");
  CHECK(files_of("org/plain") == Names{"rows.jsonl"});
}

TEST_CASE("the metadata of README.md says which files a split has") {
  HubCache cache;
  cache.add("card", "README.md",
            "---\nlicense: mit\nconfigs:\n- config_name: main\n  default: true\n  data_files:\n"
            "  - split: train\n    path: parts/a-*\n  - split: held\n    path: [parts/b.jsonl, "
            "parts/c.jsonl]\n"
            "- config_name: plain\n  data_files: parts/*.jsonl\n---\n# Rows\n");
  for (const char* file : {"parts/a-1.jsonl", "parts/a-2.jsonl", "parts/b.jsonl", "parts/c.jsonl"})
    cache.add("card", file);
  CHECK(files_of("org/card") == Names{"parts/a-1.jsonl", "parts/a-2.jsonl"});
  CHECK(files_of("org/card/held") == Names{"parts/b.jsonl", "parts/c.jsonl"});
  CHECK(files_of("org/card:plain").size() == 4);
  CHECK(has(problem_of("org/card/test"), "no split `test`; it has: held, train"));
  // A pattern that leaves the snapshot names nothing in it.
  cache.add("out", "README.md",
            "---\nconfigs:\n- config_name: default\n  data_files: ../../../*/*.jsonl\n---\n");
  cache.add("out", "rows.jsonl");
  CHECK(has(problem_of("org/out"), "no file of config `default`"));
}

TEST_CASE("patterns of folders, folders of data, names like patterns") {
  HubCache cache;
  cache.add("deep", "README.md",
            "---\nconfigs:\n- config_name: any\n  data_files: '**/*.jsonl'\n- config_name: named\n"
            "  data_files: '**/train*.jsonl'\n- config_name: below\n  data_dir: x\n---\n");
  for (const char* file : {"a.jsonl", "x/train-1/test.jsonl", "x/y/train.jsonl"})
    cache.add("deep", file);
  CHECK(files_of("org/deep:any").size() == 3);
  CHECK(files_of("org/deep:named") == Names{"x/y/train.jsonl"});
  CHECK(files_of("org/deep:below") == Names{"x/train-1/test.jsonl", "x/y/train.jsonl"});
  cache.add("odd", "data/[x]-train.jsonl");
  CHECK(files_of("org/odd") == Names{"data/[x]-train.jsonl"});
}

TEST_CASE("tables of text and lists are files of rows, and a .json that README.md names") {
  HubCache cache;
  cache.add("tables", "train.csv", "text\n1\n");
  cache.add("tables", "test.json", "[{\"text\": \"1\"}]");
  cache.add("tables", "dataset_infos.train.json");
  CHECK(files_of("org/tables") == Names{"train.csv"});
  CHECK(files_of("org/tables/test") == Names{"test.json"});
  cache.add("told", "README.md", "---\nconfigs:\n- config_name: a\n  data_files: a.json\n---\n");
  cache.add("told", "a.json");
  cache.add("told", "config.json");
  CHECK(files_of("org/told") == Names{"a.json"});
  cache.add("described", "dataset_infos.json");
  CHECK(has(problem_of("org/described"), "has no file of rows"));
}

TEST_CASE("a download that was interrupted is an error") {
  HubCache cache;
  cache.add("parts", "train-00000-of-00003.jsonl");
  cache.add("parts", "train-00002-of-00003.jsonl");
  CHECK(has(problem_of("org/parts"), "train-00001-of-00003.jsonl of config `default`"));
  cache.add("parts", "train-00001-of-00003.jsonl");
  CHECK(files_of("org/parts").size() == 3);
}

TEST_CASE("what is not in the cache is an error with the command that downloads it") {
  HubCache cache;
  CHECK(has(problem_of("org/none:main/test"), "temper fetch org/none --dataset"));
  cache.add("words", "notes.md", "no rows");
  CHECK(has(problem_of("org/words"), "has no file of rows"));
}

TEST_CASE("rows of a data set are read as those of files") {
  HubCache cache;
  cache.add("rows", "train.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  const RowSet rows({.path = "org/rows"});
  CHECK(rows.size() == 2);
  CHECK(has(rows.where(1), "train.jsonl:2"));
  CHECK(find_row_files("some/rows.jsonl") == Names{"some/rows.jsonl"});
}
