#include "temper/cli/experiments/recorded_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/sha256.h"
#include "temper/cli/parts/run_files.h"
#include "temper/train/run/checkpoint/checkpoint.h"

namespace temper::cli {
namespace fs = std::filesystem;
using train::Checkpoints;
using train::ManifestLine;

RecordedRun::RecordedRun(const std::string& of) : directory(of) {
  check<ConfigError>(is_run(of), of, ": expected the directory of a run (config.yaml)");
  const RunFiles files(of);
  const YamlNode* const verb = find_key(files.config, "verb");
  verb_ = verb ? find_training_verb(verb->text) : nullptr;
  check<ConfigError>(verb_ != nullptr, of, "/config.yaml: names no training verb");
  if (const YamlNode* kept = find_key(files.config, "rl.save_rollouts"))
    keeps_rollouts_ = !kept->text.starts_with("last");
  lines_ = train::read_manifest(of + "/manifest.jsonl");
  check<ConfigError>(!lines_.empty(), of,
                     "/manifest.jsonl: there is none: the run has made no step, or an earlier "
                     "version of Temper made it");
  for (size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i].is_step())
      steps_.push_back(&lines_[i]);
    else
      inputs_ = i;
  }
  check<ConfigError>(!steps_.empty(), of, "/manifest.jsonl: it has no step");
}

const ManifestLine& RecordedRun::line_of(int64_t step) const {
  return *steps_.at(static_cast<size_t>(step - steps_.front()->step()));
}

std::string RecordedRun::where(const ManifestLine& line) const {
  return str(directory, "/manifest.jsonl:", line.number);
}

int64_t RecordedRun::ranks() const {
  const Json mesh = inputs().value.value("mesh", Json());
  const Json ranks = mesh.is_object() ? mesh.value("ranks", Json()) : Json();
  return ranks.is_number_integer() ? std::max<int64_t>(ranks.get<int64_t>(), 1) : 1;
}

std::map<int64_t, std::string> RecordedRun::starts() const {
  const int64_t first = inputs().after();
  std::map<int64_t, std::string> found;
  if (!inputs().value.contains("after")) found[0] = "";
  for (const std::string& checkpoint : Checkpoints(directory, 1).all()) {
    try {
      if (Checkpoints::is_record_alone(checkpoint)) continue;
      if (const int64_t step = Checkpoints::record(checkpoint).step; step >= first)
        found[step] = checkpoint;
    } catch (const DataError&) {  // changed_outputs() reports it
    }
  }
  return found;
}

RecordedRun::Changes RecordedRun::changed_outputs() const {
  Changes changes;
  compare_metrics(changes);
  compare_rollouts(changes);
  compare_checkpoints(changes);
  compare_final(changes);
  return changes;
}

void RecordedRun::compare_metrics(Changes& to) const {
  for (const MetricsRow& row : read_metrics_file(directory + "/metrics.jsonl")) {
    if (row.is_eval() || row.step() < steps_.front()->step() || row.step() > steps_.back()->step())
      continue;
    const ManifestLine& line = line_of(row.step());
    for (const char* name : {"loss", "grad_norm"}) {
      const std::optional<double> value = row.number(name);
      const Json recorded = line.value.value(name, Json());
      if (!value || (recorded.is_number() && recorded.get<double>() == *value)) continue;
      to.emplace_back(&line, str(name, ": found ", dump_json(Json(*value)),
                                 " in metrics.jsonl, expected ", dump_json(recorded)));
    }
  }
}

void RecordedRun::compare_rollouts(Changes& to) const {
  for (const ManifestLine* line : steps_) {
    if (!line->value.contains("rollout")) continue;
    bool found = false;
    for (const char* ending : {".jsonl", ".jsonl.zst"}) {
      const std::string name = str("rollouts/step-", line->step(), ending);
      if (!fs::exists(directory + "/" + name)) continue;
      found = true;
      if (sha256_of_file(directory + "/" + name) != line->value["rollout"])
        to.emplace_back(line, name + ": its SHA-256 is not that of the manifest");
    }
    if (!found && keeps_rollouts_) to.emplace_back(line, "its file in rollouts/ is gone");
  }
}

void RecordedRun::compare_checkpoints(Changes& to) const {
  for (const std::string& checkpoint : Checkpoints(directory, 1).all()) {
    const ManifestLine* line = &inputs();
    try {
      const Checkpoints& of = Checkpoints(directory, 1);
      const bool forked = checkpoint == of.fork_point();
      const train::Checkpoint record = Checkpoints::record(checkpoint);
      const int64_t step = record.step;
      if (forked) line = &lines_.front();
      // A run that was killed may have a checkpoint whose line was not written yet.
      if (!forked && record.complete && step > steps_.back()->step())
        to.emplace_back(steps_.back(), str("the run ended after step ", step,
                                           ", and the manifest has no line of it"));
      if (!forked && (step < steps_.front()->step() || step > steps_.back()->step())) continue;
      if (!forked) line = &line_of(step);
      if (Checkpoints::is_record_alone(checkpoint)) continue;
      Checkpoints::check_files(checkpoint);
      const Json weights = line->value.value("weights", Json());
      if (!weights.is_null() && train::weight_digests(checkpoint) != weights)
        to.emplace_back(line, checkpoint + ": its weights are not those of the manifest");
    } catch (const Error& e) {
      to.emplace_back(line, e.what());
    }
  }
}

void RecordedRun::compare_final(Changes& to) const {
  const ManifestLine* const last = steps_.back();
  if (!last->value.contains("final")) return;
  const Json& recorded = last->value["final"];
  Json present = Json::object();
  for (const auto& [name, digest] : recorded.items()) {
    const std::string part = name.substr(0, name.find('/'));
    if (present.empty() || !present.contains(name))
      if (fs::is_directory(directory + "/" + part))
        train::add_file_digests(directory + "/" + part, part, present);
    if (!present.contains(name))
      to.emplace_back(last, name + ": the file is gone");
    else if (present[name] != digest)
      to.emplace_back(last, name + ": its SHA-256 is not that of the manifest");
  }
  for (const auto& [name, digest] : present.items())
    if (!recorded.contains(name)) to.emplace_back(last, name + ": the run left no such file");
}

namespace {

bool is_near(const Json& a, const Json& b, double tolerance) {
  if (!a.is_number() || !b.is_number()) return a == b;
  const double x = a.get<double>(), y = b.get<double>();
  return std::abs(x - y) <= tolerance * std::max(1.0, std::abs(x));
}

// The digests of files, by their names.
void compare_digests(const std::string& key, const Json& recorded, const Json& again,
                     std::vector<std::string>& to) {
  if (recorded == again) return;
  if (!recorded.is_object() || !again.is_object()) {
    to.push_back(str(key, ": found ", dump_json(again), ", expected ", dump_json(recorded)));
    return;
  }
  for (const auto& [name, digest] : recorded.items())
    if (again.value(name, Json()) != digest)
      to.push_back(str(key == "weights" ? "weights of " : "", name, ": found SHA-256 ",
                       dump_json(again.value(name, Json())), ", expected ", dump_json(digest)));
  for (const auto& [name, digest] : again.items())
    if (!recorded.contains(name)) to.push_back(name + ": not in the manifest");
}

}  // namespace

std::vector<std::string> differences(const Json& recorded, const Json& again, bool exactly) {
  constexpr double kLoss = 1e-6, kNorm = 1e-4;
  std::vector<std::string> out;
  for (const auto& [name, tolerance] : {std::pair{"loss", kLoss}, {"grad_norm", kNorm}}) {
    const Json a = recorded.value(name, Json()), b = again.value(name, Json());
    if (exactly ? a != b : !is_near(a, b, tolerance))
      out.push_back(str(name, ": found ", dump_json(b), ", expected ", dump_json(a)));
  }
  if (!exactly) return out;
  for (const char* key : {"rollout", "weights", "final"}) {
    const Json a = recorded.value(key, Json()), b = again.value(key, Json());
    // The last step's line of a run that was extended has what its end had.
    if (key == std::string("final") && (a.is_null() || b.is_null())) continue;
    compare_digests(key, a, b, out);
  }
  return out;
}

Arguments repeated_arguments(const RecordedRun& run, const Arguments& settings,
                             const std::string& start, const std::string& output, int64_t ranks,
                             bool evaluates) {
  Arguments arguments{run.directory + "/config.yaml"};
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  arguments.insert(arguments.end(),
                   {"output_dir=" + output, "resume=" + (start.empty() ? "never" : start),
                    "metrics.sinks=[jsonl]", "train.save_every=0", "train.save_minutes=0",
                    "train.save_in_background=false", "train.keep_checkpoints=1",
                    "train.keep_final_checkpoint=true", "train.profile=0"});
  if (!evaluates)
    arguments.insert(arguments.end(), {"train.eval_every=0", "train.eval_at_start=false"});
  if (ranks != run.ranks()) {
    for (const dist::Axis& axis : dist::axes()) arguments.push_back(str("mesh.", axis.name, "=1"));
    arguments.insert(arguments.end(), {"mesh.data=-1", "roles={}"});
  }
  return arguments;
}

}  // namespace temper::cli
