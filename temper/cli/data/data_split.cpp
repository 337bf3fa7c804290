// temper data split: rows for training and for evaluation that share no prompt.
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "temper/base/error.h"
#include "temper/cli/data/data_tools.h"
#include "temper/data/apportion.h"
#include "temper/data/rows/row_texts.h"
#include "temper/data/tools/row_split.h"
#include "temper/metrics/format.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

constexpr size_t kMostSides = 100;

class Split : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Writes DIR/NAME.jsonl for each name of --fractions. Rows with the same prompt, white "
        "space aside, go to the same\nfile, which is decided by a hash of the prompt and the "
        "seed.\n"
        "example: temper data split rows.jsonl --output-dir parts --fractions train=0.9,test=0.1");
    inputs_.add_to(f);
    f.add("--output-dir", output_dir_, "directory of the files", required());
    f.add("--fractions", fractions_, "the files and their shares, which add up to 1", required());
    f.add("--by", by_,
          "keep rows together that have the same value of this field, instead of the same prompt");
    f.add("--seed", seed_, "random seed of the hash", at_least(0));
    f.add("--json", json_, "print the figures as one JSON object");
  }

  int run() override {
    parse();
    const data::RowList rows = inputs_.open();
    for (const Side& side : sides_) check_rows_output(side.path, rows, "--output-dir: file");
    std::vector<data::RowHash> hashes;
    each_row(
        "read", rows.size(), [&](int64_t i) { return hash_of(rows, i); },
        [&](int64_t, data::RowHash hash) { hashes.push_back(hash); });
    std::filesystem::create_directories(output_dir_);
    std::vector<double> shares;
    for (Side& side : sides_) {
      shares.push_back(side.share);
      side.file = std::make_unique<OutputFile>(side.path);
    }
    const std::vector<uint8_t> side_of = data::split_by_hash(hashes, shares);
    for (int64_t i = 0; i < rows.size(); ++i) {
      if (interrupted()) throw Interrupted();
      Side& side = sides_[side_of[static_cast<size_t>(i)]];
      side.file->line(line_for(side.path, inputs_, rows, i));
      ++side.rows;
      side.groups.insert(hashes[static_cast<size_t>(i)]);
    }
    for (Side& side : sides_) side.file->finish();
    print(rows.size());
    return 0;
  }

 private:
  struct Side {
    std::string name, path;
    double share = 0;
    std::unique_ptr<OutputFile> file = nullptr;
    int64_t rows = 0;
    std::unordered_set<data::RowHash> groups = {};
  };

  void parse() {
    double sum = 0;
    for (const auto& [name, share] : data::parse_shares(fractions_, "--fractions")) {
      check<ConfigError>(name.find('/') == std::string::npos && !name.starts_with("."),
                         "--fractions: found `", name, "`, expected the name of a file");
      sides_.push_back({name, output_dir_ + "/" + name + ".jsonl", share});
      sum += share;
    }
    check<ConfigError>(std::abs(sum - 1) < 1e-6, "--fractions: the shares add up to ", sum,
                       ", expected 1");
    check<ConfigError>(sides_.size() <= kMostSides, "--fractions: ", sides_.size(),
                       " files, expected at most ", kMostSides);
  }

  data::RowHash hash_of(const data::RowList& rows, int64_t i) const {
    const Json row = rows.renamed(i);
    std::string text =
        by_.empty() ? data::texts_of(row).prompt : field_text(row, by_, rows.where(i));
    if (by_.empty()) {  // the same words about another picture are another prompt
      const std::string images = images_of_row(inputs_, row, directory_of(rows, i));
      if (!images.empty()) text += "\n" + images;
    }
    return data::hash_of_text(text, static_cast<uint64_t>(seed_));
  }

  void print(int64_t rows) const {
    const auto share_of = [&](const Side& side) {
      return static_cast<double>(side.rows) / static_cast<double>(rows);
    };
    if (json_) {
      nlohmann::ordered_json out{{"by", by_.empty() ? "prompt" : by_},
                                 {"seed", seed_},
                                 {"rows", rows},
                                 {"splits", nlohmann::ordered_json::object()}};
      for (const Side& side : sides_)
        out["splits"][side.name] = {{"path", side.path},
                                    {"rows", side.rows},
                                    {"groups", side.groups.size()},
                                    {"fraction", side.share},
                                    {"share", share_of(side)}};
      std::cout << out.dump(2) << std::endl;
      return;
    }
    for (const Side& side : sides_)
      std::cout << printable_line(side.path) << ": " << format_count(static_cast<double>(side.rows))
                << " rows (" << percent_text(share_of(side)) << "), "
                << format_count(static_cast<double>(side.groups.size())) << " different "
                << (by_.empty() ? "prompts" : "values of " + printable_line(by_)) << std::endl;
  }

  DataInputs inputs_;
  std::string output_dir_, fractions_, by_;
  int64_t seed_ = 0;
  bool json_ = false;
  std::vector<Side> sides_;
};

}  // namespace

std::unique_ptr<Command> data_split() { return std::make_unique<Split>(); }

}  // namespace temper::cli
