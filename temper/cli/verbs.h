// The verbs of the program. Errors are thrown.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "temper/cli/parts/flags.h"

namespace temper::cli {

// A verb that takes flags. One description of them serves parsing, --help and shell completion.
class Command {
 public:
  virtual ~Command() = default;
  // Says what the verb does and which flags it takes, bound to members.
  virtual void declare(Flags& f) = 0;
  // Does the work, once the flags are parsed. Gives the exit status.
  virtual int run() = 0;
};

// A key of a training verb's config, for shell completion.
struct ConfigKey {
  std::string name, help;            // "rl.group_size"
  std::vector<std::string> choices;  // of its value; empty: it is no choice
};

// A verb that takes flags (make), one that has tools (temper data stats), or one that parses its
// arguments itself (parse_and_run): a training verb, which takes config files and keys, or one that
// takes words.
struct Verb {
  using Run = std::function<int(const Arguments&)>;
  using Make = std::unique_ptr<Command> (*)();
  using Keys = std::vector<ConfigKey> (*)();

  Verb(const char* name_, Make make_, const char* help_) : name(name_), help(help_), make(make_) {}
  Verb(const char* name_, Run run_, std::string help_, Keys keys_ = nullptr)
      : name(name_), help(std::move(help_)), parse_and_run(std::move(run_)), keys(keys_) {}

  Verb(const char* name_, const char* about_, std::vector<Verb> tools_, const char* help_)
      : name(name_), help(help_), about(about_), tools(std::move(tools_)) {}

  // Gives the exit status. `before`: the words before the verb's name.
  int run(const Arguments& arguments, const std::string& before = "temper ") const;

  const char* name;
  std::string help;
  Make make = nullptr;
  Run parse_and_run;
  Keys keys = nullptr;
  const char* about = nullptr;  // of one with tools
  std::vector<Verb> tools;
};
// One of the verbs. Throws ConfigError that says what may have been meant.
const Verb& find_verb(const std::vector<Verb>& among, const std::string& name);
// The flags that a verb and its tools declare, each once; none where it parses its arguments
// itself.
std::vector<Flag> flags_of(const Verb& verb);
const std::vector<Verb>& verbs();

int run_list(const Arguments&);
int run_completion(const Arguments&);
std::unique_ptr<Command> generate_command();
std::unique_ptr<Command> chat_command();
std::unique_ptr<Command> serve_command();
std::unique_ptr<Command> score_command();
std::unique_ptr<Command> eval_command();
std::unique_ptr<Command> tokenize_command();
Verb data_verb();
std::unique_ptr<Command> init_command();
std::unique_ptr<Command> export_command();
std::unique_ptr<Command> doctor_command();
std::unique_ptr<Command> demo_command();
std::unique_ptr<Command> fetch_command();
std::unique_ptr<Command> diff_command();
std::unique_ptr<Command> report_command();
std::unique_ptr<Command> top_command();
std::unique_ptr<Command> fork_command();
std::unique_ptr<Command> verify_command();
std::unique_ptr<Command> sweep_command();
std::unique_ptr<Command> debug_command();

bool asks_for_help(const Arguments& arguments);
// What `temper list` knows, for help and shell completion.
std::vector<std::string> list_topics();
std::string list_of_topics(const std::string& separator);

// Runs the program: exit status 0, 1 (the run failed) or 2 (what the user gave is wrong), with one
// message on stderr.
int run(const Arguments& arguments);

}  // namespace temper::cli
