// What several keys of other trainers have to be told.
#pragma once

#include <string_view>

namespace temper::cli {

inline constexpr std::string_view kAccumulation =
    "train.batch_size is rows a step over all ranks, and train.micro_batch_tokens bounds one "
    "forward pass: passes are accumulated as needed";
inline constexpr std::string_view kAgent =
    "an agent is a program: environment.command or environment.openai";
inline constexpr std::string_view kAttention = "there is one exact attention";
inline constexpr std::string_view kBetas = "it is a list of two";
inline constexpr std::string_view kBlocks =
    "tokens and vocabulary are computed in blocks, never all at once";
inline constexpr std::string_view kClip = "rl.epsilon_high bounds the other side";
inline constexpr std::string_view kColumns = "write data.columns: {Temper's field: YOUR_FIELD}";
inline constexpr std::string_view kCountsSteps = "it counts steps";
inline constexpr std::string_view kCritic =
    "apart from ppo.critic, .critic_learning_rate and .critic_warmup_steps the critic's are the "
    "policy's";
inline constexpr std::string_view kDropout = "models have none; adapter.dropout is LoRA's";
inline constexpr std::string_view kEngine =
    "one engine trains every model; mesh.* divides it among ranks";
inline constexpr std::string_view kFileRows = "it is a file of rows, a directory or a glob";
inline constexpr std::string_view kFloor = "it is a share of optimizer.learning_rate";
inline constexpr std::string_view kInference =
    "nothing is merged or unloaded between sampling and training: both read the same weights";
inline constexpr std::string_view kKernels = "there is nothing to switch on";
inline constexpr std::string_view kLiveLogs =
    "write metrics.sinks: [console, jsonl, wandb], or tensorboard, csv, prometheus";
inline constexpr std::string_view kLoraInit = "A begins at random, B at 0";
inline constexpr std::string_view kMemory = "memory is planned before the run starts: temper check";
inline constexpr std::string_view kNoDownload = "a run downloads nothing: temper fetch ID";
inline constexpr std::string_view kNoRemote = "no code of a model directory is ever run";
inline constexpr std::string_view kNotInputs =
    "false is what data.train_on: auto does, the default: leave it out";
inline constexpr std::string_view kOff = "false is what a run does without it: leave it out";
inline constexpr std::string_view kOffload =
    "write train.recompute: blocks and train.offload: activations";
inline constexpr std::string_view kOnePass = "it bounds the tokens of one forward pass";
inline constexpr std::string_view kOneProgram =
    "sampler and trainer are one program, whose log-probabilities are equal on CPUs";
inline constexpr std::string_view kPartOfRows =
    "write {path: FILE, limit: N} for the first N rows; temper data split writes other parts";
inline constexpr std::string_view kNoOptimizer = "no such optimizer: temper list optimizers";
inline constexpr std::string_view kOptimizerState =
    "the optimizer computes and keeps its state in float32, adamw8bit in 8 bits";
inline constexpr std::string_view kOverlong =
    "drop leaves long rows out, truncate cuts them, split makes several of them, error ends the "
    "run; data.max_length is the bound";
inline constexpr std::string_view kPadding = "there is never any padding";
inline constexpr std::string_view kProcesses =
    "ranks are processes that --nproc starts, or torchrun on each host";
inline constexpr std::string_view kQlora = "qlora keeps the frozen weights as NF4";
inline constexpr std::string_view kReadAhead = "rows are read ahead in the background";
inline constexpr std::string_view kRecompute = "write train.recompute: blocks";
inline constexpr std::string_view kRollouts =
    "rollouts/ has every rollout batch; rl.save_rollouts says how many are kept";
inline constexpr std::string_view kSeveralTeachers =
    "several are [{path: DIR, weight: 0.5, groups: [math]}, ..]";
inline constexpr std::string_view kServed =
    "a server's own options are set where it is started; rollout.server names it";
inline constexpr std::string_view kServer =
    "sampling is in-process by default; for a server write {kind: vllm, urls: [..]}";
inline constexpr std::string_view kShards =
    "weights, gradients and optimizer state are divided by mesh.fsdp, block by block";
inline constexpr std::string_view kTeacherServer =
    "a teacher behind an address is {url: http://HOST:PORT}, which temper serve answers";
inline constexpr std::string_view kTerms =
    "rows are {prompt, completion} or {messages}; temper data convert writes them";
inline constexpr std::string_view kOwnTokenizer =
    "the tokenizer is read from the model's directory";
inline constexpr std::string_view kTrainReward = "temper reward trains reward models";
inline constexpr std::string_view kTurns = "the chat template says where turns begin and end";
inline constexpr std::string_view kUploads = "a run uploads nothing";
inline constexpr std::string_view kVerb =
    "the verb says it: temper sft, dpo, orpo, reward, distill, grpo, ppo";
inline constexpr std::string_view kWandb = "write metrics.sinks: [console, jsonl, wandb]";

}  // namespace temper::cli
