// The training verbs: their arguments, their signals, their ranks.
#include "temper/cli/training.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <new>
#include <optional>

#include "temper/base/error.h"
#include "temper/base/memory.h"
#include "temper/check/check_run.h"
#include "temper/cli/experiments/repetition.h"
#include "temper/cli/experiments/step_tensors.h"
#include "temper/cli/launch.h"
#include "temper/cli/parts/full_device.h"
#include "temper/cli/parts/next_steps.h"
#include "temper/cli/parts/progress.h"
#include "temper/cli/parts/shared_config.h"
#include "temper/cli/verbs.h"
#include "temper/dist/environment.h"
#include "temper/dist/world.h"
#include "temper/distill/run.h"
#include "temper/preference/dpo.h"
#include "temper/preference/losses.h"
#include "temper/preference/orpo.h"
#include "temper/preference/reward.h"
#include "temper/rl/algorithms/algorithm.h"
#include "temper/rl/run.h"
#include "temper/train/run/memory_limit.h"

namespace temper::cli {
namespace {

template <class Table>
std::string joined_names(const Table& table) {
  std::string names;
  for (const std::string& name : table.names()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

// Algorithms that `temper grpo` runs: those without a critic.
std::string grpo_algorithms() {
  std::string names;
  for (const auto& entry : rl::algorithms().list())
    if (!entry.value()->needs().critic) names += (names.empty() ? "" : ", ") + entry.name;
  return names;
}

// What `use` says of the run's shape and plan, which is made from its config once more, without its
// weights; `otherwise` where there is no plan.
template <class Config>
std::string planned_again(
    const char* verb, const Arguments& arguments, const std::string& otherwise,
    const std::function<std::string(const checks::RunShape&, const checks::MemoryPlan&)>& use) {
  try {
    Config config;
    read_verb_config(config, arguments, verb);
    checks::RunChecks checks(config, {});
    checks::check_run(checks, config);
    if (checks.plan) return use(checks.shape, *checks.plan);
  } catch (const std::exception&) {
    // What went wrong first is said.
  }
  return otherwise;
}

// Runs `run`; the run's lack of memory becomes an error that shows its plan.
template <class Config, class Run>
train::RunOutcome with_plan_of_memory(const char* verb, const Arguments& arguments,
                                      const Run& run) {
  const auto fail = [&](const std::string& what) {
    throw RunError(
        planned_again<Config>(verb, arguments, what, [&](const auto& shape, const auto& plan) {
          return full_memory_message(what, shape, plan);
        }));
  };
  try {
    return run();
  } catch (const c10::OutOfMemoryError& error) {
    throw RunError(planned_again<Config>(
        verb, arguments,
        full_device_message(error, "a smaller train.micro_batch_tokens would take less"),
        [&](const auto& shape, const auto& plan) {
          return full_device_message(error, shape, plan);
        }));
  } catch (const train::MemoryExceeded& error) {
    fail(error.what());
  } catch (const std::bad_alloc&) {
    fail("out of memory: the system gives this process no more");
  } catch (const c10::Error& error) {  // of LibTorch's allocator for the processor
    const std::string text = error.what_without_backtrace();
    if (text.find("DefaultCPUAllocator") == std::string::npos) throw;
    fail("out of memory: " + text.substr(0, text.find('\n')));
  }
  return {};
}

// Throws ConfigError where the run is planned to take more than train.memory_limit.
template <class Config>
void check_memory_limit(const char* verb, const Arguments& arguments, int ranks) {
  Config config;
  read_verb_config(config, arguments, verb);
  const std::optional<int64_t> limit = train::memory_limit(config);
  if (!limit) return;
  checks::RunChecks checks(config, {.ranks = ranks, .program_bytes = peak_memory_bytes()});
  checks::check_run(checks, config);
  for (const checks::CheckList::Check& check : checks.list.checks())
    if (check.name == "memory_limit" && check.finding.status == checks::Finding::Status::kFail)
      throw ConfigError(check.finding.message);
}

// Shows how far data.balance has come with its rows before the first step, and stops there.
void watch_balancing(data::DataSection& data) {
  const bool shows = dist::read_environment().rank == 0;
  data.on_balanced_row = [shows, progress = std::shared_ptr<Progress>(),
                          read = int64_t{0}](int64_t rows) mutable {
    if (interrupted()) throw Interrupted();
    if (shows && !progress) progress = std::make_shared<Progress>("grouped", rows, "");
    if (progress) progress->advance(1);
    if (++read < rows) return;
    progress.reset();
    read = 0;
  };
}

template <class Config>
int run_training(const TrainingVerb& verb, const RunOf<Config>& training,
                 const Arguments& arguments) {
  Config config;
  if (asks_for_help(arguments)) {
    std::cout << verb.about << "keys (path, type, default, meaning):\n"
              << describe_run_config(config);
    return 0;
  }
  Arguments rest = arguments;
  if (training.flag && std::erase(rest, training.flag) > 0) {
    read_verb_config(config, rest, verb.name);
    training.instead(config, std::cout);
    return 0;
  }
  rest.clear();
  const int ranks = take_nproc(arguments, rest);
  read_verb_config(config, rest, verb.name);
  if (config.train.memory_limit && dist::read_environment().rank == 0 && !is_launched())
    check_memory_limit<Config>(verb.name, rest, ranks > 1 ? ranks : 0);
  if (ranks > 1) {
    config.training_ranks(ranks);
    return launch_ranks(ranks, config.roles.serving(), verb.name, rest);
  }
  // For who types Ctrl-C, or reads the log of a run that was stopped; once for all ranks, which get
  // the signal together.
  static bool alone = false;
  alone = dist::read_environment().size == 1;
  const std::optional<Repetition> repetition = Repetition::told();
  // What a repeated part of a run leaves is looked at and thrown away: nothing continues from it.
  const bool is_looked_at = repetition && repetition->is_silent;
  catch_interrupts(dist::read_environment().rank > 0 ? nullptr
                   : is_looked_at ? "temper: finishing the step; a second signal ends it at once\n"
                                  : "temper: finishing the step and saving a checkpoint; a second "
                                    "signal ends the run at once\n",
                   [] { return alone || dist::have_met(); });
  // A console that is closed (`temper sft ... | head -1`) is no reason to lose a run. A handler and
  // not SIG_IGN: programs that are started inherit only the latter.
  ::signal(SIGPIPE, [](int) {});
  end_with_launcher();
  end_without_peers();
  watch_balancing(config.data);
  std::ostream nowhere(nullptr);
  train::RunHost host{is_looked_at ? nowhere : std::cout, ::isatty(STDOUT_FILENO) == 1,
                      interrupted};
  if (repetition) host.after_step = [&](int64_t step) { return repetition->after(step); };
  if (repetition && !repetition->tensors.empty())
    host.on_tensors = [&, file = str(repetition->tensors, ".", dist::read_environment().rank)](
                          int64_t step, const char* when, const train::Trainables& trainables) {
      if (step == repetition->tensors_of) add_step_tensors(file, when, trainables);
    };
  const train::RunOutcome outcome =
      with_plan_of_memory<Config>(verb.name, rest, [&] { return training.run(config, host); });
  if (repetition && !repetition->finishes && !interrupted()) return 0;
  if (!outcome.interrupted) {
    const auto& sinks = config.metrics.sinks;
    const bool shows = std::find(sinks.begin(), sinks.end(), "console") != sinks.end();
    if (shows && dist::read_environment().rank == 0)
      std::cout << next_steps(config, eval_flags(config)) << std::flush;
    return 0;
  }
  if (dist::read_environment().rank > 0) return stopped_status();  // the first one says it
  const char* const then = is_looked_at ? "; nothing of the repetition is kept"
                           : config.resume == "never"
                               ? "; with resume=auto the same command continues from there"
                               : "; the same command continues from there";
  std::cerr << "temper: stopped after step " << outcome.steps << then << std::endl;
  return stopped_status();
}

}  // namespace

int run_training(const TrainingVerb& verb, const Arguments& arguments) {
  return std::visit([&](const auto& config) { return run_training(verb, config, arguments); },
                    verb.config);
}

train::RunOutcome run_part(const TrainingVerb& verb, const Arguments& arguments,
                           const train::RunHost& host) {
  return std::visit(
      [&]<class Config>(const RunOf<Config>& training) {
        Config config;
        read_verb_config(config, arguments, verb.name);
        watch_balancing(config.data);
        return with_plan_of_memory<Config>(verb.name, arguments,
                                           [&] { return training.run(config, host); });
      },
      verb.config);
}

const std::vector<TrainingVerb>& training_verbs() {
  static const std::vector<TrainingVerb> table{
      {"sft",
       "supervised fine-tuning, of all weights or a LoRA adapter",
       RunOf<train::SftConfig>{&train::run_sft},
       {"sft", "rollout"},
       "Supervised fine-tuning, of all weights or a LoRA adapter.\n"
       "usage: temper sft [--nproc N] [file.yaml ...] [dotted.key=value ...]\n"
       "examples:\n"
       "  temper sft model.path=MODEL data.train=rows.jsonl output_dir=runs/lora "
       "adapter.method=lora optimizer.learning_rate=2e-4\n"
       "  temper sft run.yaml train.epochs=3 output_dir=runs/longer\n",
       true},
      {"distill",
       "knowledge distillation from a teacher model",
       RunOf<distill::DistillConfig>{&distill::run_distill, "--precompute",
                                     &distill::precompute_teacher},
       {"rollout", "distill"},
       "Knowledge distillation: a student learns to match a teacher's distributions, attention "
       "maps "
       "or hidden states.\n"
       "usage: temper distill [--nproc N] [file.yaml ...] [dotted.key=value ...]\n"
       "examples:\n"
       "  temper distill configs/distill.yaml\n"
       "  temper distill configs/distill.yaml distill.divergence=jsd distill.temperature=2\n"
       "  temper distill configs/distill.yaml distill.strategy=on_policy\n"
       "  temper distill --precompute configs/distill.yaml distill.teacher_logprobs=FILE\n"
       "--precompute writes the teacher's top-k log-probabilities to distill.teacher_logprobs; "
       "runs "
       "with that key then\nread the file instead of the teacher.\n",
       true},
      {"dpo",
       "direct preference optimization: " + joined_names(preference::losses()),
       RunOf<preference::PreferenceConfig>{&preference::run_dpo},
       {"preference", "rollout"},
       "Direct preference optimization on pairs of completions; by preference.loss: " +
           joined_names(preference::losses()) +
           ".\n"
           "Rows: {prompt, chosen, rejected} of text or messages, or {prompt_ids, chosen_ids, "
           "rejected_ids}; kto takes {prompt, completion, label}, too.\n"
           "usage: temper dpo [--nproc N] [file.yaml ...] [dotted.key=value ...]\n"
           "examples:\n"
           "  temper dpo model.path=MODEL data.train=pairs.jsonl output_dir=runs/dpo "
           "optimizer.learning_rate=1e-6\n"
           "  temper dpo configs/dpo.yaml preference.loss=simpo preference.beta=2 "
           "output_dir=runs/simpo\n"
           "  temper dpo configs/dpo.yaml preference.reference=precomputed adapter.method=lora\n",
       true},
      {"orpo",
       "odds ratio preference optimization, without a reference",
       RunOf<preference::PreferenceConfig>{&preference::run_orpo},
       {"preference", "rollout"},
       "Odds ratio preference optimization: supervised tuning on the chosen completion plus, "
       "weighted "
       "by preference.lambda, the odds-ratio loss of chosen and rejected. No reference model.\n"
       "Rows: {prompt, chosen, rejected} of text or messages, or {prompt_ids, chosen_ids, "
       "rejected_ids}.\n"
       "usage: temper orpo [--nproc N] [file.yaml ...] [dotted.key=value ...]\n"
       "example: temper orpo configs/orpo.yaml\n",
       true},
      {"reward",
       "a reward model trained on preference pairs",
       RunOf<preference::PreferenceConfig>{&preference::run_reward},
       {"preference", "rollout"},
       "A reward model from preference pairs: a scalar head on the last token, trained to score "
       "chosen above rejected. final/ loads as AutoModelForSequenceClassification.\n"
       "Rows: {prompt, chosen, rejected} of text or messages, or {prompt_ids, chosen_ids, "
       "rejected_ids}; an optional `margin` is subtracted from the difference of the rewards.\n"
       "usage: temper reward [--nproc N] [file.yaml ...] [dotted.key=value ...]\n"
       "examples:\n"
       "  temper reward configs/reward.yaml\n"
       "  temper grpo configs/grpo_gsm8k.yaml 'rewards=[{model: runs/reward/final, name: rm}]'\n",
       true},
      {"grpo",
       "reinforcement learning: " + grpo_algorithms(),
       RunOf<rl::RlConfig>{&rl::run_rl},
       {"rl", "rollout", "rewards"},
       "Reinforcement learning on the policy's own samples; by rl.algorithm: " + grpo_algorithms() +
           ".\n"
           "usage: temper grpo [--nproc N] [file.yaml ...] [dotted.key=value ...]\n"
           "examples:\n"
           "  temper grpo model.path=MODEL data.train=prompts.jsonl output_dir=runs/rl "
           "'rewards=[{command: [python3, reward.py]}]' optimizer.learning_rate=1e-6\n"
           "  temper grpo configs/grpo_gsm8k.yaml rl.algorithm=dapo 'rewards=[{command: "
           "[python3, examples/reward.py]}]'\n"
           "  temper grpo configs/grpo_gsm8k.yaml rl.replay=runs/x/rollouts/step-1.jsonl\n"
           "  temper grpo configs/grpo_gsm8k.yaml rl.max_staleness=1 "
           "'rollout.server.urls=[http://127.0.0.1:8000]'\n"
           "  temper grpo --nproc 4 configs/grpo_gsm8k.yaml rl.max_staleness=1 "
           "'roles={rollout: [2, 3], reference: [3]}'\n",
       true},
      {"ppo",
       "reinforcement learning with a critic (PPO)",
       RunOf<rl::PpoConfig>{&rl::run_ppo},
       {"rl", "rollout", "rewards", "ppo"},
       "Proximal policy optimization: reinforcement learning with a critic that is trained with "
       "the "
       "policy. Advantages are GAE's, the KL to the reference is part of the reward. final/ is the "
       "policy, critic/ the critic (AutoModelForSequenceClassification).\n"
       "usage: temper ppo [--nproc N] [file.yaml ...] [dotted.key=value ...]\n"
       "examples:\n"
       "  temper ppo configs/ppo.yaml\n"
       "  temper ppo configs/ppo.yaml ppo.critic=runs/reward/final ppo.critic_warmup_steps=20\n"
       "  temper ppo configs/ppo.yaml adapter.method=lora ppo.share_base=true\n"},
  };
  return table;
}

const TrainingVerb* find_training_verb(const std::string& name) {
  for (const TrainingVerb& verb : training_verbs())
    if (verb.name == name) return &verb;
  return nullptr;
}

}  // namespace temper::cli
