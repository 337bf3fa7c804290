#include "temper/cli/experiments/joint_sweep.h"

#include <signal.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <streambuf>

#include "temper/base/json.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/reported.h"
#include "temper/text/unicode.h"
#include "temper/train/joint/joint_runs.h"
#include "temper/train/roles/trained_parts.h"

namespace temper::cli {
namespace {

// Standard output with a text before each line.
class PrefixedLines : public std::streambuf {
 public:
  explicit PrefixedLines(std::string prefix) : prefix_(std::move(prefix)) {}

 private:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    if (begins_) std::cout << prefix_;
    std::cout.put(traits_type::to_char_type(c));
    begins_ = traits_type::to_char_type(c) == '\n';
    return c;
  }
  int sync() override {
    std::cout.flush();
    return 0;
  }

  const std::string prefix_;
  bool begins_ = true;
};

// Signals reach this process, also where a child of it was waited for before.
void hear_signals() {
  sigset_t heard;
  sigemptyset(&heard);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&heard, signal);
  ::sigprocmask(SIG_UNBLOCK, &heard, nullptr);
  catch_interrupts(
      "temper: finishing the steps and saving checkpoints; a second signal ends the runs at "
      "once\n");
  // A console that is closed is no reason to lose a run.
  ::signal(SIGPIPE, [](int) {});
}

}  // namespace

std::string shared_base(const TrainingVerb& verb, const train::RunConfig& config) {
  const models::ModelSection& m = config.model;
  const bool alone = !verb.shares_passes || !config.has_adapter() || config.roles.any() ||
                     !config.adapter.modules_to_save.empty() || config.adapter.train_tokens.any() ||
                     config.train.profile.steps > 0 || config.train.memory_limit ||
                     m.trains_tower() || config.train.offloads_inputs();
  if (alone) return {};
  return str(m.path, '\n', m.tokenizer.value_or(""), '\n',
             Json(train::new_tokens_of(config)).dump(), '\n', m.device, '\n', m.backend, '\n',
             static_cast<int>(m.dtype), ' ', static_cast<int>(m.arithmetic), ' ',
             m.storage ? static_cast<int>(*m.storage) : -1, ' ', static_cast<int>(m.vision), ' ',
             static_cast<int>(config.adapter.method), ' ', static_cast<int>(config.cache_dtype()));
}

int run_jointly(const TrainingVerb& verb, std::vector<JointSweepRun>& runs, int64_t most_tokens,
                const std::function<void()>& ended) {
  hear_signals();
  std::vector<std::function<void()>> work;
  for (JointSweepRun& run : runs)
    work.emplace_back([&] {
      const std::string name = printable(run.name);
      PrefixedLines lines(name + ": ");
      std::ostream console(&lines);
      train::RunHost host{console, false, interrupted};
      if (run.what) host.after_step = [&](int64_t step) { return run.what->after(step); };
      const int status = with_errors_reported(name + ": ", [&] {
        run_part(verb, run.arguments, host);
        return 0;
      });
      run.failed = status != 0 && !interrupted();
      // The report of the sweep; that of the run is written.
      if (!interrupted())
        with_errors_reported(name + ": ", [&] {
          ended();
          return 0;
        });
    });
  train::JointRuns(most_tokens).run(work);
  if (interrupted()) {
    std::cerr << "temper: the sweep was stopped; the same command continues from there"
              << std::endl;
    return stopped_status();
  }
  let_interrupts_end();
  return 0;
}

}  // namespace temper::cli
