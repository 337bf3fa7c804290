// What the working verbs show while they work, and how they are stopped.
#pragma once

#include <cstdint>
#include <string>

namespace temper::cli {

// From here on the first SIGINT, SIGTERM or SIGHUP asks the program to stop; one that comes more
// than a second later ends it as usual. (One wish to stop may arrive twice: from the terminal or a
// process manager to the whole group, and passed on by a parent.)
// notice: said on stderr when the first one comes; null: nothing. applies: whether it is true then,
// a function that is safe in a signal handler; null: always.
void catch_interrupts(const char* notice = nullptr, bool (*applies)() = nullptr);
bool interrupted();
bool interrupted_by_key();  // by SIGINT (Ctrl-C), not by what wants the program to end
// The exit status of a program that was asked to stop: 128 + the number of the signal, as a shell
// reports a program that a signal ended; that of SIGTERM where another rank got the signal.
int stopped_status();
void let_interrupts_end();  // a signal ends the program again
void forget_interrupt();    // the same, and a wish that came was obeyed
struct Interrupted {};      // thrown where work stops because of that

// "sampled 12 of 64, 3,210 tokens/s, left 0:04" on standard error: on a terminal redrawn a few
// times a second and cleared at the end, elsewhere a line a minute.
class Progress {
 public:
  // total 0: unknown. unit: of what advance() counts beside the items; empty: the items themselves.
  Progress(std::string what, int64_t total, std::string unit = "tokens");
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance(int64_t items, int64_t units = 0);

 private:
  std::string what_, unit_;
  int64_t total_, items_ = 0, units_ = 0;
  bool terminal_;
  double start_, drawn_;  // seconds
};

}  // namespace temper::cli
