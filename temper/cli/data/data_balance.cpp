// temper data balance: gives groups of rows their shares.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/cli/data/data_tools.h"
#include "temper/cli/data/row_sink.h"
#include "temper/data/apportion.h"
#include "temper/metrics/format.h"
#include "temper/metrics/report/bar_chart.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

constexpr int kBalanceBar = 24;  // columns

class Balance : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Writes rows so that groups have given shares: by a field, by rules, or by six built-in "
        "domains (mathematics, coding,\nscience, creative, summarization, general). Under-sampling "
        "leaves rows out, over-sampling repeats them.\n"
        "example: temper data balance rows.jsonl --field source --target web=0.3,books=0.7 "
        "--output balanced.jsonl");
    inputs_.add_to(f);
    f.add("--output", output_, "file for the rows, or - for standard output", required());
    groups_.add_to(f);
    f.add("--target", target_,
          "shares of the groups, as in a=0.5,b=0.5; groups that are not named share the rest in "
          "proportion to their rows; without it all have the same share");
    f.add("--mode", mode_, "under: leave rows out; over: repeat rows", one_of({"under", "over"}));
    f.add("--seed", seed_, "random seed of the rows that are left out or repeated", at_least(0));
    f.add("--svg", svg_, "file for a bar chart of the shares before and after");
    f.add("--json", json_, "print the figures as one JSON object");
  }

  int run() override {
    check_figures_apart("balance", json_, output_);
    const data::RowGroups by = groups_.groups();
    std::vector<std::pair<std::string, double>> targets;
    if (!target_.empty()) targets = data::parse_shares(target_, "--target");
    const data::RowList rows = inputs_.open();
    check_rows_output(output_, rows);
    RowSink out(output_);
    data::GroupedRows found = grouped(by, rows);
    data::set_shares(found.groups, targets, "--target");
    data::balance(found.groups,
                  mode_ == "under" ? data::BalanceMode::kUnder : data::BalanceMode::kOver);
    for (const int64_t row : data::balanced_rows(found, static_cast<uint64_t>(seed_))) {
      if (interrupted()) throw Interrupted();
      out.line(line_for(output_, inputs_, rows, row), rows.where(row));
    }
    if (!svg_.empty()) write_file_atomic(svg_, svg(found.groups));
    out.finish();
    report(by, rows, found.groups);
    return 0;
  }

 private:
  static int64_t total(const std::vector<data::BalanceGroup>& groups, bool after) {
    int64_t rows = 0;
    for (const data::BalanceGroup& group : groups) rows += after ? group.balanced : group.rows;
    return rows;
  }

  static double share_of(int64_t rows, int64_t of) {
    return of > 0 ? static_cast<double>(rows) / static_cast<double>(of) : 0;
  }

  std::string svg(const std::vector<data::BalanceGroup>& groups) const {
    BarChart chart{
        .title = "Shares of rows", .series = {"before", "after"}, .bars = {}, .shares = true};
    const int64_t before = total(groups, false), after = total(groups, true);
    for (const data::BalanceGroup& group : groups)
      chart.bars.push_back(
          {group.name, {share_of(group.rows, before), share_of(group.balanced, after)}});
    return render_bar_chart(chart);
  }

  void report(const data::RowGroups& by, const data::RowList& rows,
              const std::vector<data::BalanceGroup>& groups) const {
    const int64_t before = total(groups, false), after = total(groups, true);
    if (json_) {
      nlohmann::ordered_json out{{"by", by.described()},
                                 {"mode", mode_},
                                 {"seed", seed_},
                                 {"rows_before", before},
                                 {"rows_after", after}};
      out["groups"] = nlohmann::ordered_json::object();
      for (const data::BalanceGroup& group : groups)
        out["groups"][group.name] = {{"target", group.share},
                                     {"rows_before", group.rows},
                                     {"share_before", share_of(group.rows, before)},
                                     {"rows_after", group.balanced},
                                     {"share_after", share_of(group.balanced, after)}};
      std::cout << out.dump(2) << std::endl;
      return;
    }
    std::ostream& to = beside(output_);
    size_t width = 8;
    for (const data::BalanceGroup& group : groups)
      width = std::max(width, columns_of(group.name) + 2);
    double largest = 0;
    for (const data::BalanceGroup& group : groups)
      largest = std::max({largest, share_of(group.rows, before), share_of(group.balanced, after)});
    to << padded(by.described(), width) << "\n"
       << padded("", width) << right("target", 8) << right("before", 11) << right("after", 11)
       << "\n";
    const auto line = [&](const std::string& name, const std::string& target, int64_t count,
                          int64_t of, const char* place) {
      const bool is_before = std::string_view(place) == "before";
      to << padded(name, width) << right(target, 8)
         << right(is_before ? format_count(static_cast<double>(count)) : "", 11)
         << right(is_before ? "" : format_count(static_cast<double>(count)), 11)
         << right(percent_text(share_of(count, of)), 9) << "  "
         << text_bar(share_of(count, of), largest, kBalanceBar) << "\n";
    };
    for (const data::BalanceGroup& group : groups) {
      if (group.rows == 0) continue;
      line(group.name, percent_text(group.share), group.rows, before, "before");
      line("", "", group.balanced, after, "after");
    }
    to << padded("all", width) << right("", 8)
       << right(format_count(static_cast<double>(before)), 11)
       << right(format_count(static_cast<double>(after)), 11) << "\n";
    to << printable_line(output_) << ": " << format_count(static_cast<double>(after)) << " rows of "
       << format_count(static_cast<double>(rows.size())) << std::endl;
  }

  DataInputs inputs_;
  GroupFlags groups_;
  std::string output_, target_, mode_ = "under", svg_;
  int64_t seed_ = 0;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> data_balance() { return std::make_unique<Balance>(); }

}  // namespace temper::cli
