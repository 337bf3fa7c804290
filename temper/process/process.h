// A child process that never outlives this program.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "temper/process/sandbox.h"

namespace temper::process {

using Clock = std::chrono::steady_clock;

struct ProcessOptions {
  std::vector<std::string> command;      // the program, looked up in PATH, and its arguments
  std::vector<std::string> environment;  // "NAME=value", before this program's own
  struct Limit {
    int resource;  // RLIMIT_AS, ...
    uint64_t value;
  };
  std::vector<Limit> limits;  // soft and hard, in force before the program's first instruction
  std::string scratch;        // a directory to remove when this program is killed; empty: none
  Sandbox sandbox = {};       // in which it can change `scratch`; that it is possible is known
};

// The path of a program as a shell would find it, empty where there is none that can be run.
std::string find_program(const std::string& name);
// The problem with a program and its arguments: "the command `x` is not found in PATH", "... not a
// program that can be run", an argument that only a shell understands: &&, || and 2>&1, and where
// find_program() does not find the program |, > and the like too, or the script of an interpreter
// (python, sh, ..) that is not there. Empty: none.
std::string program_problem(std::span<const std::string> command);

// The program runs in this one's directory, with pipes for its standard streams, default signal
// handling and no other open file. It and all that it starts are in one process group, whose leader
// is a small shell that waits for the end of a pipe which only this program holds open. However
// this program ends, the shell then kills the group. (PR_SET_PDEATHSIG would tell the program
// alone, and at the end of the *thread* that started it.) What left the group, as a daemon does, is
// found by a variable of its environment (marked.h).
class Process {
 public:
  // Throws RunError where it cannot be started.
  explicit Process(const ProcessOptions& options);
  // Closes its input, gives it `grace` to end by itself, then ends the group. Returns within that
  // and a few seconds, even if the system does not let go of a process.
  void end(Clock::duration grace);
  ~Process() { end(Clock::duration::zero()); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // This end of its standard input, output and error; non-blocking, -1 when closed.
  int input() const { return input_; }
  int output() const { return output_; }
  int errors() const { return errors_; }
  // Readable when it has ended, whoever else holds its output; -1 where the system has no such
  // descriptor.
  int exit() const { return exit_; }
  void close_input();
  void close_errors();

  // Whether all that was written to its input has been read.
  bool input_is_read() const;
  bool has_ended() const;
  // "exited with status 3"; "closed its output" where it has not ended.
  std::string ending() const;

 private:
  const std::string mark_;
  const bool sandboxed_;
  pid_t leader_ = -1, process_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1, exit_ = -1;
  int alive_ = -1;  // the write end of the pipe that the leader waits on
};

}  // namespace temper::process
