#include "temper/rewards/command.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "temper/base/error.h"

namespace temper::rewards {
namespace {
namespace fs = std::filesystem;

bool runnable(const std::string& path) {
  return ::access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path);
}

bool in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (runnable(folder + "/" + program)) return true;
  return false;
}

std::string request(const Sample& sample) {
  Json line = *sample.row;
  if (sample.has_text)
    line["completion"] = sample.completion;
  else
    line.erase("completion");
  line["prompt_tokens"] = sample.prompt_tokens;
  line["completion_tokens"] = sample.completion_tokens;
  return dump_json(line);
}

}  // namespace

CommandReward::CommandReward(RewardSection section) : section_(std::move(section)) {
  std::string& program = section_.command[0];
  const bool has_folder = program.find('/') != std::string::npos;
  check<ConfigError>(has_folder ? runnable(program) : in_path(program), "rewards: the command `",
                     program, "` is not ",
                     has_folder ? "a program that can be run" : "found in PATH");
  for (std::string& argument : section_.command) {
    const bool is_program = &argument == &program;
    if ((!is_program || has_folder) && !argument.starts_with('/') && fs::is_regular_file(argument))
      argument = fs::absolute(argument).string();
  }
  for (int64_t i = 0; i < section_.workers; ++i)
    workers_.push_back(std::make_unique<Worker>(section_));
}

Verdict CommandReward::verdict(const Worker::Answer& answer) const {
  using Kind = Worker::Answer::Kind;
  const std::string& program = section_.command[0];
  switch (answer.kind) {
    case Kind::kEnded:
      return {Verdict::Kind::kCrashed, 0, program + " " + answer.text};
    case Kind::kTimedOut:
      return {Verdict::Kind::kTimedOut, 0, program + " " + answer.text};
    case Kind::kGarbage:
      return {Verdict::Kind::kMalformed, 0, program + " " + answer.text};
    case Kind::kLine:
      break;
  }
  try {
    Json value = parse_json(answer.text, "answer");
    if (value.is_object() && value.contains("reward")) value = Json(value["reward"]);
    if (value.is_number() && std::isfinite(value.get<double>()))
      return {Verdict::Kind::kValue, value.get<double>(), {}};
  } catch (const DataError&) {
  }
  return {Verdict::Kind::kMalformed, 0,
          program + " answered `" + answer.text.substr(0, 200) +
              "`, expected a number or {\"reward\": number}"};
}

// Until a worker can move bytes or a deadline is over.
void CommandReward::wait() const {
  std::vector<pollfd> fds;
  Clock::time_point until = Clock::time_point::max();
  for (const auto& worker : workers_) {
    if (!worker->busy()) continue;
    fds.push_back({worker->input(), POLLOUT, 0});
    fds.push_back({worker->output(), POLLIN, 0});
    fds.push_back({worker->errors(), POLLIN, 0});
    until = std::min(until, worker->deadline());
  }
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count() + 1;
  ::poll(fds.data(), fds.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
}

std::vector<Verdict> CommandReward::judge(std::span<const Sample> samples) {
  std::vector<Verdict> verdicts(samples.size());
  std::vector<size_t> asked(workers_.size());
  size_t next = 0, open = samples.size();
  for (const auto& worker : workers_)
    if (worker->busy()) worker->stop();  // an earlier call ended by an exception
  while (open > 0) {
    for (size_t w = 0; w < workers_.size() && next < samples.size(); ++w) {
      if (workers_[w]->busy()) continue;
      if (workers_[w]->ask(request(samples[next]))) {
        asked[w] = next++;
      } else {
        verdicts[next++] = {Verdict::Kind::kMalformed, 0,
                            section_.command[0] + " wrote more than one line for a row"};
        --open;
      }
    }
    if (open > 0) wait();
    for (size_t w = 0; w < workers_.size(); ++w) {
      const std::optional<Worker::Answer> answer = workers_[w]->advance();
      if (!answer) continue;
      verdicts[asked[w]] = verdict(*answer);
      --open;
    }
  }
  return verdicts;
}

}  // namespace temper::rewards
