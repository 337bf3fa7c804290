// The verbs of the program. Each is a function from its arguments to an exit status; errors are
// thrown.
#pragma once

#include <string>
#include <vector>

namespace temper::cli {

using Arguments = std::vector<std::string>;

// What a verb's arguments are, for shell completion.
enum class Takes { kOther, kFlags, kConfig };

struct Verb {
  const char* name;
  int (*run)(const Arguments&);
  const char* help;
  Takes takes = Takes::kOther;
};
const std::vector<Verb>& verbs();

int run_sft(const Arguments&);
int run_grpo(const Arguments&);
int run_generate(const Arguments&);
int run_score(const Arguments&);
int run_eval(const Arguments&);
int run_tokenize(const Arguments&);
int run_init(const Arguments&);
int run_export(const Arguments&);
int run_doctor(const Arguments&);
int run_list(const Arguments&);
int run_demo(const Arguments&);
int run_completion(const Arguments&);

// Runs the program: exit status 0, 1 (the run failed) or 2 (what the user gave is wrong), with one
// message on stderr.
int run(const Arguments& arguments);

}  // namespace temper::cli
