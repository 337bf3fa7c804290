#include "temper/train/sft.h"

#include <signal.h>
#include <unistd.h>

#include <iostream>

#include "temper/base/error.h"
#include "temper/cli/launch.h"
#include "temper/cli/verbs.h"

namespace temper::cli {
namespace {

volatile sig_atomic_t asked_to_stop = 0;

// The first signal asks; a second one ends the program as usual.
void on_signal(int signal) {
  asked_to_stop = 1;
  ::signal(signal, SIG_DFL);
}

constexpr const char* kHelp =
    "Supervised fine-tuning, of all weights or a LoRA adapter.\n"
    "usage: temper sft [--nproc N] [file.yaml ...] [dotted.key=value ...]\n"
    "examples:\n"
    "  temper sft configs/sft.yaml\n"
    "  temper sft configs/sft.yaml adapter.method=lora adapter.rank=16 output_dir=runs/lora\n"
    "keys (path, type, default, meaning):\n";

}  // namespace

int run_sft(const Arguments& arguments) {
  for (const std::string& argument : arguments)
    if (argument == "--help" || argument == "-h") {
      std::cout << kHelp << describe_run_config();
      return 0;
    }
  Arguments rest;
  const int ranks = take_nproc(arguments, rest);
  const RunConfig config = load_run_config(rest, "sft");
  if (ranks > 1) return launch_ranks(ranks, "sft", rest);
  ::signal(SIGINT, on_signal);
  ::signal(SIGTERM, on_signal);
  const train::RunOutcome outcome = train::run_sft(config, {std::cout, ::isatty(STDOUT_FILENO) == 1, [] { return asked_to_stop != 0; }});
  if (!outcome.interrupted) return 0;
  std::cerr << "temper: stopped after step " << outcome.steps << "; the same command goes on from there" << std::endl;
  return 1;
}

}  // namespace temper::cli
