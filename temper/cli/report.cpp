// temper report: a page about runs, from their files.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/cli/parts/options.h"
#include "temper/cli/parts/run_files.h"
#include "temper/cli/verbs.h"

namespace temper::cli {
namespace {

class ReportPage : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Writes a page about runs: for one run its report.html anew, for several a comparison of "
        "their curves and of the settings that differ.\n"
        "examples:\n"
        "  temper report runs/a\n"
        "  temper report runs/a runs/b --output both.html");
    f.add("RUN", runs_, "directories of runs, which may be running", required());
    f.add("--output", output_,
          "file; default: the run's report.html, or compared.html here for several");
  }

  int run() override {
    std::vector<RunFiles> files;
    for (const std::string& run : runs_) files.emplace_back(run);
    for (const RunFiles& run : files)
      check<ConfigError>(!run.rows.empty(), run.directory,
                         "/metrics.jsonl: no rows; metrics.sinks without jsonl keeps none");
    const bool one = files.size() == 1;
    if (output_.empty()) output_ = one ? files[0].directory + "/report.html" : "compared.html";
    write_file_atomic(output_, one ? page_of(std::move(files[0])) : page_of_all(files));
    std::cout << output_ << std::endl;
    return 0;
  }

 private:
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

  std::string page_of_all(const std::vector<RunFiles>& files) const {
    std::vector<ComparedRun> runs;
    std::string title;
    for (const RunFiles& run : files) {
      const std::string name = name_of(run.directory);
      check<ConfigError>(std::none_of(runs.begin(), runs.end(),
                                      [&](const ComparedRun& r) { return r.name == name; }),
                         run.directory, ": given twice");
      title += (title.empty() ? "" : ", ") + name;
      runs.push_back({name, run.rows});
    }
    Report::Table config{"Config", {"run", "differs from " + runs[0].name}, {}};
    for (size_t i = 1; i < files.size(); ++i)
      for (const std::string& difference : config_differences(files[0], files[i]))
        config.rows.push_back({runs[i].name, difference});
    std::vector<Report::Table> tables;
    if (!config.rows.empty()) tables.push_back(std::move(config));
    return render_comparison(title, runs, files[0].report.metrics, tables);
  }

  std::vector<std::string> runs_;
  std::string output_;
};

}  // namespace

std::unique_ptr<Command> report_command() { return std::make_unique<ReportPage>(); }

}  // namespace temper::cli
