#include "temper/train/run/opening.h"

#include <ATen/Parallel.h>

#include "temper/metrics/format.h"
#include "temper/ops/backend.h"
#include "temper/train/run/run_directory.h"

namespace temper::train {
namespace {

std::string count(int64_t n, const std::string& what) {
  return format_count(static_cast<double>(n)) + " " + what + (n == 1 ? "" : "s");
}

int64_t size_of(const nn::Parameter& parameter) {
  int64_t size = 1;
  for (const int64_t n : parameter.whole_shape()) size *= n;
  return size;
}

// "1,024 of 135,591 parameters are trainable (LoRA, rank 16)"
std::string parameters_text(const RunConfig& config, const Roles& roles) {
  std::string text;
  for (const auto& trainable : roles.trainables) {
    int64_t trained = 0;
    for (const NamedParameter& p : trainable->optimizer.parameters())
      trained += size_of(*p.parameter);
    const bool first = text.empty();
    if (!first) {
      text += ", " + trainable->name + " " + format_count(static_cast<double>(trained));
      continue;
    }
    int64_t all = 0;
    roles.models().front()->each_parameter(
        [&](const std::string&, nn::Parameter& p) { all += size_of(p); });
    text = trained == all ? "all " + count(all, "parameter") + " are trainable"
                          : format_count(static_cast<double>(trained)) + " of " +
                                count(all, "parameter") + " are trainable";
    if (config.has_adapter())
      text += temper::str(
          " (", config.adapter.method == models::AdapterSection::Method::kLora ? "LoRA" : "QLoRA",
          ", rank ", config.adapter.rank, ")");
  }
  return text;
}

class Opening : public Hook {
 public:
  Opening(const RunConfig& config, const Roles& roles, const dist::Mesh& mesh, const Task& task)
      : config_(config), task_(task) {
    model_ = temper::str(config.verb.value_or("a run"), " of ", config.model.path, ": ",
                         parameters_text(config, roles), "; ");
    if (mesh.world->size() > 1) model_ += count(mesh.world->size(), "rank") + " of ";
    model_ += count(at::get_num_threads(), "thread");
    const ops::Backend& backend = ops::cpu_backend();
    if (&backend != &ops::native_backend()) model_ += temper::str(", backend ", backend.name());
  }

  void on_begin(RunDirectory& directory) override {
    directory.note(model_);
    if (const std::string rules = about_earlier_rules(config_.data); !rules.empty())
      directory.note(rules);
    const int64_t steps = config_.train.max_steps.value_or(task_.planned_steps());
    const std::string work = task_.work();
    directory.note(count(steps, "step") + (work.empty() ? "" : ": " + work) + "; output in " +
                   directory.path());
  }

 private:
  const RunConfig& config_;
  const Task& task_;
  std::string model_;
};

}  // namespace

std::unique_ptr<Hook> opening(const RunConfig& config, const Roles& roles, const dist::Mesh& mesh,
                              const Task& task) {
  return std::make_unique<Opening>(config, roles, mesh, task);
}

std::string text_of(const data::RowOrder& order, const data::RowSurvey& survey) {
  std::string text = count(order.rows(), "row");
  if (survey.complete) text += ", " + count(survey.tokens, "token");
  if (survey.dropped > 0) text += ", " + count(survey.dropped, "row") + " left out";
  if (order.split_rows() > 0) text += ", " + count(order.split_rows(), "longer row") + " split";
  return text;
}

}  // namespace temper::train
