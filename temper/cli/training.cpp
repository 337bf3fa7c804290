// The training verbs: their arguments, their signals, their ranks.
#include "temper/cli/training.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <map>

#include "temper/base/error.h"
#include "temper/cli/launch.h"
#include "temper/cli/progress.h"
#include "temper/cli/verbs.h"
#include "temper/dist/environment.h"
#include "temper/distill/run.h"
#include "temper/preference/dpo.h"
#include "temper/preference/orpo.h"
#include "temper/preference/reward.h"
#include "temper/rl/run.h"
#include "temper/train/sft.h"

namespace temper::cli {
namespace {

// A verb's name, help and run. Its config composes the sections that it obeys.
template <class Config>
struct TrainingVerb {
  const char* name;
  train::RunOutcome (*run)(Config&, const train::RunHost&);
  const char* help;
  std::vector<std::string> elsewhere = {};  // sections of other verbs
};

bool asks_for_help(const Arguments& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "--help" || argument == "-h";
  });
}

template <class Config>
int run_training(const TrainingVerb<Config>& verb, const Arguments& arguments) {
  Config config;
  if (asks_for_help(arguments)) {
    std::cout << verb.help << "keys (path, type, default, meaning):\n"
              << describe_run_config(config);
    return 0;
  }
  Arguments rest;
  const int ranks = take_nproc(arguments, rest);
  read_run_config(config, rest, verb.name, verb.elsewhere);
  if (ranks > 1) {
    config.training_ranks(ranks);
    return launch_ranks(ranks, config.roles.serving(), verb.name, rest);
  }
  // For who types Ctrl-C, once for all ranks, which get the signal together.
  catch_interrupts(dist::read_environment().rank == 0 && ::isatty(STDERR_FILENO) == 1
                       ? "temper: finishing the step and saving a checkpoint; a second signal ends "
                         "the run at once\n"
                       : nullptr);
  // A console that is closed (`temper sft ... | head -1`) is no reason to lose a run. A handler and
  // not SIG_IGN: programs that are started inherit only the latter.
  ::signal(SIGPIPE, [](int) {});
  end_with_launcher();
  const train::RunOutcome outcome =
      verb.run(config, {std::cout, ::isatty(STDOUT_FILENO) == 1, interrupted});
  if (!outcome.interrupted) return 0;
  if (dist::read_environment().rank > 0) return stopped_status();  // the first one says it
  std::cerr << "temper: stopped after step " << outcome.steps
            << (config.resume == "never"
                    ? "; with resume=auto the same command continues from there"
                    : "; the same command continues from there")
            << std::endl;
  return stopped_status();
}

}  // namespace

std::vector<std::string> other_sections(const std::string& verb) {
  static const std::map<std::string, std::vector<std::string>> own{
      {"sft", {}},
      {"dpo", {"preference"}},
      {"orpo", {"preference"}},
      {"reward", {"preference"}},
      {"distill", {"rollout", "distill"}},
      {"grpo", {"rl", "rollout", "rewards"}},
      {"ppo", {"rl", "rollout", "rewards", "ppo"}}};
  const std::vector<std::string>& sections = own.at(verb);
  std::vector<std::string> rest;
  for (const char* section : {"rl", "rollout", "rewards", "preference", "distill", "ppo"})
    if (std::find(sections.begin(), sections.end(), section) == sections.end())
      rest.emplace_back(section);
  return rest;
}

int run_sft(const Arguments& arguments) {
  return run_training<train::SftConfig>(
      {"sft", &train::run_sft,
       "Supervised fine-tuning, of all weights or a LoRA adapter.\n"
       "usage: temper sft [--nproc N] [file.yaml ...] [dotted.key=value ...]\n"
       "examples:\n"
       "  temper sft configs/sft.yaml\n"
       "  temper sft configs/sft.yaml adapter.method=lora adapter.rank=16 output_dir=runs/lora\n",
       other_sections("sft")},
      arguments);
}

int run_dpo(const Arguments& arguments) {
  return run_training<preference::PreferenceConfig>(
      {"dpo", &preference::run_dpo,
       "Direct preference optimisation on pairs of completions; by preference.loss: sigmoid (DPO, "
       "cDPO), hinge, ipo, robust, simpo, kto.\n"
       "Rows: {prompt, chosen, rejected} of text or messages, or {prompt_ids, chosen_ids, "
       "rejected_ids}; kto takes {prompt, completion, label}, too.\n"
       "usage: temper dpo [--nproc N] [file.yaml ...] [dotted.key=value ...]\n"
       "examples:\n"
       "  temper dpo configs/dpo.yaml\n"
       "  temper dpo configs/dpo.yaml preference.loss=simpo preference.beta=2 "
       "output_dir=runs/simpo\n"
       "  temper dpo configs/dpo.yaml preference.reference=precomputed adapter.method=lora\n",
       other_sections("dpo")},
      arguments);
}

int run_orpo(const Arguments& arguments) {
  return run_training<preference::PreferenceConfig>(
      {"orpo", &preference::run_orpo,
       "Odds ratio preference optimisation: supervised tuning on the chosen completion plus, "
       "weighted "
       "by preference.lambda, the odds-ratio loss of chosen and rejected. No reference model.\n"
       "Rows: {prompt, chosen, rejected} of text or messages, or {prompt_ids, chosen_ids, "
       "rejected_ids}.\n"
       "usage: temper orpo [--nproc N] [file.yaml ...] [dotted.key=value ...]\n"
       "example: temper orpo configs/orpo.yaml\n",
       other_sections("orpo")},
      arguments);
}

int run_reward(const Arguments& arguments) {
  return run_training<preference::PreferenceConfig>(
      {"reward", &preference::run_reward,
       "A reward model from preference pairs: a scalar head on the last token, trained to score "
       "chosen above rejected. final/ loads as AutoModelForSequenceClassification.\n"
       "Rows: {prompt, chosen, rejected} of text or messages, or {prompt_ids, chosen_ids, "
       "rejected_ids}; an optional `margin` is subtracted from the difference of the rewards.\n"
       "usage: temper reward [--nproc N] [file.yaml ...] [dotted.key=value ...]\n"
       "examples:\n"
       "  temper reward configs/reward.yaml\n"
       "  temper grpo configs/grpo_gsm8k.yaml 'rewards=[{model: runs/reward/final, name: rm}]'\n",
       other_sections("reward")},
      arguments);
}

int run_distill(const Arguments& arguments) {
  Arguments rest = arguments;
  if (std::erase(rest, "--precompute") > 0 && !asks_for_help(rest)) {
    distill::DistillConfig config;
    read_run_config(config, rest, "distill", other_sections("distill"));
    distill::precompute_teacher(config, std::cout);
    return 0;
  }
  return run_training<distill::DistillConfig>(
      {"distill", &distill::run_distill,
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
       other_sections("distill")},
      arguments);
}

int run_grpo(const Arguments& arguments) {
  return run_training<rl::RlConfig>(
      {"grpo", &rl::run_rl,
       "Reinforcement learning on the policy's own samples: GRPO and, by "
       "rl.algorithm, dr_grpo, dapo, gspo, rloo.\n"
       "usage: temper grpo [--nproc N] [file.yaml ...] [dotted.key=value ...]\n"
       "examples:\n"
       "  temper grpo configs/grpo_gsm8k.yaml\n"
       "  temper grpo configs/grpo_gsm8k.yaml rl.algorithm=dapo 'rewards=[{command: "
       "[python3, examples/reward.py]}]'\n"
       "  temper grpo configs/grpo_gsm8k.yaml rl.replay=runs/x/rollouts/step-1.jsonl\n"
       "  temper grpo configs/grpo_gsm8k.yaml rl.max_staleness=1 "
       "rollout.server.urls=[http://127.0.0.1:8000]\n"
       "  temper grpo --nproc 4 configs/grpo_gsm8k.yaml rl.max_staleness=1 "
       "'roles={rollout: [2, 3], reference: [3]}'\n",
       other_sections("grpo")},
      arguments);
}

int run_ppo(const Arguments& arguments) {
  return run_training<rl::PpoConfig>(
      {"ppo", &rl::run_ppo,
       "Proximal policy optimisation: reinforcement learning with a critic that is trained with "
       "the "
       "policy. Advantages are GAE's, the KL to the reference is part of the reward. final/ is the "
       "policy, critic/ the critic (AutoModelForSequenceClassification).\n"
       "usage: temper ppo [--nproc N] [file.yaml ...] [dotted.key=value ...]\n"
       "examples:\n"
       "  temper ppo configs/ppo.yaml\n"
       "  temper ppo configs/ppo.yaml ppo.critic=runs/reward/final ppo.critic_warmup_steps=20\n"
       "  temper ppo configs/ppo.yaml adapter.method=lora ppo.share_base=true\n",
       other_sections("ppo")},
      arguments);
}

}  // namespace temper::cli
