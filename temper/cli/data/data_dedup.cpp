// temper data dedup: leaves out rows that repeat earlier ones, or nearly do.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "temper/base/error.h"
#include "temper/cli/data/data_tools.h"
#include "temper/cli/data/row_sink.h"
#include "temper/data/rows/row_texts.h"
#include "temper/data/tools/near_duplicates.h"
#include "temper/metrics/format.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

class Dedup : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Writes rows without those that repeat an earlier one: the first of equal rows stays.\n"
        "Rows are equal whose fields are, in whatever order. With --near, rows go too whose words "
        "are nearly those of a row\nthat stays: the Jaccard similarity of their runs of three "
        "words is at least the threshold.\n"
        "example: temper data dedup rows.jsonl --near 0.8 --output unique.jsonl");
    inputs_.add_to(f);
    f.add("--output", output_, "file for the rows, or - for standard output", required());
    f.add("--near", near_, "leave out rows of at least this similarity, above 0 to 1",
          Rule{.min = 0, .max = 1, .above_min = true});
    f.add("--shingle", shingle_, "words in a run that --near compares", between(1, 50));
    f.add("--by", by_, "compare this field alone (prompt: what the row asks, in any format)");
    f.add("--report", report_,
          "file for the rows that are left out: {row, duplicate_of, similarity}");
    f.add("--json", json_, "print the figures as one JSON object");
  }

  int run() override {
    check_figures_apart("dedup", json_, output_);
    const data::RowList rows = inputs_.open();
    check_rows_output(output_, rows);
    RowSink out(output_);
    std::optional<OutputFile> left_out;
    if (!report_.empty()) {
      check_rows_output(report_, rows, "--report");
      check<ConfigError>(report_ != output_, "--report ", report_, ": is --output, too");
      check<ConfigError>(!report_.ends_with(".gz") && !report_.ends_with(".zst"), "--report ",
                         report_, ": is not compressed; name the file .jsonl");
      left_out.emplace(report_);
    }
    std::optional<data::NearDuplicates> near;
    if (near_) near.emplace(*near_, [&](int64_t i) { return shingles(rows, i); });
    struct First {
      int64_t kept;  // the row, or the one that it is like
      double similarity = 1;
    };
    std::unordered_map<data::RowHash, First> first;
    const auto drop = [&](int64_t row, const First& of, int64_t& count) {
      ++count;
      if (left_out)
        left_out->row({{"row", rows.where(row)},
                       {"duplicate_of", rows.where(of.kept)},
                       {"similarity", static_cast<float>(of.similarity)}});
    };
    each_row(
        "compared", rows.size(), [&](int64_t i) { return look_at(rows, i); },
        [&](int64_t i, const Looked& looked) {
          const auto [at, is_new] = first.emplace(looked.hash, First{i});
          if (!is_new) return drop(i, at->second, exact_);
          if (near)
            if (const auto match = near->match_or_keep(i, looked.shingles, looked.signature)) {
              at->second = {match->number, match->similarity};
              return drop(i, at->second, nearly_);
            }
          out.line(looked.line, rows.where(i));
        });
    if (left_out) left_out->finish();
    out.finish();
    print(rows.size());
    return 0;
  }

 private:
  struct Looked {
    std::string line;
    data::RowHash hash;
    data::Shingles shingles;
    data::Signature signature{};
  };

  // What is compared: the field, as text.
  std::string text_of(const Json& row, const std::string& where) const {
    if (by_ == "prompt" && !data::find_field(row, by_)) return data::texts_of(row).prompt;
    return field_text(row, by_, where);
  }

  std::string compared_text(const Json& row, const std::string& where) const {
    return by_.empty() ? data::texts_of(row).whole() : text_of(row, where);
  }

  // The row's images, where they are part of what is compared.
  std::string images(const Json& row, const data::RowList& rows, int64_t i) const {
    if (!by_.empty() && by_ != "prompt") return {};
    return images_of_row(inputs_, row, directory_of(rows, i));
  }

  // Texts beside different images have no shingle in common.
  static data::Shingles of_images(data::Shingles shingles, const std::string& images) {
    if (images.empty()) return shingles;
    const uint64_t key = data::hash_of_text(images).low;
    for (uint64_t& shingle : shingles) shingle ^= key;
    std::sort(shingles.begin(), shingles.end());
    return shingles;
  }

  data::Shingles shingles(const data::RowList& rows, int64_t i) const {
    const Json row = rows.renamed(i);
    return of_images(
        data::shingles_of(compared_text(row, rows.where(i)), static_cast<int>(shingle_)),
        images(row, rows, i));
  }

  Looked look_at(const data::RowList& rows, int64_t i) const {
    Looked looked{.line = line_for(output_, inputs_, rows, i), .hash = {}, .shingles = {}};
    const std::string where = rows.where(i);
    const Json row = rows.renamed(i);
    const std::string pictures = images(row, rows, i);
    if (by_.empty())
      looked.hash = data::hash_of_fields(pictures.empty() ? row : comparable_row(inputs_, rows, i));
    else
      looked.hash = data::hash_of_text(text_of(row, where) + "\n" + pictures);
    if (!near_) return looked;
    looked.shingles = of_images(
        data::shingles_of(compared_text(row, where), static_cast<int>(shingle_)), pictures);
    looked.signature = data::signature_of(looked.shingles);
    return looked;
  }

  void print(int64_t rows) const {
    const int64_t kept = rows - exact_ - nearly_;
    if (json_) {
      nlohmann::ordered_json out{
          {"rows", rows},    {"kept", kept},    {"dropped", exact_ + nearly_},
          {"exact", exact_}, {"near", nearly_}, {"threshold", nullptr}};
      if (near_) out["threshold"] = *near_;
      std::cout << out.dump(2) << std::endl;
      return;
    }
    const auto count = [](int64_t n) { return format_count(static_cast<double>(n)); };
    beside(output_) << printable_line(output_) << ": " << count(kept) << " rows of " << count(rows)
                    << "; " << count(exact_) << (exact_ == 1 ? " repeats" : " repeat")
                    << " an earlier one"
                    << (near_ ? temper::str(", ", count(nearly_), " nearly (", *near_, " or more)")
                              : std::string())
                    << std::endl;
  }

  DataInputs inputs_;
  std::string output_, by_, report_;
  std::optional<double> near_;
  int64_t shingle_ = 3;
  int64_t exact_ = 0, nearly_ = 0;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> data_dedup() { return std::make_unique<Dedup>(); }

}  // namespace temper::cli
