#include "temper/rl/rollout/paired_prompts.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "temper/base/error.h"
#include "temper/base/sha256.h"
#include "temper/data/read/jsonl.h"
#include "temper/rl/rollout/rollout_files.h"
#include "temper/rl/rollout/rollout_lines.h"

namespace temper::rl {
namespace {

constexpr int64_t kAnyId = int64_t{INT32_MAX} + 1;  // a vocabulary's size: ids of any model

// A group of a step's file.
struct SampledGroup {
  int64_t line = 0;    // its first one, from 1
  std::string tokens;  // digest of the prompt's
  std::string images;  // digest of how the line names them
  double rewards = 0, lengths = 0, completions = 0;
};
using SampledGroups = std::map<int64_t, SampledGroup>;  // by number

std::string digest_of(const std::vector<int32_t>& tokens) {
  return sha256_hex(std::string_view(reinterpret_cast<const char*>(tokens.data()),
                                     tokens.size() * sizeof(int32_t)));
}

std::string place_of(const data::LineReader& lines) {
  return str(lines.path(), ":", lines.line_number());
}

// A step's file, as far as it can be read.
struct StepFile {
  SampledGroups groups;
  int64_t broken = 0;   // lines
  bool is_cut = false;  // what follows the lines that were read is lost
  std::string problem;  // the first one
};

void add_completion(SampledGroups& groups, std::string_view text, const data::LineReader& lines) {
  const std::string where = place_of(lines);
  const Json row = data::parse_row(text, where);
  const LineHead head = read_head(row, kAnyId, where);
  const auto [found, is_new] = groups.try_emplace(head.group);
  SampledGroup& group = found->second;
  if (is_new)
    group = {.line = lines.line_number(),
             .tokens = digest_of(head.prompt),
             .images = row.contains("images") ? sha256_hex(dump_json(row["images"])) : ""};
  group.rewards += head.reward;
  group.lengths += static_cast<double>(std::count(head.sampled.begin(), head.sampled.end(), true));
  ++group.completions;
}

// nullopt: the file was removed since it was listed, by a run that keeps its last ones alone.
std::optional<StepFile> read_step_file(const std::string& path) {
  StepFile file;
  const auto note = [&](const char* problem) {
    if (file.problem.empty()) file.problem = problem;
  };
  try {
    data::LineReader lines(path);
    for (std::string line; lines.next(line);) {
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      try {
        add_completion(file.groups, line, lines);
      } catch (const DataError& e) {
        note(e.what());
        ++file.broken;
      }
    }
  } catch (const DataError& e) {
    if (!std::filesystem::exists(path)) return {};
    note(e.what());
    file.is_cut = true;
  }
  return file;
}

void count_problems(const StepFile& file, LeftOut& left_out, std::vector<std::string>& problems) {
  left_out.lines += file.broken;
  left_out.ends += file.is_cut ? 1 : 0;
  if (file.problem.empty()) return;
  std::string what = file.broken == 0   ? ""
                     : file.broken == 1 ? "the line is left out"
                                        : str(file.broken, " such lines are left out");
  if (file.is_cut) what += str(what.empty() ? "" : ", and ", "the rest of the file is left out");
  problems.push_back(str(file.problem, "; ", what));
}

// Adds a step's pairs; `known`: places among the prompts, by what names a prompt.
void add_step(PairedPrompts& to, std::map<std::string, size_t>& known, int64_t step,
              const SampledGroups& of_a, const SampledGroups& of_b) {
  int64_t paired = 0;
  std::vector<std::pair<const SampledGroup*, const SampledGroup*>> pairs;
  for (const auto& [number, a] : of_a)
    if (const auto b = of_b.find(number); b != of_b.end() && b->second.tokens == a.tokens)
      pairs.emplace_back(&a, &b->second);
  std::sort(pairs.begin(), pairs.end(),
            [](const auto& x, const auto& y) { return x.first->line < y.first->line; });
  for (const auto& [a, b] : pairs) {
    const auto [place, is_new] = known.try_emplace(a->tokens + a->images, to.prompts.size());
    if (is_new) to.prompts.push_back({.step = step, .line = a->line});
    PairedPrompt& prompt = to.prompts[place->second];
    const double reward_a = a->rewards / a->completions, reward_b = b->rewards / b->completions;
    const double n = static_cast<double>(++prompt.times);
    prompt.reward_a += (reward_a - prompt.reward_a) / n;
    prompt.reward_b += (reward_b - prompt.reward_b) / n;
    prompt.length_a += (a->lengths / a->completions - prompt.length_a) / n;
    prompt.length_b += (b->lengths / b->completions - prompt.length_b) / n;
    prompt.change += reward_b - reward_a;
    ++paired;
  }
  to.of_a.groups += std::ssize(of_a) - paired;
  to.of_b.groups += std::ssize(of_b) - paired;
}

}  // namespace

PairedPrompts pair_prompts(const std::string& output_dir_a, const std::string& output_dir_b,
                           int64_t after) {
  const std::map<int64_t, std::string> of_a = rollout_files(output_dir_a),
                                       of_b = rollout_files(output_dir_b);
  PairedPrompts out;
  std::map<std::string, size_t> known;
  for (auto a = of_a.upper_bound(after); a != of_a.end(); ++a) {
    const auto b = of_b.find(a->first);
    if (b == of_b.end()) continue;
    const auto file_a = read_step_file(a->second), file_b = read_step_file(b->second);
    if (!file_a || !file_b) continue;
    ++out.steps;
    count_problems(*file_a, out.of_a, out.problems);
    count_problems(*file_b, out.of_b, out.problems);
    add_step(out, known, a->first, file_a->groups, file_b->groups);
  }
  out.of_a.steps = std::distance(of_a.upper_bound(after), of_a.end()) - out.steps;
  out.of_b.steps = std::distance(of_b.upper_bound(after), of_b.end()) - out.steps;
  return out;
}

std::vector<PairedPrompt> most_changed(const PairedPrompts& pairs, size_t most) {
  std::vector<PairedPrompt> changed;
  for (const PairedPrompt& prompt : pairs.prompts)
    if (prompt.change != 0) changed.push_back(prompt);
  std::stable_sort(changed.begin(), changed.end(),
                   [](const PairedPrompt& x, const PairedPrompt& y) {
                     return std::abs(x.change) > std::abs(y.change);
                   });
  changed.resize(std::min(changed.size(), most));
  return changed;
}

std::vector<std::vector<int32_t>> tokens_of(std::span<const PairedPrompt> prompts,
                                            const std::string& output_dir_a) {
  std::vector<std::vector<int32_t>> tokens(prompts.size());
  std::map<int64_t, std::map<int64_t, size_t>> places;  // of the prompts, by step and line
  for (size_t i = 0; i < prompts.size(); ++i) places[prompts[i].step][prompts[i].line] = i;
  const std::map<int64_t, std::string> files = rollout_files(output_dir_a);
  for (const auto& [step, by_line] : places) {
    const auto file = files.find(step);
    if (file == files.end()) continue;
    try {
      data::LineReader lines(file->second);
      std::string line;
      for (const auto& [number, place] : by_line) {
        while (lines.line_number() < number)
          check<DataError>(lines.next(line), file->second, ": it was shortened");
        const std::string where = place_of(lines);
        tokens[place] = read_head(data::parse_row(line, where), kAnyId, where).prompt;
      }
    } catch (const DataError&) {  // it has changed since it was paired
    }
  }
  return tokens;
}

}  // namespace temper::rl
