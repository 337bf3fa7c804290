#include "temper/rl/rollout/replay_source.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "temper/base/error.h"
#include "temper/image/decoded.h"
#include "temper/rl/rollout/prompts.h"
#include "temper/train/roles/blind_models.h"

namespace temper::rl {
namespace {

// Whether the sampler's log-probabilities of the group's last episode were recorded.
bool has_logprobs(const EpisodeGroup& group) {
  const std::vector<int32_t>& path = group.episodes.back().path;
  return std::all_of(path.begin(), path.end(), [&](int32_t s) {
    const Segment& segment = group.segments[static_cast<size_t>(s)];
    return !segment.sampled || !segment.logprobs.empty();
  });
}

// A group's rewards are compared as those of completions of one prompt. Only in an environment,
// which rows with these fields come from, may the prompts differ: it may add other words to each.
void check_prompt(const EpisodeGroup& group, const Json& row, const std::string& where) {
  const auto has = [&](const char* field) { return row.contains(field) && !row[field].is_null(); };
  const Episode &first = group.episodes.front(), &last = group.episodes.back();
  if (has("completion_mask") || has("turns") || group.prompt(first) == group.prompt(last)) return;
  throw DataError(str(where, ": group ", group.id, " has other `prompt_tokens` here (",
                      group.prompt(last).size(), ") than in its first row (",
                      group.prompt(first).size(),
                      "); expected completions of one prompt, or rows of an environment's episodes "
                      "(`completion_mask`)"));
}

// The sample number of a row of an environment's episode; -1: it is none.
int64_t episode_of(const Json& row) {
  if (!row.is_object() || !row.contains("turns") || !row.contains("sample")) return -1;
  const Json &turns = row["turns"], &sample = row["sample"];
  const bool named = turns.is_number_integer() && turns > 0 && sample.is_number_integer();
  return named ? sample.get<int64_t>() : -1;
}

// Whether the row is a further branch of the group's last episode.
bool is_branch(const EpisodeGroup& group, const Json& row) {
  const Episode& last = group.episodes.back();
  const int64_t sample = episode_of(row);
  return last.turns > 0 && sample >= 0 && sample == last.sample && row.contains("group") &&
         row["group"] == group.id;
}

// Of the group's episodes, without further branches of them.
int64_t num_completions(const EpisodeGroup& group) {
  int64_t count = 0;
  for (size_t i = 0; i < group.episodes.size(); ++i) {
    const Episode& e = group.episodes[i];
    count += i == 0 || e.turns == 0 || e.sample != group.episodes[i - 1].sample;
  }
  return count;
}

}  // namespace

ReplaySource::ReplaySource(const RlConfig& config, LineFormat format, train::Messages& messages)
    : config_(config),
      messages_(messages),
      file_(*config.rl.replay),
      format_(std::move(format)),
      completions_(config.rl.prompts_per_rollout * config.rl.group_size) {
  format_.directory = std::filesystem::path(*config.rl.replay).parent_path().string();
  check<DataError>(file_.size() > 0, *config.rl.replay, ": no rollouts");
  const int64_t all = config.train.max_steps ? file_.size() : count_completions();
  planned_ = (all + completions_ - 1) / completions_;
  if (format_.images) check_images();
}

void ReplaySource::check_images() const {
  const std::string blind = blind_beside(config_);
  DecodedImages decoded;
  std::vector<EpisodeGroup> groups;  // the last one: a row may have the images of the one before
  for (int64_t i = 0; i < file_.size(); ++i) {
    add_line(groups, file_.row(i), format_, file_.where(i));
    if (groups.size() > 1) groups.erase(groups.begin());
    const auto images = groups.back().images(groups.back().episodes.back());
    train::check_seen(blind, !images.empty(), file_.where(i));
    decoded.check(images, file_.where(i));
  }
}

// Without branches these are the rows, and only a file of episodes has any.
int64_t ReplaySource::count_completions() const {
  Json before = file_.row(0);
  if (episode_of(before) < 0) return file_.size();
  int64_t count = 1;
  for (int64_t i = 1; i < file_.size(); ++i) {
    Json row = file_.row(i);
    count += episode_of(row) < 0 || episode_of(row) != episode_of(before) ||
             row.value("group", Json()) != before.value("group", Json());
    before = std::move(row);
  }
  return count;
}

// A last group that is short because the batch or the file ends within it is compared with a part
// of itself. One that lost rows in between, or is as short as the others, is a whole one.
void ReplaySource::warn_of_short_group(const std::vector<EpisodeGroup>& groups) const {
  const std::vector<Episode>& episodes = groups.back().episodes;
  const int64_t rows = num_completions(groups.back()), expected = config_.rl.group_size;
  if (rows >= expected) return;
  bool divided = false, cut = false;
  if (position_ < file_.size()) {
    const Json next = file_.row(position_);
    divided = next.is_object() && next.contains("group") && next["group"] == groups.back().id;
  } else {
    const bool lost = std::any_of(episodes.begin(), episodes.end(),
                                  [rows](const Episode& e) { return e.sample >= rows; });
    cut = !lost && std::any_of(groups.begin(), groups.end(), [rows](const EpisodeGroup& group) {
      return num_completions(group) > rows;
    });
  }
  if (!divided && !cut) return;
  messages_.warn_once(
      "replay",
      str(file_.where(position_ - std::ssize(episodes)), ": group ", groups.back().id,
          divided ? " goes on behind the rollout batch's last row, with " : " ends with ", rows,
          rows == 1 ? " row" : " rows", divided ? " in it" : "", ", expected rl.group_size, ",
          expected, ": these are compared among themselves; a rollout batch is the next ",
          completions_, " rows (rl.prompts_per_rollout times rl.group_size)"));
}

RolloutBatch ReplaySource::next(int64_t) {
  RolloutBatch batch;
  if (position_ >= file_.size()) {
    if (!config_.train.max_steps) return batch;
    position_ = 0;
  }
  const int64_t first = position_;
  for (int64_t count = 0; position_ < file_.size(); ++position_) {
    const bool full = count == completions_;
    if (full && batch.groups.back().episodes.back().turns == 0) break;
    const Json row = file_.row(position_);
    const bool branch = !batch.groups.empty() && is_branch(batch.groups.back(), row);
    if (full && !branch) break;
    count += !branch;
    add_line(batch.groups, row, format_, file_.where(position_));
    check_prompt(batch.groups.back(), row, file_.where(position_));
    check<DataError>(config_.rl.on_mismatch != RlSection::OnMismatch::kCorrect ||
                         has_logprobs(batch.groups.back()),
                     file_.where(position_),
                     ": no `logprobs`, which rl.on_mismatch: correct compares with");
  }
  warn_of_short_group(batch.groups);
  std::set<int64_t> ids;
  for (const EpisodeGroup& group : batch.groups)
    check<DataError>(ids.insert(group.id).second, file_.where(first), " and after: group ",
                     group.id, "'s rows are not consecutive");
  return batch;
}

Json ReplaySource::state() const { return {{"replay_position", position_}}; }

void ReplaySource::restore(const Json& state, const std::string& where) {
  check<DataError>(
      state.contains("replay_position") && state["replay_position"].is_number_integer(), where,
      ": no `replay_position`");
  position_ = state["replay_position"].get<int64_t>();
  check<DataError>(position_ >= 0, where, ": `replay_position` is below 0");
  // The checkpoint is sound: an older one would train on other rows than the run did.
  check<ConfigError>(position_ <= file_.size(), *config_.rl.replay,
                     ": the checkpoint continues at row ", position_, ", and the file has ",
                     file_.size(), "; put its rows back, or start over with resume=never");
}

}  // namespace temper::rl
