// temper debug: the tensors of a step of a run, which is repeated for it.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "temper/base/error.h"
#include "temper/base/glob.h"
#include "temper/cli/experiments/recorded_run.h"
#include "temper/cli/experiments/repetition.h"
#include "temper/cli/experiments/step_tensors.h"
#include "temper/cli/launch.h"
#include "temper/cli/parts/shared_config.h"
#include "temper/cli/verbs.h"
#include "temper/process/scratch.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

// The ranks of the run that have roles of their own, as its config says.
std::vector<int> serving_ranks(const RecordedRun& run) {
  std::vector<int> ranks;
  std::visit(
      [&](auto type) {
        typename decltype(type)::type config;
        read_verb_config(config, {run.directory + "/config.yaml"}, run.verb().name);
        ranks = config.roles.serving();
      },
      run.verb().config);
  return ranks;
}

class Debug : public Command {
 public:
  void declare(Flags& f) override {
    f.about(
        "Repeats a step of a run, from the checkpoint before, and shows what trained in it: of "
        "each weight before and after, and of its gradient (over all ranks, before clipping), "
        "norm, "
        "smallest and largest value and the beginning of a digest of its bytes, by rank.\n"
        "PATTERN selects names; * matches any characters. With --against the same step of another "
        "run is repeated too, and the first tensor that differs is shown: exit status 1, or 0 "
        "where none does.\n"
        "examples:\n"
        "  temper debug runs/a 120 '*layers.3.*'\n"
        "  temper debug runs/a 120 --against runs/b");
    f.add("RUN", run_, "directory of a run", required());
    f.add("STEP", step_, "the step, from 1", [] {
      Rule rule = at_least(1);
      rule.required = true;
      return rule;
    }());
    f.add("PATTERN", pattern_, "names of tensors that are shown");
    f.add("--against", against_, "directory of another run");
  }

  int run() override {
    const RecordedRun first(run_);
    std::optional<RecordedRun> second;
    if (!against_.empty()) second.emplace(against_);
    check_step(first);
    if (second) check_step(*second);
    int status = 0;
    const std::vector<StepTensor> tensors = repeat(first, status);
    if (status != 0) return status;
    check<ConfigError>(!tensors.empty(), "PATTERN: no tensor of step ", step_, " is called ",
                       pattern_);
    if (!second) {
      for (const StepTensor& t : tensors) std::cout << printable(t.text()) << "\n";
      std::cout << std::flush;
      return 0;
    }
    const std::vector<StepTensor> others = repeat(*second, status);
    return status != 0 ? status : compare(tensors, others);
  }

 private:
  void check_step(const RecordedRun& run) const {
    const auto& steps = run.steps();
    check<ConfigError>(
        std::any_of(steps.begin(), steps.end(), [&](const auto* s) { return s->step() == step_; }),
        run.directory, ": no step ", step_, " was recorded; the last one is ",
        steps.empty() ? 0 : steps.back()->step());
    const auto starts = run.starts();
    check<ConfigError>(!starts.empty() && starts.begin()->first < step_, run.directory, ": step ",
                       step_,
                       " cannot be repeated: no checkpoint before it is left, or it was "
                       "made with other settings");
  }

  // Sets `status` to another exit status than 0 where the run cannot be repeated, as was said.
  std::vector<StepTensor> repeat(const RecordedRun& run, int& status) const {
    const process::ScratchDirectory scratch;
    const std::string file = scratch.path() + "/tensors";
    const auto starts = run.starts();
    const std::string start = std::prev(starts.lower_bound(step_))->second;
    const int ranks = static_cast<int>(run.ranks());
    Repetition::tell(Repetition{
        .saves = {}, .end = step_, .is_silent = true, .tensors = file, .tensors_of = step_});
    check_nproc(ranks);
    status = launch_ranks(
        ranks, serving_ranks(run), run.verb().name,
        repeated_arguments(run, {}, start, scratch.path() + "/run", run.ranks(), false));
    Repetition::tell({});
    std::vector<StepTensor> found;
    for (int rank = 0; status == 0 && rank < ranks; ++rank) {
      const std::string of_rank = str(file, ".", rank);
      if (!std::filesystem::exists(of_rank)) continue;  // it has a role of its own
      for (StepTensor& t : read_step_tensors(of_rank, rank))
        if (pattern_.empty() || matches_glob(pattern_, t.name)) found.push_back(std::move(t));
    }
    // In the order in which they came to be.
    const auto moment = [](const StepTensor& t) {
      return t.when == "weight" ? 0 : t.when == "gradient" ? 1 : 2;
    };
    std::stable_sort(found.begin(), found.end(), [&](const StepTensor& a, const StepTensor& b) {
      return moment(a) < moment(b);
    });
    return found;
  }

  int compare(const std::vector<StepTensor>& ours, const std::vector<StepTensor>& theirs) const {
    const auto find = [](const std::vector<StepTensor>& in,
                         const StepTensor& t) -> const StepTensor* {
      const auto at = std::ranges::find_if(in, [&](const StepTensor& o) { return o.is(t); });
      return at == in.end() ? nullptr : &*at;
    };
    const auto differ = [&](const StepTensor* mine, const StepTensor* other) {
      const auto text = [](const StepTensor* t) {
        return t ? t->text() : std::string("it has none");
      };
      std::cout << "step " << step_ << ": the first tensor that differs\n"
                << printable(str(run_, ": ", text(mine), "\n", against_, ": ", text(other)))
                << std::endl;
      return 1;
    };
    for (const StepTensor& t : ours) {
      const StepTensor* const other = find(theirs, t);
      if (!other || other->digest != t.digest || other->shape != t.shape) return differ(&t, other);
    }
    for (const StepTensor& t : theirs)
      if (!find(ours, t)) return differ(nullptr, &t);
    std::cout << "step " << step_ << ": " << ours.size() << " tensors are the same" << std::endl;
    return 0;
  }

  std::string run_, pattern_, against_;
  int64_t step_ = 0;
};

}  // namespace

std::unique_ptr<Command> debug_command() { return std::make_unique<Debug>(); }

}  // namespace temper::cli
