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
  int64_t line = 0;    // its first one, from 1, without blank lines
  std::string tokens;  // digest of the prompt's
  std::string images;  // digest of how the line names them
  double rewards = 0, lengths = 0, completions = 0;
};
using SampledGroups = std::map<int64_t, SampledGroup>;  // by number

std::string digest_of(const std::vector<int32_t>& tokens) {
  return sha256_hex(std::string_view(reinterpret_cast<const char*>(tokens.data()),
                                     tokens.size() * sizeof(int32_t)));
}

SampledGroups read_groups(const std::string& path) {
  SampledGroups groups;
  data::RowReader rows(path);
  int64_t line = 0;
  for (Json row; rows.next(row);) {
    ++line;
    const LineHead head = read_head(row, kAnyId, rows.where());
    const auto [found, is_new] = groups.try_emplace(head.group);
    SampledGroup& group = found->second;
    if (is_new)
      group = {.line = line,
               .tokens = digest_of(head.prompt),
               .images = row.contains("images") ? sha256_hex(dump_json(row["images"])) : ""};
    group.rewards += head.reward;
    group.lengths +=
        static_cast<double>(std::count(head.sampled.begin(), head.sampled.end(), true));
    ++group.completions;
  }
  return groups;
}

// nullopt: the file was removed since it was listed, by a run that keeps its last ones alone.
std::optional<SampledGroups> groups_if_there(const std::string& path) {
  try {
    return read_groups(path);
  } catch (const DataError&) {
    if (std::filesystem::exists(path)) throw;
    return {};
  }
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
  to.groups_of_a += std::ssize(of_a) - paired;
  to.groups_of_b += std::ssize(of_b) - paired;
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
    const auto groups_a = groups_if_there(a->second), groups_b = groups_if_there(b->second);
    if (!groups_a || !groups_b) continue;
    ++out.steps;
    add_step(out, known, a->first, *groups_a, *groups_b);
  }
  out.steps_of_a = std::distance(of_a.upper_bound(after), of_a.end()) - out.steps;
  out.steps_of_b = std::distance(of_b.upper_bound(after), of_b.end()) - out.steps;
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

std::vector<int32_t> tokens_of(const PairedPrompt& prompt, const std::string& output_dir_a) {
  const std::map<int64_t, std::string> files = rollout_files(output_dir_a);
  const auto file = files.find(prompt.step);
  check<DataError>(file != files.end(), output_dir_a, "/rollouts: the file of step ", prompt.step,
                   " was removed while it was read");
  data::RowReader rows(file->second);
  Json row;
  for (int64_t line = 0; line < prompt.line; ++line)
    check<DataError>(rows.next(row), file->second, ": it was shortened while it was read");
  return read_head(row, kAnyId, rows.where()).prompt;
}

}  // namespace temper::rl
