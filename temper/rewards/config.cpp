#include "temper/rewards/config.h"

#include <set>

#include "temper/base/error.h"

namespace temper {

template <>
inline constexpr std::array enum_names<rewards::RewardSection::OnFailure> = {"zero", "drop",
                                                                             "stop"};

}  // namespace temper

namespace temper::rewards {

namespace {

// The program's name; of an interpreter that runs a script or module, the script's without its
// ending: "reward" of [python3, rewards/reward.py].
std::string name_of_command(const std::vector<std::string>& command) {
  const auto last_part = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  const std::string program = last_part(command.front());
  bool interprets = program.starts_with("python");
  for (const char* known : {"sh", "bash", "dash", "zsh", "ksh", "node", "deno", "bun", "ruby",
                            "perl", "php", "Rscript", "julia", "lua"})
    interprets |= program == known;
  if (!interprets) return program;
  for (size_t i = 1; i < command.size(); ++i) {
    if (command[i] == "-m" && i + 1 < command.size())
      return command[i + 1].substr(command[i + 1].rfind('.') + 1);
    if (command[i].starts_with("-")) {
      if (command[i].starts_with("--") || command[i] == "-u") continue;
      return program;  // -c, or an option whose value might be taken for a script
    }
    const std::string script = last_part(command[i]);
    const std::string stem = script.substr(0, script.rfind('.'));
    return stem.empty() ? program : stem;
  }
  return program;
}

}  // namespace

std::string RewardSection::label() const {
  if (!name.empty()) return name;
  if (model) return "model";
  if (judge.any()) return "judge";
  return command.empty() ? reward : name_of_command(command);
}

void JudgeSection::fields(Fields& f) {
  f.add("url", url, "server with OpenAI's API, as in http://HOST:PORT: its first listed model");
  f.add("model", model, "model directory, or id in the local cache: answers in this process",
        reads(InputFiles::kModel));
  f.add("api_key_env", api_key_env, "environment variable with the server's API key");
  f.add("prompt", prompt,
        "the question, with {prompt}, {completion} and the row's fields by name, as in {answer}");
  f.add("pattern", pattern,
        "the last match of this regular expression in the answer, or of its first group, is the "
        "number");
  f.add("scale", scale, "the number is multiplied by it", between(-1e6, 1e6));
  f.add("max_new_tokens", max_new_tokens, "maximum number of tokens of an answer", at_least(1));
}

void RewardSection::fields(Fields& f) {
  f.add("name", name,
        "a built-in reward (temper list rewards), or the name that metrics give to the reward "
        "chosen by the keys below");
  f.add("reward", reward,
        "a built-in reward under another name, as in {name: steps, reward: regex, pattern: Step}");
  // 1e6 times the largest reward, 1e30, is a float32 still.
  f.add("weight", weight, "weight of this reward in the sum", between(-1e6, 1e6));
  f.add("field", field,
        "the row's field that gsm8k, math and exact compare with, or a path, as in "
        "reward_model.ground_truth");
  f.add("pattern", pattern, "the regular expression that regex searches for");
  f.add("command", command,
        "a program and its arguments: reads a row of JSON per line, answers each with a number",
        reads(InputFiles::kProgram));
  f.add("model", model,
        "directory of a reward model (temper reward): its score of prompt and completion",
        reads(InputFiles::kModel));
  f.add("judge", judge, "a language model that is asked about the completion");
  f.add("timeout_seconds", timeout_seconds,
        "timeout of one answer of the command or of a judge's server", above(0));
  f.add("start_timeout_seconds", start_timeout_seconds,
        "additional time for the first answer of each worker of the command", above(0));
  f.add("workers", workers,
        "number of processes of the command; number of requests to a judge's server at once",
        at_least(1));
  limits.fields(f);
  f.add(
      "on_failure", on_failure,
      "on a timeout, crash or malformed answer: reward 0 (zero), leave the completion out (drop), "
      "or stop the run");
}

namespace {

std::string find_judge_problem(const RewardSection& reward) {
  const JudgeSection& judge = reward.judge;
  const std::string key = "`" + reward.label() + "`: judge";
  if (reward.model || !reward.command.empty() || !reward.reward.empty())
    return key + ": found beside model, command or reward; give one of them";
  if (judge.url.has_value() == judge.model.has_value())
    return str(key, ": found ", judge.url ? "both url and model" : "neither url nor model",
               ", expected one of them");
  if (judge.model && judge.model->find("://") != std::string::npos)
    return str(key, ".model: found ", *judge.model,
               ", expected a directory or id; the address of a server is judge.url");
  if (judge.prompt.find("{completion}") == std::string::npos)
    return key + (judge.prompt.empty() ? ".prompt: missing" : ".prompt: found no {completion}") +
           ", expected a text with it, as in 'Rate the answer from 0 to 10: {completion}'";
  if (judge.pattern.empty()) return key + ".pattern: found an empty text";
  return {};
}

}  // namespace

std::string find_problem(std::span<const RewardSection> rewards) {
  std::set<std::string> names;
  for (size_t i = 0; i < rewards.size(); ++i) {
    const RewardSection& reward = rewards[i];
    const std::string name = reward.label();
    if (name.empty())
      return str("reward ", i + 1, " has neither a name, a command, a model nor a judge");
    if (reward.judge.any())
      if (std::string problem = find_judge_problem(reward); !problem.empty()) return problem;
    if (reward.model && (!reward.command.empty() || !reward.reward.empty()))
      return str(
          "`", name, "` has a model and ",
          reward.command.empty() ? "names the built-in reward " + reward.reward : "a command",
          "; give one of them");
    if (!reward.command.empty() && !reward.reward.empty())
      return str("`", name, "` has a command and names the built-in reward ", reward.reward,
                 "; give one of them");
    if (reward.limits.sandbox.on && reward.command.empty())
      return str("`", name, "`: sandbox: found without a command, expected it beside a program");
    if (const std::string problem = process::sandbox_problem(reward.limits.sandbox);
        !problem.empty())
      return str("`", name, "`: sandbox: ", problem);
    if (!names.insert(name).second)
      return str(
          "two rewards are called `", name, "`; give one another name, as in {name: another, ",
          reward.judge.any()       ? "judge: {...}"
          : reward.model           ? "model: " + *reward.model
          : reward.command.empty() ? "reward: " + (reward.reward.empty() ? name : reward.reward)
                                   : "command: [...]",
          "}");
  }
  return {};
}

void note_written(const YamlNode* written, std::span<RewardSection> rewards) {
  for (size_t i = 0; written && i < rewards.size(); ++i) {
    const bool alone = written->kind == YamlNode::Kind::kMap;  // one, without a list
    if (!alone && i >= written->items.size()) break;
    const YamlNode& reward = alone ? *written : written->items[i];
    rewards[i].ends_where_dead = !reward.find("on_failure");
  }
}

}  // namespace temper::rewards
