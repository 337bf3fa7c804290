// Rows that the student samples itself, or the teacher: prompts are drawn, completed by a rollout
// engine, and trained on as rows of SFT whose completion is supervised.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "temper/base/random.h"
#include "temper/distill/config.h"
#include "temper/distill/teacher.h"
#include "temper/generate/engine.h"
#include "temper/train/roles/roles.h"
#include "temper/train/run/memory_limit.h"

namespace temper::distill {

// Whether the run's row of this number is trained as it stands: an even share of them is.
bool is_off_policy(double fraction, int64_t number);

// Who wrote the completion that a row is trained on.
enum class Completer { kFile, kStudent, kTeacher };

// The completers of a run's rows: a function of the config, its seed among it, and of the row's and
// the step's number.
class Mixture {
 public:
  explicit Mixture(const DistillConfig& config);
  // number: of the row, and of its step, counted from 0 over the run.
  Completer of(int64_t number, int64_t step) const;
  bool uses(Completer completer) const;  // for some rows

 private:
  std::optional<double> lambda_;
  double fraction_;
  Completer other_;  // where not the student
  RandomStream coins_;
};

// The rows of SFT where the config samples nothing. Else prompts, without a supervised token, and
// in training rows whose completion is the file's as SFT reads them. What no teacher teaches is
// refused as it is read. file: the open one of distill.teacher_logprobs, which outlives the
// readers; null: there is none.
train::VerbRows<data::SftRow> student_rows(const DistillConfig& config,
                                           const data::SftFormat& format,
                                           const RemoteTeacher* file = nullptr);

// train::blind_model of the first teacher that sees no images: another one than a model of this
// process that reads the student's tokens never does.
std::string blind_teacher(const DistillConfig& config);

class SampledRows {
 public:
  // teacher: null where it completes nothing.
  SampledRows(const DistillConfig& config, train::Policy& policy, models::CausalLM* teacher,
              dist::Group& group);

  // Completes the prompts among the rows of a step, which are the run's from number `first` on: the
  // same on all ranks, each of which samples its share.
  void complete(std::vector<data::SftRow>& rows, int64_t first, int64_t step);
  // This rank's passes of a set of prompts, completed; fewer where `stop` says so.
  struct Evaluation {
    std::vector<train::ForwardPass> passes;
    std::vector<std::string> groups;  // of the passes' units
  };
  Evaluation evaluation(const train::SftEvaluation& rows, size_t set,
                        const std::function<bool()>& stop);
  // Adds metrics of the last complete().
  void describe(MetricsRow& row) const;

 private:
  struct Completion {
    std::vector<int32_t> tokens;
    bool stopped = false;
  };
  // A model that samples.
  struct Sampler {
    Sampler(models::CausalLM& of, const DistillConfig& config,
            const std::shared_ptr<const Tokenizer>& tokenizer)
        : model(of), engine(of, config.rollout.engine_options(), tokenizer) {}
    models::CausalLM& model;
    generate::Engine engine;
  };
  // Samples completions of prompts; both maps are by the key of the prompt's random numbers.
  using Asked = std::map<int64_t, const data::Segment*>;
  std::map<int64_t, Completion> sample(Sampler& sampler, const Asked& prompts,
                                       const std::function<bool()>& stop = {});
  std::map<int64_t, Completion> gather(std::map<int64_t, Completion> mine);

  const DistillConfig& config_;
  dist::Group& group_;
  const Mixture mixture_;
  const train::MemoryWatch memory_;
  Sampler student_;
  std::unique_ptr<Sampler> teacher_;  // null: it completes nothing
  double seconds_ = 0, completions_ = 0, tokens_ = 0, truncated_ = 0;
  double share_ = 1;  // of the last step's rows: that the student completed
};

}  // namespace temper::distill
