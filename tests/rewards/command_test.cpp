// Rewards that are programs, well behaved and not: sh is all that is needed.
#include "temper/rewards/command.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/json.h"

using namespace temper;
using namespace temper::rewards;
using Kind = Verdict::Kind;

namespace {

RewardSection shell(const std::string& script, double timeout = 5, int64_t workers = 2) {
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
    n += entry.path().filename().string().starts_with("temper-reward-");
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
      "while read -r l; do case $l in *'\"n\":1,'*) sleep 0.6; echo 99;; *) echo 5;; esac; done";
  const std::vector<Verdict> verdicts = judge(shell(slow, 0.25, 1), 3);
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
  // Two answers to one question: the second is not taken for the next one's.
  CommandReward twice(shell("read -r l; echo 1; echo 2; read -r l; echo 3", 2, 1));
  CHECK(twice.judge(samples(1))[0].value == 1);
  ::usleep(100'000);
  CHECK(twice.judge(samples(1))[0].kind == Kind::kMalformed);
  CHECK(twice.judge(samples(1))[0].value == 1);
}

TEST_CASE("a program that never answers is given less and less time to start") {
  RewardSection hung = shell("sleep 30", 0.05, 1);
  hung.start_timeout_seconds = 0.4;
  const std::vector<Verdict> verdicts = judge(hung, 4);
  CHECK(verdicts[0].detail.find("within 0.45 s") != std::string::npos);
  CHECK(verdicts[1].detail.find("within 0.25 s") != std::string::npos);
  CHECK(verdicts[3].detail.find("within 0.1 s") != std::string::npos);
}

TEST_CASE("memory is limited, directories are private") {
  RewardSection hungry = shell("x=a; while :; do x=$x$x; done; echo 1", 20, 1);
  hungry.memory_bytes = 200'000'000;
  CHECK(judge(hungry, 1)[0].kind == Kind::kCrashed);
  CHECK(judge(shell("read -r l; [ -z \"$(ls)\" ] && touch file && echo 1", 5, 1), 1)[0].value == 1);
}

TEST_CASE("a program that is not there is refused by name") {
  RewardSection section;
  section.command = {"no-such-program-here"};
  CHECK_THROWS_WITH_AS(CommandReward{section}, doctest::Contains("no-such-program-here"),
                       ConfigError);
  section.command = {"/etc/passwd"};
  CHECK_THROWS_AS(CommandReward{section}, ConfigError);
}

TEST_CASE("nothing is left behind: no descriptor, no process, no directory") {
  const size_t files = open_files(), directories = worker_directories();
  for (const char* script : {kEcho, "exit 1", "sleep 30 & sleep 30", "while :; do echo 1; done"})
    judge(shell(script, 0.2, 3), 4);
  CHECK(open_files() == files);
  CHECK(worker_directories() == directories);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}
