// A process that answers lines: which line is whose answer, and what becomes of failures.
#include "temper/process/worker.h"

#include <doctest/doctest.h>

#include "temper/process/pipes.h"

using namespace temper::process;
using Kind = Worker::Answer::Kind;

namespace {

WorkerOptions program(const std::string& script) {
  WorkerOptions options;
  options.command = {"sh", "-c", script};
  options.timeout_seconds = options.start_timeout_seconds = 120;  // for slow machines
  return options;
}

Worker::Answer ask(
    Worker& worker, const std::string& line,
    std::function<bool(const std::string&)> answers = [](const std::string&) { return true; }) {
  worker.ask(line, std::move(answers));
  CHECK(worker.busy());
  for (;;) {
    if (auto answer = worker.advance()) {
      CHECK(!worker.busy());
      return *answer;
    }
    std::vector<pollfd> fds;
    worker.add_awaited(fds);
    wait_for(fds, worker.wake_time());
  }
}

}  // namespace

TEST_CASE("a worker answers one line after the other in one process") {
  Worker worker(program("while read -r l; do echo \"$$ $l\"; done"));
  const auto first = ask(worker, "one"), second = ask(worker, "two");
  CHECK((first.kind == Kind::kLine));
  CHECK(first.text.ends_with(" one"));
  CHECK(second.text == first.text.substr(0, first.text.find(' ')) + " two");
}

TEST_CASE("lines that nobody asked for are discarded and counted, before and behind an answer") {
  Worker worker(
      program("echo hello; read -r a; echo \"to $a\"; echo more; read -r b; echo \"to $b\""));
  const auto first = ask(worker, "one");
  CHECK(first.text == "to one");
  CHECK(first.unasked_lines == 1);
  CHECK(first.unasked == "hello");
  const auto second = ask(worker, "two");
  CHECK(second.text == "to two");
  CHECK(second.unasked_lines == 1);
  CHECK(second.unasked == "more");
}

TEST_CASE("a line that is another request's is passed over") {
  Worker worker(program("while read -r l; do echo \"old\"; echo \"new $l\"; done"));
  const auto answer =
      ask(worker, "one", [](const std::string& line) { return line.starts_with("new"); });
  CHECK(answer.text == "new one");
}

TEST_CASE("a process that ends is told with its status and its last words, and replaced") {
  Worker worker(
      program("read -r l; test \"$l\" = fail || { echo \"$l\"; read -r l; }; "
              "echo reason >&2; exit 3"));
  const auto failed = ask(worker, "fail");
  CHECK((failed.kind == Kind::kEnded));
  CHECK(failed.text.find("exited with status 3") != std::string::npos);
  CHECK(failed.text.find("reason") != std::string::npos);
  CHECK(ask(worker, "again").text == "again");
}

TEST_CASE("a line beyond the limit is garbage, and costs no memory") {
  WorkerOptions options = program("read -r l; yes x | tr -d '\\n'");
  options.longest_line = 1000;
  Worker worker(options);
  const auto answer = ask(worker, "one");
  CHECK((answer.kind == Kind::kGarbage));
  CHECK(answer.text.size() < 5000);
}

TEST_CASE("a process that does not answer in its time is ended") {
  WorkerOptions options = program("read -r l; sleep 1000");
  options.timeout_seconds = options.start_timeout_seconds = 0.05;
  Worker worker(options);
  CHECK((ask(worker, "one").kind == Kind::kTimedOut));
}

TEST_CASE("what a worker is told reaches it in order, without an answer") {
  Worker worker(
      program("while read -r l; do case $l in ask*) echo \"$n $l\";; *) n=\"$n$l\";; esac; "
              "done"));
  CHECK(ask(worker, "ask 1").text == " ask 1");
  worker.tell("a");
  worker.tell("b");
  CHECK(ask(worker, "ask 2").text == "ab ask 2");
}
