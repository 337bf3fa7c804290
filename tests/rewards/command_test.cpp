// Rewards that are programs, well behaved and not: sh is all that is needed.
#include "temper/rewards/command.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/json.h"
#include "temper/process/scratch.h"

using namespace temper;
using namespace temper::process;
using namespace temper::rewards;
using Kind = Verdict::Kind;

namespace {

// Seconds that no program of these tests needs, however busy the machine is.
constexpr double kAmple = 240;

RewardSection shell(const std::string& script, double timeout = kAmple, int64_t workers = 2) {
  RewardSection section;
  section.command = {"sh", "-c", script};
  section.timeout_seconds = timeout;
  section.start_timeout_seconds = timeout;
  section.workers = workers;
  return section;
}

std::vector<Sample> samples(int count) {
  std::vector<Sample> out;
  for (int i = 0; i < count; ++i) {
    Sample s;
    s.row = std::make_shared<const Json>(Json{{"prompt", "p"}, {"n", i}});
    s.completion = "text\nof two lines";
    s.completion_tokens = {i};
    out.push_back(std::move(s));
  }
  return out;
}

std::vector<Verdict> judge(const RewardSection& section, int count) {
  CommandReward reward(section);
  return reward.judge(samples(count));
}

size_t open_files() {
  size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    n += entry.is_symlink();
  return n;
}

size_t worker_directories() {
  size_t n = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::temp_directory_path()))
    n += entry.path().filename().string().starts_with("temper-worker-");
  return n;
}

constexpr const char* kEcho = "while read -r l; do n=${l#*\\\"n\\\":}; echo ${n%%,*}; done";

}  // namespace

TEST_CASE("answers belong to their samples, whatever worker gave them") {
  const std::vector<Verdict> verdicts = judge(shell(kEcho, 5, 3), 50);
  for (int i = 0; i < 50; ++i) {
    CHECK(verdicts[static_cast<size_t>(i)].kind == Kind::kValue);
    CHECK(verdicts[static_cast<size_t>(i)].value == i);
  }
  CHECK(judge(shell("while read -r l; do echo '{\"reward\": -2.5, \"why\": \"x\"}'; done"), 1)[0]
            .value == -2.5);
}

TEST_CASE(
    "what a worker reads is one JSON object a line with the row's fields and the completion") {
  const std::string check =
      R"(while read -r l; do case $l in *'"prompt":"p"'*'"n":0'*'"completion":"text\nof two lines"'*'"completion_tokens":[0]'*) echo 1;; *) echo 0;; esac; done)";
  CHECK(judge(shell(check), 1)[0].value == 1);
}

TEST_CASE("a worker that hangs costs its sample alone, and its answer never comes late") {
  // The second request is answered after its time; the third must not get that answer.
  const std::string slow =
      "while read -r l; do case $l in *'\"n\":1,'*) sleep 5; echo 99;; *) echo 5;; esac; done";
  RewardSection section = shell(slow, 0.25, 1);
  section.start_timeout_seconds = kAmple;
  const std::vector<Verdict> verdicts = judge(section, 3);
  CHECK(verdicts[0].value == 5);
  CHECK(verdicts[1].kind == Kind::kTimedOut);
  CHECK(verdicts[2].kind == Kind::kValue);
  CHECK(verdicts[2].value == 5);
}

TEST_CASE("children that hold the output open, garbage, ends and endless lines are verdicts") {
  CHECK(judge(shell("sleep 30 & sleep 30", 0.2), 1)[0].kind == Kind::kTimedOut);
  CHECK(judge(shell("exit 3"), 2)[1].kind == Kind::kCrashed);
  const Verdict crashed = judge(shell("echo the reason >&2; exit 3"), 1)[0];
  CHECK(crashed.detail.find("status 3") != std::string::npos);
  CHECK(crashed.detail.find("the reason") != std::string::npos);
  for (const char* garbage : {"hello", "", "nan", "inf", "1e999", "[1]", "{\"reward\": \"1\"}",
                              "{\"score\": 1}", "1 2"}) {
    CAPTURE(garbage);
    CHECK(
        judge(shell(std::string("while read -r l; do echo '") + garbage + "'; done"), 1)[0].kind ==
        Kind::kMalformed);
  }
  CHECK(judge(shell("read -r l; while :; do printf aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done"), 1)[0]
            .kind == Kind::kMalformed);
  CHECK(judge(shell("read -r l; printf 1; sleep 30", 0.2), 1)[0].kind ==
        Kind::kTimedOut);  // half a line
}

TEST_CASE("a program that always dies before its first answer ends the judging") {
  // Before it read a request: nothing depends on the rows.
  RewardSection broken = shell("echo Traceback >&2; echo 'no module foo' >&2; exit 1", kAmple, 2);
  broken.name = "mine";
  CommandReward dead(broken);
  int64_t heard = 0;
  std::string first;
  dead.tell_failures([&](const std::string& detail, bool) {
    if (heard++ == 0) first = detail;
  });
  const auto message = doctest::Contains(
      "the reward mine (`sh -c echo Traceback >&2; echo 'no module foo' >&2; exit 1`) was started "
      "5 times and died each time before it read a request: it exited with status 1: no "
      "module foo; its standard error before that: | Traceback");
  CHECK_THROWS_WITH_AS(dead.judge(samples(64)), message, RunError);
  CHECK(heard == CommandReward::kMostStarts);
  CHECK(first.find("exited with status 1: no module foo") != std::string::npos);
  // Over several calls as well.
  CommandReward rarely(broken);
  for (int64_t i = 1; i < CommandReward::kMostStarts; ++i)
    CHECK(rarely.judge(samples(1))[0].kind == Kind::kCrashed);
  CHECK_THROWS_AS(rarely.judge(samples(1)), RunError);
  // On every row that it reads.
  CommandReward reads(shell("read -r l; exit 3"));
  CHECK_THROWS_WITH_AS(reads.judge(samples(64)),
                       doctest::Contains("died each time without an answer"), RunError);
}

TEST_CASE("a program that always dies is not started any more where on_failure is written") {
  const std::string starts =
      (std::filesystem::temp_directory_path() / ("temper-starts-" + std::to_string(::getpid())))
          .string();
  RewardSection broken = shell("echo x >> " + starts + "; exit 1", kAmple, 2);
  broken.ends_where_dead = false;
  CommandReward dead(broken);
  std::vector<std::string> last;
  dead.tell_failures([&](const std::string& detail, bool is_last) {
    if (is_last) last.push_back(detail);
  });
  for (int call = 0; call < 2; ++call) {
    const std::vector<Verdict> verdicts = dead.judge(samples(64));
    CHECK(verdicts.size() == 64);
    for (const Verdict& verdict : verdicts) CHECK(verdict.kind == Kind::kCrashed);
    CHECK(verdicts.back().detail.find("is not started any more") != std::string::npos);
  }
  REQUIRE(last.size() == 1);
  CHECK(last[0].find("was started 5 times and died each time") != std::string::npos);
  // Two workers: another may have been started when the fifth died.
  CHECK(std::filesystem::file_size(starts) / 2 <= CommandReward::kMostStarts + 2);
  std::filesystem::remove(starts);
}

TEST_CASE("a program that dies on a row, or has answered before, is asked on") {
  // The first row alone kills it, as often as it is asked.
  CommandReward row(shell(
      "while read -r l; do case $l in *'\"n\":0,'*) exit 3;; *) echo 1;; esac; done", kAmple, 1));
  const std::vector<Sample> one = samples(1);
  for (int64_t i = 0; i < 2 * CommandReward::kMostDeaths; ++i)
    CHECK(row.judge(one)[0].kind == Kind::kCrashed);
  CHECK(row.judge(samples(2))[1].value == 1);
  // It answers once, and each process that is started later dies at once.
  const std::string mark =
      (std::filesystem::temp_directory_path() / ("temper-once-" + std::to_string(::getpid())))
          .string();
  CommandReward once(
      shell("[ -e " + mark + " ] && exit 1; touch " + mark + "; read -r l; echo 1", kAmple, 1));
  const std::vector<Verdict> verdicts = once.judge(samples(40));
  std::filesystem::remove(mark);
  CHECK(verdicts[0].value == 1);
  for (size_t i = 1; i < verdicts.size(); ++i) CHECK(verdicts[i].kind == Kind::kCrashed);
}

TEST_CASE("programs that misbehave are verdicts") {
  for (const char* garbage :
       {"true", "null", "NaN", "-Infinity", "{\"reward\": true}", "{\"reward\": null}", "1,5",
        "0x1", "\xff\xfe", "1\xc3", "{\"reward\": 1", "\"1\""}) {
    CAPTURE(garbage);
    const std::string script = std::string("while read -r l; do echo '") + garbage + "'; done";
    CHECK(judge(shell(script, kAmple, 1), 1)[0].kind == Kind::kMalformed);
  }
  const std::string deep = "while read -r l; do printf '[%.0s' $(seq 5000); echo; done";
  CHECK(judge(shell(deep, kAmple, 1), 1)[0].kind == Kind::kMalformed);
  // Half a line; a closed output; no end on SIGTERM; no reading; forks that go on.
  for (const char* script : {"read -r l; printf 1; sleep 1000", "read -r l; exec >&-; sleep 1000",
                             "trap '' TERM INT HUP; sleep 1000", "sleep 1000",
                             "(while :; do sleep 0.01; done) & sleep 1000"}) {
    CAPTURE(script);
    const Verdict verdict = judge(shell(script, 0.3, 1), 1)[0];
    CHECK((verdict.kind == Kind::kTimedOut || verdict.kind == Kind::kCrashed));
  }
}

TEST_CASE("lines that nobody asked for cost no sample and no time, and are counted") {
  const auto unasked = [](const std::vector<Verdict>& verdicts) {
    int64_t n = 0;
    for (const Verdict& v : verdicts) n += v.unasked_lines;
    return n;
  };
  const auto start = Clock::now();
  // A line too many for each sample; the second line may come while the next sample waits.
  for (const char* pause : {"", "sleep 0.02;"}) {
    CAPTURE(pause);
    const std::vector<Verdict> verdicts = judge(
        shell(std::string("while read -r l; do echo 1; ") + pause + " echo 2; done", kAmple, 1), 8);
    for (const Verdict& v : verdicts) {
      CHECK(v.kind == Kind::kValue);
      CHECK(v.value == 1);
    }
    CHECK(unasked(verdicts) == 7);
    CHECK(verdicts[3].detail.find("wrote `2`, which answers nothing") != std::string::npos);
  }
  // What a program says while it starts, with and without a line end.
  for (const char* greeting : {"echo loading; echo ...", "printf '> '"}) {
    const std::vector<Verdict> verdicts =
        judge(shell(std::string(greeting) + "; " + kEcho, kAmple, 1), 3);
    for (int i = 0; i < 3; ++i) CHECK(verdicts[static_cast<size_t>(i)].value == i);
    CHECK(unasked(verdicts) >= 1);
  }
  // Between two calls, and from a process that has ended since.
  for (const char* rest : {"read -r l; echo 3", ""}) {
    CommandReward twice(shell(std::string("read -r l; echo 1; echo 2;") + rest, kAmple, 1));
    CHECK(twice.judge(samples(1))[0].value == 1);
    const Verdict second = twice.judge(samples(1))[0];
    CHECK(second.value == (*rest ? 3 : 1));
    CHECK(second.unasked_lines == 1);
  }
  CHECK(judge(shell("while :; do echo 1; done", kAmple, 1), 1)[0].kind == Kind::kMalformed);
  CHECK(Clock::now() - start <
        std::chrono::duration<double>(kAmple));  // no answer was waited for in vain
}

TEST_CASE("a program may answer at the end of the JSON value, before the line's") {
  const std::vector<Verdict> verdicts =
      judge(shell("while :; do c=$(dd bs=1 count=1 2>/dev/null); [ \"$c\" = '}' ] && echo 1; done",
                  kAmple, 1),
            2);
  for (const Verdict& v : verdicts) {
    CHECK(v.value == 1);
    CHECK(v.unasked_lines == 0);
  }
}

TEST_CASE("an answer that repeats an id is that request's alone") {
  // From another process, before each answer: the answer to the request before, again.
  const std::string late = R"(while read -r l; do i=${l##*\"id\":}; i=${i%\}}
      if [ -n "$before" ]; then (echo "{\"id\": $before, \"reward\": 99}") & wait; fi
      before=$i; echo "{\"id\": \"$i\", \"reward\": 1}"; done)";
  const std::vector<Verdict> verdicts = judge(shell(late, kAmple, 1), 6);
  int64_t unasked = 0;
  for (const Verdict& v : verdicts) {
    CHECK(v.kind == Kind::kValue);
    CHECK(v.value == 1);
    unasked += v.unasked_lines;
  }
  CHECK(unasked == 5);
  // A row's own id reaches the program.
  CommandReward own(
      shell("while read -r l; do case $l in *'\"id\":\"mine\"'*) echo 1;; *) echo 0;; esac; done"));
  std::vector<Sample> sample = samples(1);
  sample[0].row = std::make_shared<const Json>(Json{{"prompt", "p"}, {"id", "mine"}});
  CHECK(own.judge(sample)[0].value == 1);
}

TEST_CASE("rows of ids reach the program with their prompt's text") {
  const std::string has_prompt =
      "while read -r l; do case $l in *'\"prompt\":\"2 + 2\"'*) echo 1;; *) echo 0;; esac; done";
  std::vector<Sample> sample = samples(1);
  sample[0].row = std::make_shared<const Json>(Json{{"prompt_ids", {1, 2}}});
  sample[0].prompt = "2 + 2";
  CommandReward reward(shell(has_prompt));
  CHECK(reward.judge(sample)[0].value == 1);
  sample[0].row = std::make_shared<const Json>(Json{{"prompt", "other"}});  // the row's own stays
  CHECK(reward.judge(sample)[0].value == 0);
}

TEST_CASE("a reward beyond 1e30 is malformed, with its value in the message") {
  for (const char* huge : {"1e31", "-1e308", "{\"reward\": 1e300}"}) {
    CAPTURE(huge);
    const Verdict v =
        judge(shell(std::string("while read -r l; do echo '") + huge + "'; done"), 1)[0];
    CHECK(v.kind == Kind::kMalformed);
    CHECK(v.detail.find("expected a finite number of at most 1e+30") != std::string::npos);
  }
  CHECK(judge(shell("read -r l; echo 1e30"), 1)[0].value == 1e30);
}

TEST_CASE("a program that never answers is given less and less time to start") {
  RewardSection hung = shell("sleep 30", 0.05, 1);
  hung.start_timeout_seconds = 0.4;
  const std::vector<Verdict> verdicts = judge(hung, 4);
  CHECK(verdicts[0].detail.find("within 0.45 s") != std::string::npos);
  CHECK(verdicts[1].detail.find("within 0.25 s") != std::string::npos);
  CHECK(verdicts[3].detail.find("within 0.1 s") != std::string::npos);
}

TEST_CASE("limits hold before the program's first instruction") {
  // What a limit is, as the program itself sees it, and what it inherits to its children.
  RewardSection limited = shell(
      "a=$(ulimit -v) b=$(ulimit -t) c=$(ulimit -n) d=$(ulimit -f); read -r l; "
      "[ \"$a $b $c $d\" = '200000 77 40 8' ] && echo 1 || echo 0",
      kAmple, 1);
  limited.limits.memory_bytes = 200'000 * 1024;
  limited.limits.cpu_seconds = 77;
  limited.limits.open_files = 40;
  limited.limits.file_bytes = 4096;
  CHECK(judge(limited, 1)[0].value == 1);
  RewardSection hungry = shell("x=a; while :; do x=$x$x; done; echo 1", kAmple, 1);
  hungry.limits.memory_bytes = 200'000'000;
  CHECK(judge(hungry, 1)[0].kind == Kind::kCrashed);
  // Too little memory for any program: it must not run even a moment without the limit.
  const std::string mark =
      (std::filesystem::temp_directory_path() / ("temper-test-mark-" + std::to_string(::getpid())))
          .string();
  RewardSection starved = shell("touch " + mark + "; read -r l; echo 1", kAmple, 1);
  starved.limits.memory_bytes = 4096;
  try {
    CHECK(judge(starved, 1)[0].kind == Kind::kCrashed);
  } catch (const RunError&) {  // the system says at once that it cannot be started
  }
  CHECK_FALSE(std::filesystem::exists(mark));
  RewardSection busy = shell("while :; do :; done", kAmple, 1);
  busy.limits.cpu_seconds = 1;
  CHECK(judge(busy, 1)[0].kind == Kind::kCrashed);
}

TEST_CASE("workers run in this program's directory, with a TMPDIR of their own") {
  const std::string here = std::filesystem::current_path().string();
  CHECK(judge(shell("read -r l; [ \"$(pwd)\" = '" + here + "' ] && echo 1 || echo 0", kAmple, 1),
              1)[0]
            .value == 1);
  CHECK(judge(shell("read -r l; cd \"$TMPDIR\" && [ -z \"$(ls)\" ] && touch file && echo 1", kAmple,
                    1),
              1)[0]
            .value == 1);
}

TEST_CASE("workers do not inherit this program's files") {
  const int leak = ::dup(2);  // without close-on-exec, as some library might have it
  CHECK(judge(shell("read -r l; [ -e /proc/self/fd/" + std::to_string(leak) +
                        " ] && echo 0 || echo 1",
                    kAmple, 1),
              1)[0]
            .value == 1);
  ::close(leak);
}

TEST_CASE("a program that is not there is refused by name") {
  RewardSection section;
  section.command = {"no-such-program-here"};
  CHECK_THROWS_WITH_AS(CommandReward{section}, doctest::Contains("no-such-program-here"),
                       ConfigError);
  for (const char* word : {"&&", "||", "2>&1"}) {
    section.command = {"sh", "reward.sh", word, "cat"};
    CHECK_THROWS_WITH_AS(CommandReward{section}, doctest::Contains("[bash, -c, "), ConfigError);
  }
  section.command = {"/etc/passwd"};
  CHECK_THROWS_AS(CommandReward{section}, ConfigError);
}

TEST_CASE("nothing is left behind: no descriptor, no process, no directory") {
  // Of this test alone: other programs keep theirs in the system's.
  std::string own = (std::filesystem::temp_directory_path() / "temper-left-XXXXXX").string();
  REQUIRE(::mkdtemp(own.data()) != nullptr);
  const char* const before = std::getenv("TMPDIR");
  const std::string restored = before ? before : "";
  ::setenv("TMPDIR", own.c_str(), 1);
  const size_t files = open_files();
  for (const char* script : {kEcho, "exit 1", "sleep 30 & sleep 30", "while :; do echo 1; done",
                             "exec timeout 30 sleep 30"})
    judge(shell(script, 0.2, 3), 4);
  CHECK(open_files() == files);
  CHECK(worker_directories() == 0);
  before ? ::setenv("TMPDIR", restored.c_str(), 1) : ::unsetenv("TMPDIR");
  CHECK(std::filesystem::remove_all(own) == 1);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

namespace {

// Runs `work` in a child of this process, which then hangs, and kills that with SIGKILL. What
// `work` returns comes back.
template <class Work>
std::string die_after(Work work) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string line = work() + "\n";
    write_all(ends[1], line.data(), line.size(), "pipe");
    ::pause();
  }
  ::close(ends[1]);
  // Its line may come in parts; a child that ends without one closes the pipe.
  std::string text;
  for (char c = 0; ::read(ends[0], &c, 1) == 1 && c != '\n';) text += c;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  return text;
}

bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 12000; ++i) {
    if (condition()) return true;
    ::usleep(10'000);
  }
  return false;
}

bool is_running(const std::string& pid) { return ::kill(std::stoi(pid), 0) == 0; }

}  // namespace

TEST_CASE("workers, what they started and their directories go when the program is killed") {
  // It hangs without reading, in a thread that has ended, with a child of its own.
  const std::string said = die_after([] {
    static CommandReward* reward = nullptr;
    std::vector<Verdict> verdicts;
    std::thread([&] {
      reward =
          new CommandReward(shell("read -r l; sleep 1000 & echo \"{\\\"reward\\\":1}\"; "
                                  "echo $$ $! $TMPDIR > /tmp/temper-test-$PPID; exec sleep 1000",
                                  kAmple, 1));
      verdicts = reward->judge(samples(1));
    }).join();
    return std::string(verdicts[0].kind == Kind::kValue ? std::to_string(::getpid()) : "failed");
  });
  REQUIRE(said != "failed");
  const std::string notes = "/tmp/temper-test-" + said;
  std::string worker, child, directory;
  CHECK(comes_true([&] {
    std::ifstream file(notes);
    return static_cast<bool>(file >> worker >> child >> directory);
  }));
  std::filesystem::remove(notes);
  CHECK(comes_true([&] { return !is_running(worker); }));
  CHECK(comes_true([&] { return !is_running(child); }));
  CHECK(comes_true([&] { return !std::filesystem::exists(directory); }));
}

namespace {

// A reward that leaves its session and its parents, as daemons do, and answers with the daemon's
// id.
constexpr const char* kDaemon =
    "( setsid sh -c 'echo $$ > $TMPDIR/id; exec sleep 1000' < /dev/null > /dev/null 2>&1 & ); "
    "while [ ! -s $TMPDIR/id ]; do sleep 0.01; done; "
    "while read -r l; do cat $TMPDIR/id; done";

}  // namespace

TEST_CASE("what daemonizes goes with its worker, whether the program ends or is killed") {
  std::string daemon;
  {
    CommandReward reward(shell(kDaemon, kAmple, 1));
    const std::vector<Verdict> verdicts = reward.judge(samples(1));
    REQUIRE(verdicts[0].kind == Kind::kValue);
    daemon = std::to_string(static_cast<int>(verdicts[0].value));
    CHECK(is_running(daemon));
  }
  CHECK(comes_true([&] { return !is_running(daemon); }));
  const std::string left = die_after([] {
    static CommandReward reward(shell(kDaemon, kAmple, 1));
    const std::vector<Verdict> verdicts = reward.judge(samples(1));
    return std::to_string(static_cast<int>(verdicts[0].value));
  });
  REQUIRE(std::stoi(left) > 1);
  CHECK(comes_true([&] { return !is_running(left); }));
}

TEST_CASE("directories of dead owners are removed, those of living ones stay") {
  const std::filesystem::path base = std::filesystem::temp_directory_path();
  const std::string dead = die_after([] { return (new ScratchDirectory)->path(); });
  const ScratchDirectory mine;
  const auto foreign = [&](const std::string& name) {
    std::filesystem::create_directory(base / name);
    return base / name;
  };
  const std::filesystem::path other = foreign("temper-worker-keep");
  REQUIRE(std::filesystem::exists(dead));
  std::ofstream(dead + "/left") << "behind";
  CHECK(dead.find("temper-worker-") != std::string::npos);
  CHECK(remove_stale_scratch_directories() >= 1);
  CHECK_FALSE(std::filesystem::exists(dead));
  CHECK(std::filesystem::exists(mine.path()));
  CHECK(std::filesystem::exists(other));
  std::filesystem::remove(other);
  // The process is gone, and yet somebody holds the lock: an owner whom this system's list of
  // processes does not show.
  const std::string held = die_after([] { return (new ScratchDirectory)->path(); });
  const int lock = ::open(held.c_str(), O_RDONLY | O_DIRECTORY);
  CHECK(::flock(lock, LOCK_EX | LOCK_NB) == 0);
  remove_stale_scratch_directories();
  CHECK(std::filesystem::exists(held));
  ::close(lock);
  remove_stale_scratch_directories();
  CHECK_FALSE(std::filesystem::exists(held));
}
