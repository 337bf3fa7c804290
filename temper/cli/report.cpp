// temper report: a page about runs, from their files.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/cli/experiments/prompt_tables.h"
#include "temper/cli/parts/options.h"
#include "temper/cli/parts/run_files.h"
#include "temper/cli/verbs.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

class ReportPage : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Writes a page about runs: for one run its report.html anew, for several a comparison of "
        "their curves and of the settings that differ; for a run and its fork also the mean "
        "difference of each metric, paired by step after the fork, with a 95 % interval, which "
        "takes into account that a step is like those before it, and the interval that two "
        "unrelated runs with these metrics would have. A fork of a fork is paired with both. Where "
        "both kept rollout files (rl.save_rollouts), reward and completion length are also paired "
        "by prompt, and the ten prompts whose reward changed most are listed. The console rounds; "
        "the page has all digits.\n"
        "examples:\n"
        "  temper report runs/a\n"
        "  temper report runs/a runs/b --output both.html\n"
        "  temper report runs/a runs/fork");
    f.add("RUN", runs_, "directories of runs, which may be running", required());
    f.add("--output", output_,
          "file; default: the run's report.html, or compared.html here for several");
  }

  int run() override {
    check_different();
    std::vector<RunFiles> files;
    for (const std::string& run : runs_) files.emplace_back(run);
    for (const RunFiles& run : files)
      check<ConfigError>(!run.rows.empty(), run.directory,
                         "/metrics.jsonl: no rows; metrics.sinks without jsonl keeps none");
    const bool one = files.size() == 1;
    if (output_.empty()) output_ = one ? files[0].directory + "/report.html" : "compared.html";
    write_file_atomic(output_, one ? page_of(std::move(files[0])) : page_of_all(files));
    std::cout << output_ << std::endl;
    for (const PairedTable& table : paired_) print(table.brief);
    for (const std::string& warning : warnings_)
      std::cerr << "warning: " << printable(warning) << std::endl;
    return 0;
  }

 private:
  void check_different() const {
    for (size_t i = 0; i < runs_.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        std::error_code none;
        check<ConfigError>(
            !std::filesystem::equivalent(runs_[j], runs_[i], none), runs_[i],
            runs_[i] == runs_[j] ? str(": given twice") : str(": the same run as ", runs_[j]),
            "; give each run once");
      }
  }

  static std::string page_of(RunFiles run) {
    run.report.rows = std::move(run.rows);
    if (run.report.config.empty()) run.report.config = run.config_text;
    return render_report(run.report);
  }

  // The last part of the path where that tells the runs apart.
  std::string name_of(const std::string& run) const {
    const auto last = [](const std::string& path) {
      return (std::filesystem::path(path) / "").parent_path().filename().string();
    };
    const bool unique = std::count_if(runs_.begin(), runs_.end(), [&](const std::string& other) {
                          return last(other) == last(run);
                        }) == 1;
    return unique ? last(run) : run;
  }

  // The differences between runs and their forks, and forks of these.
  void compare_forks(const std::vector<RunFiles>& files) {
    for (const RunFiles& a : files)
      for (const RunFiles& b : files) {
        if (&a == &b) continue;
        const std::string of_a = name_of(a.directory), of_b = name_of(b.directory);
        const auto [step, unknown] = descent_of(a.directory, b.directory, runs_);
        if (!unknown.empty())
          warn(str(unknown, ": whether ", of_b, " goes back to ", of_a,
                   " is not known, and they are not paired; name that run, too, where it is now"));
        if (!step) continue;
        std::vector<PairedDifference> differences = paired_differences(a.rows, b.rows, *step);
        std::erase_if(differences, [&](const PairedDifference& d) {
          return is_of_machine(a.report.metrics, d.metric);
        });
        PairedTable by_step =
            difference_table(str(of_b, " less ", of_a, ", paired by step, after step ", *step),
                             differences, "steps", of_a, of_b, true);
        if (!differences.empty())
          by_step.add_to_both(
              {"intervals: Student's t, of steps that are independent of each other; of steps that "
               "are like those before them: the last column (EWC)"});
        paired_.push_back(std::move(by_step));
        std::vector<std::string> problems;
        for (PairedTable& by_prompt : prompt_tables(a, of_a, b, of_b, *step, problems))
          paired_.push_back(std::move(by_prompt));
        for (const std::string& problem : problems) warn(problem);
      }
  }

  void warn(const std::string& warning) {
    if (std::ranges::find(warnings_, warning) == warnings_.end()) warnings_.push_back(warning);
  }

  static void print(const Report::Table& table) {
    std::cout << table.title << "\n";
    std::vector<std::vector<std::string>> lines{table.header};
    lines.insert(lines.end(), table.rows.begin(), table.rows.end());
    std::vector<size_t> widths(table.header.size());
    for (const auto& line : lines)
      for (size_t i = 0; i < line.size() && line.size() > 1; ++i)
        widths[i] = std::max(widths[i], line[i].size());
    for (const auto& line : lines) {
      for (size_t i = 0; i < line.size(); ++i)
        std::cout << "  " << line[i]
                  << std::string(i + 1 < line.size() ? widths[i] - line[i].size() : 0, ' ');
      std::cout << "\n";
    }
    std::cout << std::flush;
  }

  std::string page_of_all(const std::vector<RunFiles>& files) {
    std::vector<ComparedRun> runs;
    std::string title;
    for (const RunFiles& run : files) {
      const std::string name = name_of(run.directory);
      title += (title.empty() ? "" : ", ") + name;
      runs.push_back({name, run.rows});
    }
    Report::Table config{"Config", {"run", "differs from " + runs[0].name}, {}};
    for (size_t i = 1; i < files.size(); ++i)
      for (const std::string& difference : config_differences(files[0], files[i]))
        config.rows.push_back({runs[i].name, difference});
    std::vector<Report::Table> tables;
    if (!config.rows.empty()) tables.push_back(std::move(config));
    compare_forks(files);
    for (const PairedTable& table : paired_) tables.push_back(table.whole);
    return render_comparison(title, runs, files[0].report.metrics, tables);
  }

  std::vector<std::string> runs_;
  std::string output_;
  std::vector<PairedTable> paired_;  // of forks
  std::vector<std::string> warnings_;
};

}  // namespace

std::unique_ptr<Command> report_command() { return std::make_unique<ReportPage>(); }

}  // namespace temper::cli
