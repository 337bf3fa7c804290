#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <streambuf>
#include <thread>

#include "temper/base/config/config.h"
#include "temper/base/error.h"
#include "temper/base/stopped.h"
#include "temper/base/version.h"
#include "temper/cli/launch.h"
#include "temper/cli/parts/completion_words.h"
#include "temper/cli/parts/full_device.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/reported.h"
#include "temper/cli/synonyms/synonyms.h"
#include "temper/cli/training.h"
#include "temper/cli/verbs.h"
#include "temper/ops/processors.h"
#include "temper/preference/losses.h"
#include "temper/rl/algorithms/algorithm.h"
#include "temper/text/unicode.h"

namespace temper::cli {
namespace {

constexpr size_t kLongestMessage = 2000;  // what it quotes from a file may be of any length

void print_help() {
  std::cout << "Temper " << kVersion
            << ": post-training of language models in one native program.\n\n"
               "usage: temper VERB [arguments]       temper VERB --help\n\n";
  for (const Verb& verb : verbs())
    std::cout << "  " << verb.name << std::string(12 - std::string(verb.name).size(), ' ')
              << verb.help << "\n";
  std::cout << "\nexamples:\n"
               "  temper init --config config.json --tokenizer DIR --output models/tiny\n"
               "  temper sft configs/sft.yaml train.max_steps=100\n"
               "  temper generate --model runs/x/final --input prompts.jsonl --output out.jsonl "
               "--temperature 0\n"
               "\nexit status: 0 done; 1 it failed; 2 what was given is wrong; 128 + N stopped by "
               "signal N, after\nsaving what was done (130 Ctrl-C, 143 SIGTERM, 129 SIGHUP)\n";
}

// What a word that is no verb may mean: names of other programs' verbs are often those of losses
// and algorithms.
std::string meant_by(const std::string& word) {
  const auto among = [&](const auto& table) {
    return std::ranges::any_of(table.list(), [&](const auto& e) { return e.name == word; });
  };
  if (among(preference::losses())) return "; it is temper dpo with preference.loss=" + word;
  if (among(rl::algorithms())) return "; it is temper grpo with rl.algorithm=" + word;
  return {};
}

}  // namespace

const Verb& find_verb(const std::vector<Verb>& among, const std::string& name) {
  std::string known;
  std::vector<std::string> names;
  for (const Verb& verb : among) {
    if (verb.name == name) return verb;
    names.emplace_back(verb.name);
    known += (known.empty() ? "" : ", ") + names.back();
  }
  const std::string meant = meant_by(name);
  throw ConfigError(str(name.empty() ? "" : "unknown verb `" + name + "`; ", "expected one of ",
                        known, meant.empty() ? did_you_mean(name, names) : meant));
}

bool asks_for_help(const Arguments& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "--help" || argument == "-h";
  });
}

namespace {

int report(const std::string& kind, const std::exception& e, int status) {
  // LibTorch's messages carry a stack trace behind the first line.
  const std::string what = e.what();
  // Every rank finds the same error in the user's files. Later ranks wait, so that the first one
  // reports it; when it exits, the launcher ends the others.
  if (status == 2 && is_later_rank()) std::this_thread::sleep_for(std::chrono::seconds(2));
  std::string message = what.substr(0, what.find("\nException raised from"));
  if (message.size() > kLongestMessage) message = message.substr(0, kLongestMessage) + "...";
  // It may quote a file that is no text, or one that would write to the terminal.
  std::cerr << "temper: " << kind << printable(message) << std::endl;
  return status;
}

}  // namespace

namespace {

std::vector<Verb> all_verbs() {
  std::vector<Verb> table;
  for (const TrainingVerb& verb : training_verbs()) {
    const Verb::Keys keys = std::visit(
        [](auto config) -> Verb::Keys { return &keys_of<typename decltype(config)::type>; },
        verb.config);
    table.emplace_back(
        verb.name, [&verb](const Arguments& arguments) { return run_training(verb, arguments); },
        verb.help, keys);
  }
  const std::vector<Verb> others{
      {"generate", &generate_command, "sample completions of prompts"},
      {"chat", &chat_command, "chat with a model in the terminal"},
      {"serve", &serve_command, "an OpenAI-compatible server; with --tinker also the Tinker API"},
      {"score", &score_command, "log-probabilities of given completions"},
      {"eval", &eval_command, "mean reward, pass@k, perplexity, or accuracy on preference pairs"},
      {"tokenize", &tokenize_command, "text to ids and back; conversations to ids and labels"},
      data_verb(),
      {"init", &init_command, "a model with random weights"},
      {"export", &export_command,
       "merge an adapter, convert the dtype, write GGUF; verifies the result"},
      {"check", &check_command, "check a run before it starts, plan its memory and its mesh"},
      {"top", &top_command, "progress of a run: step, loss or reward, speed, time left"},
      {"report", &report_command, "a page about a run, or about several side by side"},
      {"sweep", &sweep_command, "a run for each combination of settings"},
      {"fork", &fork_command, "go on from a run's checkpoint with other settings"},
      {"verify", &verify_command, "repeat a run's steps, and compare with its manifest"},
      {"debug", &debug_command, "repeat a step of a run, and show its tensors"},
      {"fetch", &fetch_command, "a model or data set from a hub into the local cache"},
      {"diff", &diff_command, "the differences between two runs or two models"},
      {"doctor", &doctor_command, "what this machine has, and how fast it and its ranks are"},
      {"list", &run_list, "available " + list_of_topics(", ")},
      {"demo", &demo_command, "train a small model to add, and show what it learned"},
      {"completion", &run_completion, "tab completion for bash, zsh or fish"},
  };
  table.insert(table.end(), others.begin(), others.end());
  return table;
}

}  // namespace

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table = all_verbs();
  return table;
}

int Verb::run(const Arguments& arguments, const std::string& before) const {
  if (parse_and_run) return parse_and_run(arguments);
  const std::string named = before + name;
  if (make) {
    Flags flags(named);
    const std::unique_ptr<Command> command = make();
    command->declare(flags);
    return flags.read(arguments) ? command->run() : 0;
  }
  const std::string word = arguments.empty() ? "" : arguments[0];
  if (!asks_for_help({word}))
    return find_verb(tools, word).run({arguments.begin() + 1, arguments.end()}, named + " ");
  std::cout << about << "\n";
  for (const Verb& tool : tools) {
    std::cout << "\n" << named << " " << tool.name << ": ";
    tool.run({"--help"}, named + " ");
  }
  return 0;
}

std::vector<Flag> flags_of(const Verb& verb) {
  std::vector<Flag> found;
  const auto add = [&](const std::vector<Flag>& flags) {
    for (const Flag& flag : flags)
      if (std::ranges::find(found, flag.name, &Flag::name) == found.end()) found.push_back(flag);
  };
  for (const Verb& tool : verb.tools) add(flags_of(tool));
  if (!verb.make) return found;
  Flags flags("");
  const std::unique_ptr<Command> command = verb.make();
  command->declare(flags);
  add(flags.list());
  return found;
}

namespace {

// While an object of this class lives, text goes to standard output as before, and the errno of the
// first failed write is kept: it may come long before the end.
class PrintedText : public std::streambuf {
 public:
  PrintedText() : before_(std::cout.rdbuf(this)) {}
  ~PrintedText() override { std::cout.rdbuf(before_); }
  int failure() const { return failure_; }  // errno's; 0: none

 private:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char one = traits_type::to_char_type(c);
    return xsputn(&one, 1) == 1 ? c : traits_type::eof();
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    errno = 0;
    const auto written = std::fwrite(text, 1, static_cast<size_t>(size), stdout);
    if (static_cast<std::streamsize>(written) != size) keep_failure();
    return static_cast<std::streamsize>(written);
  }
  int sync() override {
    errno = 0;
    if (std::fflush(stdout) == 0) return 0;
    keep_failure();
    return -1;
  }
  void keep_failure() {
    if (failure_ == 0) failure_ = errno != 0 ? errno : EIO;
  }

  std::streambuf* const before_;
  int failure_ = 0;
};

// The exit status after everything was printed: a failed write to standard output, such as on a
// full disk, is a failure as for any other file. For a training run it is only a warning, as what
// the run left in its directory is complete.
int flush_standard_output(const PrintedText& printed, const Arguments& arguments, int status) {
  std::cout.flush();
  if (status != 0 || printed.failure() == 0) return status;
  const bool trains = !asks_for_help(arguments) &&
                      std::any_of(verbs().begin(), verbs().end(), [&](const Verb& verb) {
                        return !arguments.empty() && arguments[0] == verb.name && verb.keys;
                      });
  if (trains && printed.failure() == EPIPE) return status;  // whoever reads it has left
  std::cerr << (trains ? "temper: warning: " : "temper: ")
            << "standard output: cannot write all of what was printed: "
            << std::strerror(printed.failure()) << std::endl;
  return trains ? status : 1;
}

int run_verb(const Arguments& arguments) {
  if (arguments.empty() || asks_for_help({arguments[0]}) || arguments[0] == "help") {
    print_help();
    return arguments.empty() ? 2 : 0;
  }
  if (arguments[0] == "--version") {
    std::cout << "temper " << kVersion << "\n";
    return 0;
  }
  ops::limit_simd();
  return find_verb(verbs(), arguments[0]).run({arguments.begin() + 1, arguments.end()});
}

}  // namespace

int with_errors_reported(const std::string& before, const std::function<int()>& run) {
  const auto report = [&before](const char* kind, const std::exception& e, int status) {
    return cli::report(before + kind, e, status);
  };
  try {
    return run();
  } catch (const ConfigError& e) {
    return report("", e, 2);
  } catch (const DataError& e) {
    return report("", e, 2);
  } catch (const Stopped& e) {
    return report("", e, stopped_status());
  } catch (const Interrupted&) {
    return report("", Stopped("stopped"), stopped_status());
  } catch (const Error& e) {
    return report("", e, 1);
  } catch (const std::filesystem::filesystem_error& e) {
    // The path is one that the user named: a run checks what it makes itself.
    std::cerr << "temper: " << before << printable(e.path1().string()) << ": " << e.code().message()
              << std::endl;
    return 2;
  } catch (const c10::OutOfMemoryError& e) {
    return report("",
                  RunError(full_device_message(
                      e,
                      "a smaller --cache-bytes or --max-batch, --dtype bfloat16 or --storage "
                      "int8 or nf4 would take less")),
                  1);
  } catch (const std::bad_alloc& e) {
    return report("out of memory: ", e, 1);
  } catch (const std::exception& e) {
    return report("internal error: ", e, 1);
  }
}

int run(const Arguments& arguments) {
  const PrintedText printed;
  use_key_synonyms(key_synonyms());
  return flush_standard_output(printed, arguments,
                               with_errors_reported("", [&] { return run_verb(arguments); }));
}

}  // namespace temper::cli
