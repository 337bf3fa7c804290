#include "temper/rewards/command.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/process/pipes.h"

namespace temper::rewards {

using process::Clock;
using process::Worker;

namespace {

constexpr size_t kQuoted = 200;  // characters of an answer that a message quotes

// An id as text: 7 and "7" are the same.
std::string id_text(const Json& id) {
  return id.is_string() ? id.get<std::string>() : dump_json(id);
}

Json request(const Sample& sample, int64_t id) {
  Json line = *sample.row;
  if (sample.has_text)
    line["completion"] = sample.completion;
  else
    line.erase("completion");
  if (!line.contains("prompt") && !sample.prompt.empty()) line["prompt"] = sample.prompt;
  line["prompt_tokens"] = sample.prompt_tokens;
  line["completion_tokens"] = sample.completion_tokens;
  if (!line.contains("id")) line["id"] = id;  // the row's own field comes first
  return line;
}

// Whether this line may answer the request with that id: it has the same, or none.
bool may_answer(const std::string& line, const std::string& id) {
  if (line.find("\"id\"") == std::string::npos) return true;
  try {
    const Json answer = parse_json(line, "answer");
    const auto found = answer.is_object() ? answer.find("id") : answer.end();
    return found == answer.end() || id_text(*found) == id;
  } catch (const DataError&) {
    return true;
  }
}

}  // namespace

CommandReward::CommandReward(RewardSection section) : section_(std::move(section)) {
  const std::string problem = process::program_problem(section_.command);
  check<ConfigError>(problem.empty(), "rewards: ", problem);
  for (int64_t i = 0; i < section_.workers; ++i)
    workers_.push_back(std::make_unique<Worker>(
        process::WorkerOptions{.command = section_.command,
                               .timeout_seconds = section_.timeout_seconds,
                               .start_timeout_seconds = section_.start_timeout_seconds,
                               .limits = section_.limits}));
}

void CommandReward::ask(Worker& worker, const Sample& sample) {
  const Json line = request(sample, ++requests_);
  worker.ask(dump_json(line), [id = id_text(line["id"])](const std::string& answer) {
    return may_answer(answer, id);
  });
}

static Verdict verdict_of_line(const std::string& program, const std::string& line) {
  try {
    Json value = parse_json(line, "answer");
    if (value.is_object() && value.contains("reward")) value = Json(value["reward"]);
    if (value.is_number()) return valued(value.get<double>());
  } catch (const DataError&) {
  }
  return {Verdict::Kind::kMalformed, 0,
          program + " answered `" + line.substr(0, kQuoted) +
              "`, expected a number or {\"reward\": number}"};
}

Verdict CommandReward::verdict(const Worker::Answer& answer) const {
  using Kind = Worker::Answer::Kind;
  const std::string& program = section_.command[0];
  Verdict v;
  if (answer.kind == Kind::kLine) {
    v = verdict_of_line(program, answer.text);
  } else {
    v.kind = answer.kind == Kind::kEnded      ? Verdict::Kind::kCrashed
             : answer.kind == Kind::kTimedOut ? Verdict::Kind::kTimedOut
                                              : Verdict::Kind::kMalformed;
    v.detail = program + " " + answer.text;
  }
  v.unasked_lines = answer.unasked_lines;
  if (answer.unasked_lines > 0 && v.detail.empty())
    v.detail = program + " wrote `" + answer.unasked.substr(0, kQuoted) +
               "`, which answers nothing; expected one line for each that it reads";
  return v;
}

// A program that dies whatever it is asked would be started for every completion of every rollout.
// One that dies on some rows is a matter of on_failure.
void CommandReward::check_lives(const Worker::Answer& answer, const Sample& sample) {
  has_answered_ |= answer.kind == Worker::Answer::Kind::kLine;
  if (has_answered_ || !dead_.empty() || answer.kind != Worker::Answer::Kind::kEnded) return;
  if (section_.on_failure == RewardSection::OnFailure::kStop) return;  // the caller ends the run
  ++deaths_;
  starts_ += answer.between;
  if (!died_on_) died_on_ = sample.row;
  several_rows_ |= *sample.row != *died_on_;
  const bool starts = starts_ >= kMostStarts;
  if (!starts && !(several_rows_ && deaths_ >= kMostDeaths)) return;
  std::string command;
  for (const std::string& word : section_.command) command += (command.empty() ? "" : " ") + word;
  dead_ = str("the reward ", section_.label(), " (`", command, "`) was started ",
              starts ? starts_ : deaths_, " times and died each time",
              starts ? " before it read a request: it " : " without an answer: it ",
              one_line(answer.text));
  check(!section_.ends_where_dead, dead_, "; fix it; the same command resumes the run");
  dead_ += "; it is not started any more, and each further completion counts as a failure";
  heard_(dead_, true);
}

bool CommandReward::is_dead(std::span<Verdict> verdicts, size_t from) const {
  if (dead_.empty()) return false;
  for (Verdict& verdict : verdicts.subspan(from)) verdict = {Verdict::Kind::kCrashed, 0, dead_};
  return true;
}

// Until a worker can move bytes or has to be looked at.
void CommandReward::wait() const {
  std::vector<pollfd> fds;
  Clock::time_point until = Clock::now() + std::chrono::minutes(1);
  for (const auto& worker : workers_) {
    if (!worker->busy()) continue;
    worker->add_awaited(fds);
    until = std::min(until, worker->wake_time());
  }
  if (fds.empty()) return;
  process::wait_for(fds, until);
}

std::vector<Verdict> CommandReward::judge(std::span<const Sample> samples) {
  std::vector<Verdict> verdicts(samples.size());
  std::vector<size_t> asked(workers_.size());
  size_t next = 0, open = samples.size();
  if (is_dead(verdicts, 0)) return verdicts;
  for (const auto& worker : workers_)
    if (worker->busy()) worker->stop();  // an earlier call ended by an exception
  while (open > 0) {
    for (size_t w = 0; w < workers_.size() && next < samples.size(); ++w) {
      if (workers_[w]->busy()) continue;
      ask(*workers_[w], samples[next]);
      asked[w] = next++;
    }
    wait();
    for (size_t w = 0; w < workers_.size(); ++w) {
      const std::optional<Worker::Answer> answer = workers_[w]->advance();
      if (!answer) continue;
      verdicts[asked[w]] = verdict(*answer);
      --open;
      if (verdicts[asked[w]].kind != Verdict::Kind::kValue)
        heard_(verdicts[asked[w]].detail, false);
      check_lives(*answer, samples[asked[w]]);
      if (is_dead(verdicts, next)) open -= samples.size() - std::exchange(next, samples.size());
    }
  }
  return verdicts;
}

}  // namespace temper::rewards
