// Programs in sandboxes: what they cannot change, reach, see and outlive. Where the system has no
// sandboxes: that nothing runs without one.
#include "temper/process/sandbox.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/process/limits.h"
#include "temper/process/pipes.h"
#include "temper/process/scratch.h"

using namespace temper;
using namespace temper::process;
using namespace std::chrono_literals;

namespace {

constexpr auto kLongestRun = 120s;  // on any machine

struct Ran {
  std::string output, errors, ending;
};

// A script of bash that writes to its scratch directory at most.
Ran run_in(const Sandbox& sandbox, const std::string& script,
           std::vector<ProcessOptions::Limit> limits = {}) {
  const ScratchDirectory scratch;
  Process process({.command = {"bash", "-c", script},
                   .environment = {"TMPDIR=" + scratch.path()},
                   .limits = std::move(limits),
                   .scratch = scratch.path(),
                   .sandbox = sandbox});
  Ran ran;
  const auto until = Clock::now() + kLongestRun;
  for (bool open = true; open && Clock::now() < until;) {
    std::vector<pollfd> fds{{process.output(), POLLIN, 0}};
    wait_for(fds, until);
    open = read_some(process.output(), ran.output, 1 << 16);
  }
  while (!process.has_ended() && Clock::now() < until) std::this_thread::sleep_for(1ms);
  read_some(process.errors(), ran.errors, 1 << 16);
  ran.ending = process.ending();
  return ran;
}

const Sandbox kSandbox{.on = true};

// Whether this system has none, and refuses what asks for one.
bool has_none() {
  const std::string problem = sandbox_problem(kSandbox);
  if (problem.empty()) return false;
  MESSAGE("no sandboxes here: ", problem);
  CHECK(problem.starts_with("not possible here: "));
  const Ran ran = run_in(kSandbox, "echo it ran");
  CHECK(ran.output == "");
  CHECK(ran.ending == "exited with status 125");
  CHECK(ran.errors.starts_with("temper-sandbox: "));
  return true;
}

// A server on a port of the loopback device that the system chooses.
struct LoopbackServer {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  LoopbackServer() {
    socklen_t size = sizeof address;
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(fd, 8) == 0);
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  }
  ~LoopbackServer() { ::close(fd); }
  std::string port() const { return std::to_string(ntohs(address.sin_port)); }
};

// Processes of this machine with that argument.
int64_t count_with(const std::string& argument) {
  int64_t count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    count += text.str().find(std::string(1, '\0') + argument) != std::string::npos;
  }
  return count;
}

}  // namespace

TEST_CASE("a program that ends as a sandbox does that cannot be is no such sandbox") {
  if (has_none()) return;
  const Ran ran = run_in(kSandbox, "echo 'temper-sandbox: no' >&2; echo it ran; exit 125");
  CHECK(ran.output == "it ran\n");
  CHECK(ran.errors == "temper-sandbox: no\n");
  CHECK(ran.ending == "exited with status 125");
  CHECK(sandbox_problem(kSandbox) == "");
  // One that is killed ends so as well, and not with a status.
  CHECK(run_in(kSandbox, "kill -9 $$").ending != "exited with status 125");
}

TEST_CASE("a program in a sandbox changes nothing but its scratch directory") {
  if (has_none()) return;
  const ScratchDirectory outside;
  write_file_atomic(outside.path() + "/kept", "text");
  const std::string script = "echo 1 > " + outside.path() + "/new || echo refused; rm " +
                             outside.path() +
                             "/kept || echo refused; echo 1 > new-file-here || echo refused; "
                             "echo name > /proc/self/comm || echo refused; "
                             "echo 1 > $TMPDIR/a && cat $TMPDIR/a " +
                             outside.path() + "/kept; echo 1 > /dev/shm/a && echo 1 > /dev/null";
  CHECK(run_in(kSandbox, script).output == "refused\nrefused\nrefused\nrefused\n1\ntext");
  CHECK(std::filesystem::exists(outside.path() + "/kept"));
  CHECK(!std::filesystem::exists(outside.path() + "/new"));
  CHECK(!std::filesystem::exists("new-file-here"));
  CHECK(!std::filesystem::exists("/dev/shm/a"));

  const Sandbox wider{.on = true, .write = {outside.path()}};
  CHECK(run_in(wider, "echo 1 > " + outside.path() + "/new").output == "");
  CHECK(read_file(outside.path() + "/new") == "1\n");
}

TEST_CASE("a program in a sandbox reaches no server outside, unless it has the network") {
  if (has_none()) return;
  const LoopbackServer server;
  const std::string script =
      "exec 3<>/dev/tcp/127.0.0.1/" + server.port() + " && echo connected || echo refused";
  CHECK(run_in(kSandbox, script).output == "refused\n");
  CHECK(run_in({.on = true, .network = true}, script).output == "connected\n");
}

TEST_CASE("a program in a sandbox sees no other process, no device of the machine, no rights") {
  if (has_none()) return;
  const std::string me = std::to_string(::getpid());
  const Ran ran =
      run_in(kSandbox,
             "echo $$ $PPID; ls -d /proc/[0-9]* | wc -l; ls /dev | tr '\\n' ' '; echo; "
             "grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status | tr -d '\\t\\n'; echo; "
             "unshare -U true 2> /dev/null || echo no namespaces");
  std::istringstream lines(ran.output);
  std::string line;
  std::getline(lines, line);
  CHECK(line == "2 1");
  int64_t processes = 0;
  lines >> processes;
  CHECK(processes <= 5);
  std::getline(lines, line);
  std::getline(lines, line);
  CHECK(line == "fd full null random shm stderr stdin stdout urandom zero ");
  std::getline(lines, line);
  CHECK(line == "CapEff:0000000000000000CapBnd:0000000000000000NoNewPrivs:1");
  std::getline(lines, line);
  CHECK(line == "no namespaces");
}

TEST_CASE("what a program in a sandbox starts ends with it, whatever it did to hide") {
  if (has_none()) return;
  const std::string name = "sleep-of-" + std::to_string(::getpid());
  const std::string hide = "(env -i setsid bash -c 'echo up; exec -a x sleep 1000' " + name +
                           " < /dev/null > $TMPDIR/up 2>&1 &) ; "
                           "(env -i setsid bash -c 'sleep 1000; true' " +
                           name +
                           " < /dev/null > /dev/null 2>&1 &) ; "
                           "until [ -s $TMPDIR/up ]; do sleep 0.01; done; ";
  CHECK(run_in(kSandbox, hide + "exit 3").ending == "exited with status 3");
  CHECK(count_with(name) == 0);
  {
    const ScratchDirectory scratch;
    Process process({.command = {"bash", "-c", hide + "echo up; sleep 1000"},
                     .environment = {"TMPDIR=" + scratch.path()},
                     .scratch = scratch.path(),
                     .sandbox = kSandbox});
    std::string output;
    const auto until = Clock::now() + kLongestRun;
    while (output.empty() && Clock::now() < until) {
      std::vector<pollfd> fds{{process.output(), POLLIN, 0}};
      wait_for(fds, until);
      read_some(process.output(), output, 100);
    }
    CHECK(output == "up\n");
    CHECK(count_with(name) > 0);
  }
  CHECK(count_with(name) == 0);
}

TEST_CASE("a program in a sandbox ends as it ends, and within its limits") {
  if (has_none()) return;
  CHECK(run_in(kSandbox, "kill -SEGV $$").ending == "was ended by signal 11");
  Limits limits;
  limits.open_files = 37;
  CHECK(run_in(kSandbox, "ulimit -n", limits.list()).output == "37\n");
  // Its output ends when the program closes it, and not with the sandbox.
  Process closed(
      {.command = {"bash", "-c", "exec >&- 2>&-; read -r line; exit 4"}, .sandbox = kSandbox});
  std::string nothing;
  const auto until = Clock::now() + kLongestRun;
  while (read_some(closed.output(), nothing, 10) && Clock::now() < until)
    std::this_thread::sleep_for(1ms);
  CHECK(Clock::now() < until);
  CHECK(!closed.has_ended());
  closed.close_input();
  while (!closed.has_ended() && Clock::now() < until) std::this_thread::sleep_for(1ms);
  CHECK(closed.ending() == "exited with status 4");
  CHECK_THROWS_AS(Process({.command = {"no-such-program-here"}, .sandbox = kSandbox}), RunError);
}

TEST_CASE("the key `sandbox` is true, false or what a program may do beyond it") {
  const auto read = [](const std::string& text) {
    Limits limits;
    const std::vector<Field> fields = Fields::of(limits);
    read_fields(parse_yaml(text, "test"), "", fields);
    Limits again;
    const std::string written = dump_yaml(write_fields(fields));
    read_fields(parse_yaml(written, "test"), "", Fields::of(again));
    CHECK(again.sandbox == limits.sandbox);
    return limits.sandbox;
  };
  CHECK(read("") == Sandbox{});
  CHECK(read("sandbox: false") == Sandbox{});
  CHECK(read("sandbox: true") == kSandbox);
  CHECK(read("sandbox: {}") == kSandbox);
  CHECK(read("sandbox: {network: false}") == kSandbox);
  CHECK(read("sandbox: {network: true, write: a}") ==
        Sandbox{.on = true, .network = true, .write = {"a"}});
  CHECK_THROWS_AS(read("sandbox: {networks: true}"), ConfigError);
  CHECK_THROWS_AS(read("sandbox: yes please"), ConfigError);
  CHECK(sandbox_problem({.on = true, .write = {"/no-such-directory"}}) ==
        "write: /no-such-directory is no directory");
  CHECK(sandbox_problem({}) == "");
}

TEST_CASE("a sandbox refuses directories that its own /dev and /proc would hide, by name") {
  const auto problem = [](const std::string& directory) {
    return sandbox_problem({.on = true, .write = {directory}});
  };
  const std::string hidden =
      " lies below /dev, which a sandbox has of its own; expected another "
      "directory";
  CHECK(problem("/dev/shm") == "write: /dev/shm" + hidden);
  CHECK(problem("/tmp/../dev") == "write: /tmp/../dev" + hidden);
  CHECK(problem("/proc/self").starts_with("write: /proc/self lies below /proc, "));
  const ScratchDirectory scratch;
  const std::string link = scratch.path() + "/link";
  std::filesystem::create_directory_symlink("/dev/shm", link);
  CHECK(problem(link) == "write: " + link + hidden);
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", "/dev/shm", 1);
  CHECK(sandbox_problem(kSandbox) == "TMPDIR: /dev/shm" + hidden);
  CHECK(sandbox_problem({}) == "");
  before ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
}

TEST_CASE("what passes is not kept as the reason why there are no sandboxes") {
  const std::string really = sandbox_problem(kSandbox);
  const ScratchDirectory scratch;
  const Sandbox another{.on = true, .write = {scratch.path()}};
  rlimit files{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
  const rlimit none{0, files.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const std::string passing = sandbox_problem(another);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &files) == 0);
  CHECK(passing.starts_with("not possible here: "));
  CHECK(passing != really);
  CHECK(sandbox_problem(another) == really);
}
