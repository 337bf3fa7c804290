#include "temper/check/check_run.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "temper/base/error.h"
#include "temper/check/memory/compared_shape.h"
#include "temper/check/memory/disk.h"
#include "temper/check/text.h"
#include "temper/data/rows/preference_row.h"
#include "temper/distill/sampled_rows.h"
#include "temper/distill/strategy.h"
#include "temper/distill/teacher.h"
#include "temper/distill/teacher_file.h"
#include "temper/distill/teacher_server.h"
#include "temper/preference/pair_task.h"
#include "temper/train/run/row_messages.h"
#include "temper/train/sft/sft.h"

namespace temper::checks {
namespace {

constexpr int64_t kSteps = 500;  // steps whose passes are measured

RowSize size_of_sft_row(const data::SftRow& row) {
  return {train::unit_of(row).num_tokens(), row.supervised()};
}

// The passes of the run's first steps, of its rows as they are drawn.
void shape_passes(RunChecks& checks, const RunChecks::Rows& rows) {
  const train::TrainSection& t = checks.config.train;
  const int64_t steps = std::min(kSteps, t.max_steps.value_or(kSteps));
  plan_passes(drawn_rows(*rows.order, rows.sizes, steps * t.batch_size), t.batch_size,
              train::pass_tokens(checks.config), checks.ranks.product(&dist::Axis::own_rows),
              checks.shape);
}

int64_t steps_of(const RunChecks& checks, const RunChecks::Rows& rows) {
  const train::TrainSection& t = checks.config.train;
  return t.max_steps ? *t.max_steps : rows.order->steps(t.epochs.value_or(1), rows.sizes.counts);
}
int64_t steps_of(const RunChecks& checks, const std::optional<RunChecks::Rows>& rows) {
  return rows ? steps_of(checks, *rows) : checks.config.train.max_steps.value_or(1);
}

// What ends a run of so many steps whose first rows train nothing: `judge` is asked after each
// step.
using JudgeRows = std::function<void(const data::LoaderState& rows, int64_t all_rows, bool last)>;
Finding judge_first_rows(const RunChecks& checks, const RunChecks::Rows& rows,
                         const JudgeRows& judge) {
  const int64_t batch = checks.config.train.batch_size, steps = steps_of(checks, rows);
  const std::vector<RowSize> drawn =
      drawn_rows(*rows.order, rows.sizes,
                 std::min(saturated_product(steps, batch), train::kRowsToJudge + batch));
  data::LoaderState state;
  for (const RowSize& row : drawn) {
    state.untrained += row.untrained;
    if (++state.rows % batch == 0 || state.rows == std::ssize(drawn))
      judge(state, rows.order->rows(), quotient_up(state.rows, batch) == steps);
  }
  return Finding::pass(str(counted(state.rows - state.untrained), " of the first ",
                           counted(state.rows), " rows train a token"));
}

void check_first_rows(RunChecks& checks, const std::optional<RunChecks::Rows>& rows,
                      const JudgeRows& judge) {
  if (!rows) return checks.list.skip("first_rows", "data.train cannot be read");
  checks.list.run("first_rows", [&] { return judge_first_rows(checks, *rows, judge); });
}

template <class Row, class SizeOf>
std::optional<RunChecks::Rows> train_rows(RunChecks& checks,
                                          const std::function<train::VerbRows<Row>()>& declared,
                                          const SizeOf& size_of) {
  auto rows = checks.rows<Row>(declared, size_of, true);
  if (rows) shape_passes(checks, *rows);
  return rows;
}

// The strategy as the run makes it, which checks its layers and heads. `teacher`: null where none
// is a model of the run's process.
std::unique_ptr<distill::Strategy> make_strategy(const RunChecks& checks,
                                                 const distill::DistillConfig& config,
                                                 models::CausalLM* teacher,
                                                 std::shared_ptr<const Tokenizer> tokenizer) {
  return distill::strategies()
      .find(config.distill.strategy)
      .make({config, *checks.policy.model, teacher, checks.policy.tokenizer, std::move(tokenizer)});
}

// What the strategy keeps of both models.
void add_compared(RunChecks& checks, const distill::DistillConfig& config,
                  const std::string& directory, const ModelShape& teacher) {
  const std::unique_ptr<models::CausalLM> model =
      models::make_model(models::HfConfig::load(directory));
  const std::unique_ptr<distill::Strategy> strategy =
      make_strategy(checks, config, model.get(), Tokenizer::load_directory(directory));
  const bool maps = strategy->maps() != nullptr;
  checks.shape.compared = compared_shape(strategy->tap(), std::ssize(strategy->pairs()), maps,
                                         checks.shape.policy.shape, teacher);
  if (!maps) return;
  ModelRole role{.role = "projection"};
  strategy->maps()->each_parameter([&](const std::string& name, nn::Parameter& p) {
    role.shape.tensors.push_back({.name = name, .shape = p.shape(), .matrix = true});
  });
  checks.shape.others.push_back(std::move(role));
}

Finding check_teacher_file(RunChecks& checks, const distill::DistillConfig& config,
                           std::unique_ptr<distill::RemoteTeacher>& file) {
  file = distill::open_teacher_file(config, checks.policy.model->vocab_size);
  make_strategy(checks, config, nullptr, checks.policy.tokenizer);  // throws what it cannot read
  return Finding::pass(*config.distill.teacher_logprobs + ": numbers computed before");
}

// The teachers that are models, of this process or behind a url.
Finding check_teachers(RunChecks& checks, const distill::DistillConfig& config) {
  const bool samples =
      config.samples() && distill::Mixture(config).uses(distill::Completer::kTeacher);
  std::string said;
  int64_t hidden = 0;  // of all teachers, whose last hidden states wait for the student's
  for (const train::FrozenSource& source : distill::teacher_sources(config, checks.policy)) {
    ModelRole role = checks.frozen_role(said.empty() ? "teacher" : "another teacher", source);
    role.samples = samples;
    said += str(said.empty() ? "" : "; ", source.directory, ": ", counted(role.shape.parameters()),
                " parameters");
    add_compared(checks, config, source.directory, role.shape);
    hidden += checks.shape.compared.teacher_hidden;
    checks.shape.others.push_back(std::move(role));
  }
  if (said.empty()) make_strategy(checks, config, nullptr, checks.policy.tokenizer);
  checks.shape.compared.teacher_hidden = hidden;
  for (const distill::TeacherSection& teacher : config.distill.teacher)
    if (teacher.url)
      said += str(said.empty() ? "" : "; ",
                  distill::describe_teacher_server(config, teacher, checks.policy));
  return Finding::pass(said);
}

}  // namespace

void check_run(RunChecks& checks, train::SftConfig& config) {
  checks.model();
  const auto rows = train_rows<data::SftRow>(
      checks, [&] { return train::sft_rows(config, train::sft_format(config, checks.policy)); },
      size_of_sft_row);
  check_first_rows(checks, rows, [&](const data::LoaderState& read, int64_t all, bool last) {
    train::check_rows_train(config, read, all, last, "");
  });
  check_eval_rewards(checks);
  checks.finish(steps_of(checks, rows));
}

void check_run(RunChecks& checks, preference::PreferenceConfig& config) {
  const bool scalar = config.is_scalar();
  checks.model(scalar);
  const auto size = [&](const data::PreferenceRow& row) {
    const train::PackUnit unit = preference::unit_of(row, 0, preference::targets_of(config));
    const auto supervised = static_cast<int64_t>(preference::supervised(unit));
    return RowSize{unit.num_tokens(), scalar ? 2 : supervised};
  };
  const auto declared = [&] {
    const train::Policy& policy = checks.policy;
    return preference::pair_rows(config,
                                 preference::format_of(config, policy.tokenizer, policy.chat));
  };
  const auto rows = train_rows<data::PreferenceRow>(checks, declared, size);
  check_first_rows(checks, rows, [&](const data::LoaderState& read, int64_t all, bool last) {
    preference::check_pairs_train(config, read, all, last);
  });
  if (config.is_unpaired() && rows)
    checks.list.run("data.number", [&] {
      std::vector<std::unique_ptr<data::RowSet>> sets;
      for (const data::SourceSpec& source : declared().evaluation_sources(config))
        sets.push_back(std::make_unique<data::RowSet>(source));
      preference::check_number_of_rows(config, *rows->order, rows->sizes.counts, sets);
      return Finding::pass("each completion can be compared with those of other rows");
    });
  else if (config.is_unpaired())
    checks.list.skip("data.number", "data.train cannot be read");
  const train::TrainSection& t = config.train;
  if (config.is_unpaired() && (t.early_stopping.metric || t.keep_best.metric))
    checks.with_model("data.eval.pairs", [&] {
      preference::check_pair_metrics(config, declared().evaluation);
      return Finding::pass("the evaluation has the metric that the run goes by");
    });
  if (config.has_reference())
    checks.reference([&] { return preference::reference_source(config, checks.policy); });
  check_eval_rewards(checks);
  checks.finish(steps_of(checks, rows));
}

void check_run(RunChecks& checks, distill::DistillConfig& config) {
  try {
    distill::take_file_date(config);
  } catch (const Error&) {
    // The check of the teacher says so.
  }
  checks.model();
  std::unique_ptr<distill::RemoteTeacher> file;
  if (config.distill.teacher_logprobs)
    checks.with_model("teacher", [&] { return check_teacher_file(checks, config, file); });
  const auto rows = train_rows<data::SftRow>(
      checks,
      [&] {
        return distill::student_rows(config, train::sft_format(config, checks.policy), file.get());
      },
      [&](const data::SftRow& row) {
        RowSize size = size_of_sft_row(row);
        if (config.samples() && size.targets == 0) {  // a prompt, before the student completes it
          size.prompt = size.tokens;
          size.tokens += config.rollout.max_new_tokens;
          size.targets += config.rollout.max_new_tokens;
        }
        return size;
      });
  if (!config.distill.teacher_logprobs)
    checks.with_model("teacher", [&] { return check_teachers(checks, config); });
  if (config.samples()) {
    SamplingShape& s = checks.shape.sampling;
    s.samples = true;
    s.sequences = s.prompts = config.train.batch_size / checks.ranks.product(&dist::Axis::own_rows);
    s.new_tokens = config.rollout.max_new_tokens;
    s.prompt_tokens = rows ? rows->longest_prompt : 0;
    checks.rollout(config.rollout);
  }
  check_eval_rewards(checks);
  checks.finish(steps_of(checks, rows));
}

std::vector<MeshCost> check_meshes(RunChecks& checks, Machine& machine) {
  const train::RunConfig& config = checks.config;
  if (machine.sequence == 0) machine.sequence = config.data.max_length;
  if (machine.step_tokens == 0) machine.step_tokens = machine.sequence * config.train.batch_size;
  if (!checks.model_shape()) return {};
  const int64_t pass = std::max(machine.sequence, train::pass_tokens(config));
  checks.shape.largest = {{pass, pass, true, machine.sequence},
                          {pass, pass, false, machine.sequence}};
  checks.shape.step_tokens = machine.step_tokens;
  std::vector<MeshCost> meshes = plan_meshes(checks.shape, machine, checks.options.program_bytes);
  checks.list.run("mesh", [&] {
    const auto fits =
        std::count_if(meshes.begin(), meshes.end(), [](const MeshCost& cost) { return cost.fits; });
    const std::string found = str(fits, " of ", meshes.size(), " meshes of ", machine.devices,
                                  " devices fit ", megabytes(static_cast<double>(machine.memory)));
    return fits > 0 ? Finding::pass(found) : Finding::fail(found);
  });
  if (!meshes.empty()) checks.plan = meshes.front().memory;
  return meshes;
}

}  // namespace temper::checks
