// temper data pairs: makes rows of preferences.
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/cli/data/data_tools.h"
#include "temper/cli/parts/output.h"
#include "temper/cli/parts/work.h"
#include "temper/data/tools/pairs.h"

namespace temper::cli {
namespace {

// The files that a path names: itself, or those of a run's rollouts/ in the order of their steps.
std::vector<std::string> rollout_files(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) return {path};
  const std::string folder = fs::is_directory(path + "/rollouts") ? path + "/rollouts" : path;
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().find(".jsonl") != std::string::npos)
      out.push_back(entry.path().string());
  // step-2 before step-10.
  std::sort(out.begin(), out.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  check<ConfigError>(!out.empty(), path, ": no rollouts (step-N.jsonl)");
  return out;
}

class Pairs : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Makes rows {prompt, chosen, rejected} from right answers (--input; rejected: the answer "
        "with a wrong number),\nor from rollouts (--rollouts; the best and the worst completion of "
        "each group after the same prompt).\n"
        "example: temper data pairs --input gsm8k.jsonl --columns prompt=question "
        "completion=answer --output pairs.jsonl\n"
        "example: temper data pairs --rollouts runs/grpo --output pairs.jsonl");
    input_.add_to(f, "prompt and completion, both text");
    f.add("--rollouts", rollouts_,
          "a run's directory, its rollouts/ directory, or one rollout file");
    f.excludes("--input", {"--rollouts"});
    f.add("--output", output_, "file for the pairs, or - for standard output", required());
    f.add("--seed", seed_, "random seed of the wrong numbers", at_least(0));
  }

  int run() override {
    check<ConfigError>(input_.input.empty() != rollouts_.empty(),
                       "data pairs: expected --input or --rollouts");
    if (!rollouts_.empty())
      for (const std::string& file : rollout_files(rollouts_)) refuse_to_overwrite(file);
    OutputFile out(output_, input_.input);
    rollouts_.empty() ? from_answers(out) : from_rollouts(out);
    out.finish();
    std::cerr << pairs_ << " pairs; " << skipped_
              << (rollouts_.empty() ? " rows without a number" : " groups without a difference")
              << std::endl;
    check<DataError>(pairs_ > 0, rollouts_.empty() ? input_.input : rollouts_,
                     ": nothing to make pairs of");
    return 0;
  }

 private:
  void refuse_to_overwrite(const std::string& file) const {
    std::error_code ignored;
    check<ConfigError>(!std::filesystem::equivalent(file, output_, ignored), "--output ", output_,
                       ": is a file of --rollouts, which would be lost");
  }

  // from: the folder of the pair's rows, to which paths of images are relative.
  void add(OutputFile& out, std::optional<Json> pair, const std::string& from = {}) {
    (pair ? pairs_ : skipped_) += 1;
    if (pair) move_images(*pair, from, output_);
    if (pair) out.row(OutputRow(*pair));
  }

  void from_answers(OutputFile& out) {
    InputRows rows(input_);
    Json row;
    for (uint64_t index = 0; rows.next(row); ++index)
      add(out,
          data::pair_with_wrong_number(row, static_cast<uint64_t>(seed_), index, rows.where()));
  }

  void from_rollouts(OutputFile& out) {
    for (const std::string& file : rollout_files(rollouts_)) {
      data::RowReader rows(file);
      std::vector<Json> group;
      std::string where;
      Json row;
      const auto flush = [&] {
        if (group.empty()) return;
        const std::vector<Json> pairs = data::best_against_worst(group, where);
        if (pairs.empty()) add(out, {});
        for (const Json& pair : pairs)
          add(out, pair, std::filesystem::path(file).parent_path().string());
        group.clear();
      };
      while (rows.next(row)) {
        check<DataError>(row.contains("group"), rows.where(), ": no `group`");
        if (!group.empty() && group.back()["group"] != row["group"]) flush();
        where = rows.where();
        group.push_back(std::move(row));
      }
      flush();
    }
  }

  std::string rollouts_, output_;
  InputFlags input_;
  int64_t seed_ = 0;
  int64_t pairs_ = 0, skipped_ = 0;
};

}  // namespace

std::unique_ptr<Command> data_pairs() { return std::make_unique<Pairs>(); }

}  // namespace temper::cli
