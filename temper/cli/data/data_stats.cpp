// temper data stats: what files of rows hold.
#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/cli/data/data_tools.h"
#include "temper/cli/data/image_stats.h"
#include "temper/cli/parts/work.h"
#include "temper/data/images/image_format.h"
#include "temper/data/rows/length_summary.h"
#include "temper/data/rows/row_texts.h"
#include "temper/metrics/format.h"
#include "temper/metrics/report/bar_chart.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

constexpr int kStatsBar = 40;         // columns
constexpr size_t kMostFields = 1000;  // names that are counted

std::string count_of(int64_t n) { return format_count(static_cast<double>(n)); }

int32_t as_length(size_t n) { return static_cast<int32_t>(std::min<size_t>(n, INT32_MAX)); }

const char* type_of(const Json& value) {
  if (value.is_number_integer() || value.is_binary()) return "integer";
  return value.type_name();
}

class Stats : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Prints what rows hold: how many and how long they are, their fields, their domains, and "
        "how many repeat earlier ones.\n"
        "Lengths are those of the text that a row asks and answers; with --model in its tokens, "
        "without those of a chat template.\n"
        "example: temper data stats rows.jsonl --model DIR --svg lengths.svg");
    inputs_.add_to(f);
    f.add("--model", model_, "directory with a tokenizer: count its tokens, too");
    groups_.add_to(f);
    f.add("--svg", svg_, "file for the histogram of lengths");
    f.add("--json", json_, "print the figures as one JSON object");
  }

  int run() override {
    if (!model_.empty()) {
      tokenizer_ = find_tokenizer(model_);
      check<ConfigError>(tokenizer_ != nullptr, "--model ", model_, ": has no tokenizer");
      images_of_ = data::find_image_format(model_, tokenizer_.get());
    }
    const data::RowGroups by = groups_.groups();
    const data::RowList rows = inputs_.open();
    for (const std::string& name : by.names()) domains_.push_back({name, 0});
    each_row(
        "read", rows.size(), [&](int64_t i) { return look_at(rows, i, by); },
        [&](int64_t, const Looked& looked) { add(looked); });
    if (!svg_.empty()) write_file_atomic(svg_, svg());
    json_ ? print_json(rows, by) : print(rows, by);
    return 0;
  }

 private:
  struct Looked {
    int32_t characters = 0, words = 0, tokens = 0;
    data::RowHash fields, prompt;
    std::string domain;
    std::vector<std::pair<std::string, const char*>> types;
    std::vector<LookedImage> images;
  };
  struct FieldCount {
    int64_t rows = 0;
    std::map<std::string, int64_t> types;
  };

  Looked look_at(const data::RowList& rows, int64_t i, const data::RowGroups& by) const {
    const Json row = rows.renamed(i), written = rows.row(i);
    const data::RowTexts texts = data::texts_of(row);
    const std::string text = texts.whole();
    Looked looked;
    looked.characters = as_length(static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; })));
    looked.words = as_length(data::Words(text).all().size());
    if (tokenizer_) looked.tokens = as_length(tokenizer_->encode(text).size());
    const std::string images = images_of_row(inputs_, written, directory_of(rows, i));
    looked.fields =
        data::hash_of_fields(images.empty() ? written : comparable_row(inputs_, rows, i));
    looked.prompt =
        data::hash_of_text(images.empty() ? texts.prompt : texts.prompt + "\n" + images);
    looked.domain = by.of(row, rows.where(i));
    for (const auto& [name, value] : written.items())
      looked.types.emplace_back(name, type_of(value));
    looked.images = look_at_images(written, inputs_.columns, directory_of(rows, i), rows.where(i),
                                   images_of_ ? images_of_->processor.get() : nullptr);
    return looked;
  }

  void add(const Looked& looked) {
    characters_.push_back(looked.characters);
    words_.push_back(looked.words);
    if (tokenizer_) tokens_.push_back(looked.tokens);
    images_.add(looked.images);
    repeated_rows_ += !rows_.insert(looked.fields).second;
    repeated_prompts_ += !prompts_.insert(looked.prompt).second;
    const auto domain = std::find_if(domains_.begin(), domains_.end(),
                                     [&](const auto& d) { return d.first == looked.domain; });
    if (domain != domains_.end())
      ++domain->second;
    else
      domains_.emplace_back(looked.domain, 1);
    for (const auto& [name, type] : looked.types) {
      if (fields_.size() >= kMostFields && !fields_.contains(name)) continue;
      FieldCount& field = fields_[name];
      ++field.rows;
      ++field.types[type];
    }
  }

  const std::vector<int32_t>& lengths() const { return tokenizer_ ? tokens_ : words_; }
  const char* unit() const { return tokenizer_ ? "tokens" : "words"; }

  static std::string range(const data::HistogramBin& bin) {
    return bin.from == bin.to ? count_of(bin.from) : count_of(bin.from) + " - " + count_of(bin.to);
  }

  std::string svg() const {
    BarChart chart{.title = temper::str("Rows by ", unit()), .series = {}, .bars = {}};
    for (const data::HistogramBin& bin : data::histogram_of(lengths()))
      chart.bars.push_back({range(bin), {static_cast<double>(bin.rows)}});
    return render_bar_chart(chart);
  }

  static nlohmann::ordered_json json_of(const std::vector<int32_t>& lengths) {
    const data::LengthSummary s = data::summary_of(lengths);
    return {{"total", s.total}, {"mean", s.mean}, {"min", s.least},  {"median", s.median},
            {"p90", s.p90},     {"p99", s.p99},   {"max", s.longest}};
  }

  double share_of(int64_t rows) const {
    return static_cast<double>(rows) / static_cast<double>(words_.size());
  }

  void print_json(const data::RowList& rows, const data::RowGroups& by) const {
    nlohmann::ordered_json out{{"rows", rows.size()},      {"bytes", rows.bytes()},
                               {"files", rows.files()},    {"characters", json_of(characters_)},
                               {"words", json_of(words_)}, {"tokens", nullptr}};
    if (tokenizer_) out["tokens"] = json_of(tokens_);
    out["histogram"] = {{"unit", unit()}, {"bins", nlohmann::ordered_json::array()}};
    for (const data::HistogramBin& bin : data::histogram_of(lengths()))
      out["histogram"]["bins"].push_back({{"from", bin.from}, {"to", bin.to}, {"rows", bin.rows}});
    out["images"] = nullptr;
    if (images_.any()) {
      out["images"] = images_.json();
      out["images"]["width"] = json_of(images_.widths());
      out["images"]["height"] = json_of(images_.heights());
      out["images"]["tokens"] = nullptr;
      if (!images_.tokens().empty()) out["images"]["tokens"] = json_of(images_.tokens());
    }
    out["duplicates"] = {{"rows", repeated_rows_}, {"prompts", repeated_prompts_}};
    for (const auto& [name, field] : fields_)
      out["fields"][name] = {{"rows", field.rows}, {"types", field.types}};
    out["grouped_by"] = by.described();
    out["domains"] = nlohmann::ordered_json::object();
    for (const auto& [name, count] : domains_)
      out["domains"][name] = {{"rows", count}, {"share", share_of(count)}};
    std::cout << out.dump(2) << std::endl;
  }

  void print(const data::RowList& rows, const data::RowGroups& by) const {
    std::ostream& to = std::cout;
    const size_t files = rows.files().size();
    to << count_of(rows.size()) << " rows, " << format_bytes(static_cast<double>(rows.bytes()))
       << " of JSON, " << files << (files == 1 ? " file" : " files") << "; "
       << count_of(repeated_rows_) << (repeated_rows_ == 1 ? " row repeats" : " rows repeat")
       << " an earlier one, " << count_of(repeated_prompts_) << " an earlier prompt\n";
    if (images_.any()) to << printable_line(images_.text()) << "\n";
    to << "\n";
    to << padded("", 12) << right("all", 15) << right("mean", 10) << right("shortest", 10)
       << right("median", 10) << right("90 %", 10) << right("99 %", 10) << right("longest", 12)
       << "\n";
    const auto line = [&](const char* name, const std::vector<int32_t>& lengths) {
      const data::LengthSummary s = data::summary_of(lengths);
      to << padded(name, 12) << right(count_of(s.total), 15) << right(format_fixed(s.mean, 1), 10)
         << right(count_of(s.least), 10) << right(count_of(s.median), 10)
         << right(count_of(s.p90), 10) << right(count_of(s.p99), 10)
         << right(count_of(s.longest), 12) << "\n";
    };
    line("characters", characters_);
    line("words", words_);
    if (tokenizer_) line("tokens", tokens_);
    if (!images_.widths().empty()) {
      line("image width", images_.widths());
      line("image height", images_.heights());
    }
    if (!images_.tokens().empty()) line("image tokens", images_.tokens());
    print_fields();
    print_bars(by);
    to << std::flush;
  }

  void print_fields() const {
    size_t width = 12;
    for (const auto& [name, field] : fields_) width = std::max(width, columns_of(name) + 2);
    std::cout << "\nfields\n";
    for (const auto& [name, field] : fields_) {
      std::string types;
      for (const auto& [type, count] : field.types)
        types += (types.empty() ? "" : ", ") + type +
                 (field.types.size() > 1 ? " " + count_of(count) : std::string());
      std::cout << padded(name, width) << right(count_of(field.rows), 12)
                << right(percent_text(share_of(field.rows)), 9) << "  " << types << "\n";
    }
  }

  // Bars beside their numbers: of groups, and of lengths.
  void print_bars(const data::RowGroups& by) const {
    std::vector<std::pair<std::string, int64_t>> lengths;
    for (const data::HistogramBin& bin : data::histogram_of(this->lengths()))
      lengths.emplace_back(range(bin), bin.rows);
    const auto table = [&](const std::string& title, const auto& bars) {
      size_t width = 12;
      int64_t largest = 1;
      for (const auto& [name, count] : bars) {
        width = std::max(width, columns_of(name) + 2);
        largest = std::max(largest, count);
      }
      std::cout << "\n" << printable_line(title) << "\n";
      for (const auto& [name, count] : bars)
        std::cout << padded(name, width) << right(count_of(count), 12)
                  << right(percent_text(share_of(count)), 9) << "  "
                  << text_bar(static_cast<double>(count), static_cast<double>(largest), kStatsBar)
                  << "\n";
    };
    table(by.described(), domains_);
    table(temper::str("rows by ", unit()), lengths);
  }

  DataInputs inputs_;
  GroupFlags groups_;
  std::string model_, svg_;
  bool json_ = false;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const data::ImageFormat> images_of_;  // null: the model sees none
  ImageStats images_;
  std::vector<int32_t> characters_, words_, tokens_;
  std::unordered_set<data::RowHash> rows_, prompts_;
  int64_t repeated_rows_ = 0, repeated_prompts_ = 0;
  std::map<std::string, FieldCount> fields_;
  std::vector<std::pair<std::string, int64_t>> domains_;
};

}  // namespace

std::unique_ptr<Command> data_stats() { return std::make_unique<Stats>(); }

}  // namespace temper::cli
