#include "temper/distill/sampled_rows.h"

#include <ATen/core/grad_mode.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "temper/base/clock.h"
#include "temper/base/error.h"
#include "temper/data/rows/prompt_row.h"
#include "temper/dist/peer_watch.h"
#include "temper/metrics/activity.h"
#include "temper/models/vision/image_rows.h"
#include "temper/nn/unit.h"
#include "temper/train/roles/blind_models.h"

namespace temper::distill {
namespace {

// Keys of evaluation prompts stand apart from those of training prompts, so that evaluating changes
// no sample.
constexpr int64_t kEvaluationKeys = int64_t{1} << 40;

// A row to complete: the prompt, none of which is supervised.
std::optional<data::SftRow> prompt_only(std::optional<data::PromptRow> prompt) {
  if (!prompt) return {};
  data::TokenPath path;
  path.labels.assign(prompt->tokens.size(), -100);
  path.tokens = std::move(prompt->tokens);
  path.images = std::move(prompt->images);
  data::SftRow row = data::row_of(std::move(path));
  row.group = std::move(prompt->group);
  return row;
}

void append(data::SftRow& row, const std::vector<int32_t>& completion) {
  data::Segment& segment = row.segments.at(0);
  segment.tokens.insert(segment.tokens.end(), completion.begin(), completion.end());
  segment.labels.insert(segment.labels.end(), completion.begin(), completion.end());
}

}  // namespace

bool is_off_policy(double fraction, int64_t number) {
  const double n = static_cast<double>(number);
  return std::floor((n + 1) * fraction) > std::floor(n * fraction);
}

Mixture::Mixture(const DistillConfig& config)
    : lambda_(config.distill.lambda),
      fraction_(config.distill.off_policy_fraction),
      other_(config.distill.seq_kd ? Completer::kTeacher : Completer::kFile),
      coins_(static_cast<uint64_t>(config.seed), RandomPurpose::kMixing) {}

// GKD, algorithm 1: a step is the student's where its u, uniform over [0, 1), is below λ.
Completer Mixture::of(int64_t number, int64_t step) const {
  const bool student = lambda_ ? coins_.uniform_double(static_cast<uint64_t>(step)) < *lambda_
                               : !is_off_policy(fraction_, number);
  return student ? Completer::kStudent : other_;
}

bool Mixture::uses(Completer completer) const {
  if (completer == Completer::kStudent) return lambda_ ? *lambda_ > 0 : fraction_ < 1;
  return completer == other_ && (lambda_ ? *lambda_ < 1 : fraction_ > 0);
}

namespace {

using Drawn = data::RowOrder::Drawn;

// Throws DataError for a row of a group that no teacher has, or with tokens that its file has not.
void check_taught(const data::SftRow& row, const DistillSection& section,
                  const RemoteTeacher* file) {
  if (!section.teacher_logprobs) section.shares(row.group);
  if (!file) return;
  train::ForwardPass pass;
  pass.add(train::unit_of(row), 0);
  file->check_has(pass);
}

// Refuses rows that are not taught as they are read, so that those of an evaluation do not end the
// run at its first one.
data::Loader<data::SftRow>::Read with_teacher(data::Loader<data::SftRow>::Read read,
                                              const DistillSection& section,
                                              const RemoteTeacher* file) {
  return [read = std::move(read), section, file](const Drawn& drawn, data::LoaderState& state) {
    std::optional<data::SftRow> row = read(drawn, state);
    if (!row) return row;
    try {
      check_taught(*row, section, file);
    } catch (const DataError& e) {
      throw DataError(str(drawn.file->where(drawn.row), ": ", e.what()));
    }
    return row;
  };
}

// Prompts, or, where the file completes them, whole rows.
void complete_prompts(train::VerbRows<data::SftRow>& rows, const DistillConfig& config,
                      const data::SftFormat& format) {
  rows.pieces = {};  // prompts are not split
  rows.evaluation = [prompts = data::prompt_reader(train::evaluation_format(format))](
                        const Drawn& drawn, data::LoaderState& state) {
    return prompt_only(prompts(drawn, state));
  };
  rows.train = [read_row = rows.train, prompts = data::prompt_reader(format),
                mixture = Mixture(config)](const Drawn& drawn, data::LoaderState& state) {
    // Where rows are used both ways, each must fit both ways: which are left out then depends on
    // nothing else, and the steps of the run can be planned.
    const bool file = mixture.uses(Completer::kFile);
    if (file && !mixture.uses(Completer::kStudent)) return read_row(drawn, state);
    std::optional<data::SftRow> row;
    if (file && !(row = read_row(drawn, state))) return row;
    std::optional<data::RowNotices> notices;
    if (row) notices = std::exchange(state.notices, {});  // which counted the row
    std::optional<data::PromptRow> prompt = prompts(drawn, state);
    if (row) state.notices = std::move(notices);
    if (prompt && mixture.of(state.rows, state.batches) == Completer::kFile) return row;
    state.with_eos += prompt.has_value();  // a completion may end by itself
    return prompt_only(std::move(prompt));
  };
}

}  // namespace

std::string blind_teacher(const DistillConfig& config) {
  const DistillSection& section = config.distill;
  const char* const key = "distill.teacher";
  if (section.teacher_logprobs)
    return train::blind(config, "distill.teacher_logprobs", *section.teacher_logprobs);
  if (config.crosses())
    return train::blind(config, "distill.cross_tokenizer",
                        "a teacher that reads tokens of its own");
  for (const TeacherSection& teacher : section.teacher) {
    const std::string blind = teacher.url ? train::blind(config, key, *teacher.url)
                                          : train::blind_model(config, key, teacher.path);
    if (!blind.empty()) return blind;
  }
  return "";
}

train::VerbRows<data::SftRow> student_rows(const DistillConfig& config,
                                           const data::SftFormat& format,
                                           const RemoteTeacher* file) {
  train::VerbRows<data::SftRow> rows = train::sft_rows(config, format);
  if (config.samples()) complete_prompts(rows, config, format);
  for (auto* read : {&rows.train, &rows.evaluation})
    *read = with_teacher(std::move(*read), config.distill, file);
  train::refuse_unseen(rows, blind_teacher(config));
  return rows;
}

SampledRows::SampledRows(const DistillConfig& config, train::Policy& policy,
                         models::CausalLM* teacher, dist::Group& group)
    : config_(config),
      group_(group),
      mixture_(config),
      memory_(config.train),
      student_(*policy.model, config, policy.tokenizer) {
  if (teacher && mixture_.uses(Completer::kTeacher))
    teacher_ = std::make_unique<Sampler>(*teacher, config, policy.tokenizer);
}

std::map<int64_t, SampledRows::Completion> SampledRows::sample(Sampler& sampler,
                                                               const Asked& prompts,
                                                               const std::function<bool()>& stop) {
  const at::NoGradGuard no_grad;
  const nn::Gathered whole(sampler.model);  // ranks make different numbers of passes
  generate::Engine& engine = sampler.engine;
  std::vector<generate::RequestId> requests;
  for (const auto& [key, prompt] : prompts) {
    generate::Request request{key, prompt->tokens, 1, config_.rollout.options(config_.seed)};
    request.rows = models::external_rows(prompt->images);
    requests.push_back(engine.submit(std::move(request)));
  }
  std::map<int64_t, Completion> completions;
  Activity activity("sampling", std::ssize(prompts));
  const auto done = [&](generate::Completion c) {
    activity.advance();
    if (!c.cancelled) completions[c.index] = {std::move(c.tokens), c.stopped};
  };
  bool stopped = false;
  while (engine.step({.done = done, .on_token = {}})) {
    activity.advance(0);
    dist::check_peers();
    memory_.check("sampling");
    if (stopped || !stop || !stop()) continue;
    stopped = true;
    for (const generate::RequestId id : requests) engine.cancel(id);
  }
  engine.release_memory();  // the next step samples with other weights
  return completions;
}

std::map<int64_t, SampledRows::Completion> SampledRows::gather(std::map<int64_t, Completion> mine) {
  if (group_.size() == 1) return mine;
  Json lines = Json::array();
  for (const auto& [key, c] : mine) lines.push_back({key, c.tokens, c.stopped});
  std::map<int64_t, Completion> all;
  for (const std::string& text : group_.all_gather(lines.dump()))
    for (const Json& line : parse_json(text, "another rank"))
      all[line[0].get<int64_t>()] = {line[1].get<std::vector<int32_t>>(), line[2].get<bool>()};
  return all;
}

void SampledRows::complete(std::vector<data::SftRow>& rows, int64_t first, int64_t step) {
  const double start = steady_seconds();
  completions_ = tokens_ = truncated_ = share_ = 0;
  for (const Completer by : {Completer::kStudent, Completer::kTeacher}) {
    Asked mine;
    int64_t number = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t key = first + static_cast<int64_t>(i);
      if (mixture_.of(key, step) != by) continue;
      if (number++ % group_.size() == group_.rank()) mine[key] = &rows[i].segments.at(0);
    }
    if (number == 0) continue;
    if (by == Completer::kStudent)
      share_ = static_cast<double>(number) / static_cast<double>(rows.size());
    for (const auto& [key, c] :
         gather(sample(by == Completer::kStudent ? student_ : *teacher_, mine))) {
      append(rows.at(static_cast<size_t>(key - first)), c.tokens);
      ++completions_;
      tokens_ += static_cast<double>(c.tokens.size());
      truncated_ += !c.stopped;
    }
  }
  seconds_ = group_.all_reduce_max(steady_seconds() - start);
}

SampledRows::Evaluation SampledRows::evaluation(const train::SftEvaluation& rows, size_t set,
                                                const std::function<bool()>& stop) {
  const int64_t first = kEvaluationKeys + (static_cast<int64_t>(set) << 32);
  const data::RowSet& file = rows.set(set);
  std::map<int64_t, data::SftRow> asked;
  Asked prompts;
  for (int64_t r = group_.rank(); r < file.size(); r += group_.size()) {
    auto row = data::read_one(rows.reader(), file, r);
    if (!row) continue;
    data::SftRow& kept = asked[first + r] = std::move(*row);
    prompts[first + r] = &kept.segments.at(0);
  }
  Evaluation out;
  std::vector<train::PackUnit> units;
  for (const auto& [key, c] : sample(student_, prompts, stop)) {
    data::SftRow& row = asked.at(key);
    append(row, c.tokens);
    out.groups.push_back(row.group);
    units.push_back(train::unit_of(row));
  }
  out.passes = train::plan_passes(units, train::pass_tokens(config_));
  return out;
}

void SampledRows::describe(MetricsRow& row) const {
  if (completions_ > 0) {
    row.set("completion_length_mean", tokens_ / completions_);
    row.set("truncated_fraction", truncated_ / completions_);
  }
  row.set("on_policy_share", share_);
  row.set("rollout_seconds", seconds_);
}

}  // namespace temper::distill
