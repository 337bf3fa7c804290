// temper data: looks at row files and prepares them.
#include <utility>

#include "temper/base/error.h"
#include "temper/cli/data/data_tools.h"

namespace temper::cli {
namespace {

class Data : public Command {
 public:
  Data() {
    const auto add = [&](const char* name, std::unique_ptr<Command> tool) {
      tools_.emplace_back(name, std::move(tool));
    };
    add("stats", data_stats());
    add("balance", data_balance());
    add("dedup", data_dedup());
    add("split", data_split());
    add("convert", data_convert());
    add("pairs", data_pairs());
  }

  void declare(CLI::App& app) override {
    app.description(
        "Looks at files of rows and prepares them.\n"
        "Rows come from files, directories, patterns or ids of data sets, in any format that "
        "training reads. They are written as\nlines of JSON, as they stood in the file (.gz and "
        ".zst are compressed, .json is one list, .parquet a table). A file\nappears when it is "
        "complete, and never replaces an input.");
    app.require_subcommand(1);
    for (const auto& [name, tool] : tools_) {
      CLI::App* const declared = app.add_subcommand(name);
      tool->declare(*declared);
      declared->callback([this, chosen = tool.get()] { chosen_ = chosen; });
    }
  }

  int run() override { return chosen_->run(); }

 private:
  std::vector<std::pair<const char*, std::unique_ptr<Command>>> tools_;
  Command* chosen_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> data_command() { return std::make_unique<Data>(); }

}  // namespace temper::cli
