#include "temper/process/sandbox.h"

#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>

#include "temper/base/error.h"
#include "temper/base/plugin.h"
#include "temper/process/pipes.h"
#include "temper/process/process.h"

namespace temper {
namespace {

struct SandboxKeys {
  process::Sandbox& sandbox;
  void fields(Fields& f) {
    f.add("network", sandbox.network, "give the program this machine's network");
    f.add("write", sandbox.write, "directories that it may change", one_or_list());
  }
};

}  // namespace

void config_detail::Traits<process::Sandbox>::read(const YamlNode& node, const std::string& path,
                                                   const Rule& rule, process::Sandbox& value) {
  value = {};
  if (node.kind == YamlNode::Kind::kNull) return;
  if (node.kind != YamlNode::Kind::kMap) return read_value(node, path, rule, value.on);
  SandboxKeys keys{value};
  read_fields(node, path, Fields::of(keys));
  value.on = true;
}

YamlNode config_detail::Traits<process::Sandbox>::write(process::Sandbox& value) {
  if (value == process::Sandbox{.on = value.on}) return write_value(value.on);
  SandboxKeys keys{value};
  return write_fields(Fields::of(keys));
}

}  // namespace temper

namespace temper::process {
namespace {

using namespace std::chrono_literals;

constexpr const char* kProgram = "temper-sandbox";
constexpr auto kLongestTrial = 60s;
constexpr size_t kLongestMessage = 4096;  // bytes

struct Answer {
  std::string why;        // there is no sandbox; empty: there is one
  bool is_final = false;  // what would be found again: not what passes, as memory that is short
};

// The status with which temper-sandbox refuses (sandbox/steps.h).
constexpr const char* kRefused = "exited with status 125";

// Runs no program in the sandbox, and gives what temper-sandbox says against it.
Answer try_out(const Sandbox& sandbox) {
  try {
    Process process({.command = sandbox_command(sandbox, "", {}, "", {})});
    std::string said;
    const Clock::time_point until = Clock::now() + kLongestTrial;
    while (!process.has_ended() && Clock::now() < until) {
      std::vector<pollfd> ended{{process.exit(), POLLIN, 0}};
      wait_for(ended, std::min(until, Clock::now() + (process.exit() < 0 ? 1ms : 1000ms)));
    }
    const std::string how = process.ending();
    if (how == "exited with status 0") return {.is_final = true};
    read_some(process.errors(), said, kLongestMessage);
    const std::string_view name = "temper-sandbox: ";
    if (said.starts_with(name)) said.erase(0, name.size());
    said.erase(said.find_last_not_of('\n') + 1);
    return {said.empty() ? str(kProgram, " ", how) : said, how == kRefused};
  } catch (const RunError& e) {
    return {e.what()};
  }
}

// Why a program in a sandbox would not see the directory, which `name` gives; empty: it would.
std::string hidden_problem(const std::string& name, const std::filesystem::path& directory) {
  std::error_code ignored;
  const std::filesystem::path real = std::filesystem::canonical(directory, ignored);
  const std::string first = real.has_relative_path() ? real.relative_path().begin()->string() : "";
  if (first != "dev" && first != "proc") return {};
  return str(name, ": ", directory.string(), " lies below /", first,
             ", which a sandbox has of its own; expected another directory");
}

}  // namespace

std::string sandbox_problem(const Sandbox& sandbox) {
  if (!sandbox.on) return {};
  for (const std::string& directory : sandbox.write) {
    if (std::error_code ignored; !std::filesystem::is_directory(directory, ignored))
      return str("write: ", directory, " is no directory");
    if (std::string problem = hidden_problem("write", directory); !problem.empty()) return problem;
  }
  // Scratch directories lie there.
  std::error_code ignored;
  if (std::string problem = hidden_problem("TMPDIR", std::filesystem::temp_directory_path(ignored));
      !problem.empty())
    return problem;
  static std::mutex mutex;
  static std::map<std::vector<std::string>, std::string> known;
  std::vector<std::string> key = sandbox.write;
  key.emplace_back(sandbox.network ? "network" : "");
  {
    const std::scoped_lock lock(mutex);
    if (const auto entry = known.find(key); entry != known.end()) return entry->second;
  }
  const Answer answer = try_out(sandbox);
  const std::string problem = answer.why.empty() ? "" : "not possible here: " + answer.why;
  if (!answer.is_final) return problem;
  const std::scoped_lock lock(mutex);
  return known.try_emplace(key, problem).first->second;
}

std::vector<std::string> sandbox_command(const Sandbox& sandbox, const std::string& scratch,
                                         const std::vector<std::string>& limits,
                                         const std::string& file,
                                         const std::vector<std::string>& words) {
  std::vector<std::string> command{file_beside_library(kProgram)};
  check<RunError>(!command[0].empty(), kProgram,
                  " is not in the directory of libtemper_core.so: install it again, or build all "
                  "targets");
  if (sandbox.network) command.emplace_back("--network");
  const auto add = [&](const char* flag, const std::string& value) {
    command.emplace_back(flag);
    command.push_back(value);
  };
  for (const std::string& directory : sandbox.write)
    add("--write", std::filesystem::absolute(directory).string());
  if (!scratch.empty()) add("--write", std::filesystem::absolute(scratch).string());
  for (const std::string& limit : limits) add("--limit", limit);
  if (words.empty()) return command;
  add("--", file);
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

}  // namespace temper::process
