// Child processes: what they are given, how they end, and that nothing of them stays.
#include "temper/process/process.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/process/marked.h"
#include "temper/process/pipes.h"
#include "temper/process/scratch.h"

using namespace temper;
using namespace temper::process;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr auto kLong = 120s;  // on any machine; what is waited for ends the wait

ProcessOptions shell(const std::string& script) {
  ProcessOptions options;
  options.command = {"sh", "-c", script};
  return options;
}

bool comes_true(const std::function<bool()>& condition) {
  const auto until = Clock::now() + kLong;
  while (!condition()) {
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// Standard output until it ends, or until it holds `marker`.
std::string output_of(Process& process, const std::string& marker = "") {
  std::string text;
  const auto until = Clock::now() + kLong;
  while (Clock::now() < until && (marker.empty() || text.find(marker) == text.npos)) {
    std::vector<pollfd> fds{{process.output(), POLLIN, 0}};
    wait_for(fds, until);
    if (!read_some(process.output(), text, 1 << 16)) break;
  }
  return text;
}

bool is_alive(pid_t id) { return ::kill(id, 0) == 0 || errno != ESRCH; }

}  // namespace

TEST_CASE("a program gets its arguments, its variables and its limits, and says how it ended") {
  ProcessOptions options = shell("echo \"$0 $NAME $(ulimit -n)\"; exit 3");
  options.command.emplace_back("argument");
  options.environment = {"NAME=value"};
  options.limits = {{RLIMIT_NOFILE, 37}};
  Process process(options);
  CHECK(output_of(process) == "argument value 37\n");
  CHECK(comes_true([&] { return process.has_ended(); }));
  CHECK(process.ending() == "exited with status 3");
}

using Words = std::vector<std::string>;

TEST_CASE("a program that is not there is named, and one that cannot be run too") {
  CHECK(find_program("sh") != "");
  CHECK(program_problem(Words{"sh"}) == "");
  CHECK(find_program("no-such-program-here") == "");
  CHECK(program_problem(Words{"no-such-program-here"}).find("`no-such-program-here`") !=
        std::string::npos);
  const ScratchDirectory folder;
  write_file_atomic(folder.path() + "/text", "no program");
  CHECK(find_program(folder.path() + "/text") == "");
  CHECK(program_problem(Words{folder.path() + "/text"}) != "");
  for (const char* line : {"cd x && python3 r.py", "PORT=1 python3 r.py", "cd x"})
    CHECK(program_problem(Words{line}).ends_with("[bash, -c, \"the whole command\"]"));
  CHECK(program_problem(Words{"sh r.sh"}).ends_with("as a list: [sh, ..]"));
  // Interpreters: their script is a file.
  const std::string script = folder.path() + "/text";
  for (const char* program : {"sh", "bash", "/bin/sh"}) {
    CHECK(program_problem(Words{program, script, "no-such-argument"}) == "");
    CHECK(program_problem(Words{program, script + ".sh"}) ==
          "the script `" + script + ".sh` of the command is not there");
    CHECK(program_problem(Words{program, "-c", "exit"}) == "");
    CHECK(program_problem(Words{program, "cat"}) == "");  // found in PATH
  }
  CHECK(program_problem(Words{"cat", script + ".sh"}) == "");
}

TEST_CASE("words of a shell's language are refused where no program can expect them") {
  for (const std::string word : {"&&", "||", "2>&1"})
    CHECK(program_problem(Words{"sh", word, "sh"}) ==
          "the command has `" + word +
              "`, which only a shell understands; write [bash, -c, \"the whole command\"]");
  for (const std::string word : {"|", ";", "<", ">", "&", ">>", "<<"}) {
    CHECK(program_problem(Words{"cat", "judge.txt", "--separator", word}) == "");
    CHECK(program_problem(Words{"no-such-program-here", word, "sh"}).find("only a shell") !=
          std::string::npos);
  }
}

TEST_CASE("a signal that ends a program is told") {
  Process process(shell("kill -KILL $$"));
  output_of(process);
  CHECK(comes_true([&] { return process.has_ended(); }));
  CHECK(process.ending().find("9") != std::string::npos);
}

TEST_CASE("what was written is read, and a closed input ends a program that reads") {
  Process process(shell("read -r line; echo \"got $line\"; cat > /dev/null; echo end"));
  std::string unsent = "a line\n";
  CHECK(write_some(process.input(), unsent));
  CHECK(unsent.empty());
  CHECK(output_of(process, "got") == "got a line\n");
  CHECK(comes_true([&] { return process.input_is_read(); }));
  CHECK(!process.has_ended());
  process.close_input();
  CHECK(process.input() == -1);
  CHECK(output_of(process) == "end\n");
}

TEST_CASE("writing to a program that has ended is no signal") {
  Process process(shell("exit 0"));
  CHECK(comes_true([&] { return process.has_ended(); }));
  std::string unsent(1 << 20, 'x');
  CHECK(!write_some(process.input(), unsent));
}

TEST_CASE("the end of a process is the end of all that it started, also of what left its group") {
  pid_t child = 0, daemon = 0;
  const ScratchDirectory folder;
  {
    const bool has_setsid = !find_program("setsid").empty();
    Process process(shell("sleep 1000 & echo $! > " + folder.path() + "/child; " +
                          (has_setsid ? "setsid " : "") + "sh -c 'echo $$ > " + folder.path() +
                          "/daemon; echo ready; sleep 1000' & wait"));
    CHECK(output_of(process, "ready") == "ready\n");
    std::ifstream(folder.path() + "/child") >> child;
    std::ifstream(folder.path() + "/daemon") >> daemon;
    REQUIRE(child > 0);
    REQUIRE(daemon > 0);
    CHECK(is_alive(child));
    CHECK(is_alive(daemon));
  }
  CHECK(comes_true([&] { return !is_alive(child); }));
  CHECK(comes_true([&] { return !is_alive(daemon); }));
}

TEST_CASE("processes are found by a variable of their environment, and no others") {
  const std::string mark = new_mark();
  CHECK(mark != new_mark());
  CHECK(mark.find('=') != std::string::npos);
  CHECK(kill_marked(mark) == 0);
  ProcessOptions marked = shell("echo ready; sleep 1000"), other = marked;
  marked.environment = {mark};
  Process found(marked), left(other);
  output_of(found, "ready");
  output_of(left, "ready");
  CHECK(kill_marked(mark) >= 1);
  CHECK(comes_true([&] { return found.has_ended(); }));
  CHECK(!left.has_ended());
}

TEST_CASE("a scratch directory is empty, its owner's alone, and gone with the owner") {
  std::string path;
  {
    const ScratchDirectory one, other;
    path = one.path();
    CHECK(path != other.path());
    CHECK(fs::is_empty(path));
    CHECK((fs::status(path).permissions() & (fs::perms::group_all | fs::perms::others_all)) ==
          fs::perms::none);
    write_file_atomic(path + "/file", "text");
    remove_stale_scratch_directories();  // this one has an owner
    CHECK(fs::exists(path + "/file"));
  }
  CHECK(!fs::exists(path));
}
