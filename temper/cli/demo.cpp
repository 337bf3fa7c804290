// A task, a tokenizer and a model made from nothing: sums of two numbers, begun with examples and
// learned from being right.
#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/random.h"
#include "temper/cli/parts/work.h"
#include "temper/generate/engine.h"
#include "temper/models/files/load.h"
#include "temper/rl/algorithms/group_keys.h"
#include "temper/rl/run.h"
#include "temper/train/sft/sft.h"

namespace temper::cli {
namespace {
namespace fs = std::filesystem;

constexpr uint64_t kLargest = 99;  // summand
constexpr int kTestRows = 300, kTrainingRows = 20000;
constexpr int64_t kMaxNewTokens = 6;

// Every character a token: the merges of byte-pair encoding are left out.
constexpr std::string_view kTokenizer = R"({
  "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
  "added_tokens": [{"id": 0, "content": "<end>", "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": true}],
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                    "use_regex": false},
  "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
              "use_regex": false},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "merges": [],
            "vocab": {"<end>": 0, "0": 1, "1": 2, "2": 3, "3": 4, "4": 5, "5": 6, "6": 7, "7": 8,
                      "8": 9, "9": 10, "+": 11, "=": 12}}
})";

constexpr std::string_view kModel = R"({
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 13,
  "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 3, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 32, "hidden_act": "silu", "rms_norm_eps": 1e-6,
  "rope_theta": 10000.0, "max_position_embeddings": 64, "tie_word_embeddings": true,
  "initializer_range": 0.02, "eos_token_id": 0, "attention_bias": false
})";

struct Problem {
  std::string prompt, answer;
};

// Numbers have two digits; the answer has three, written from the last on, as carrying goes.
Problem problem(const RandomStream& stream, uint64_t draw) {
  const uint64_t a = stream.below(2 * draw, kLargest + 1);
  const uint64_t b = stream.below(2 * draw + 1, kLargest + 1), sum = a + b;
  const auto digit = [](uint64_t n, uint64_t unit) { return std::to_string(n / unit % 10); };
  return {temper::str(digit(a, 10), digit(a, 1), "+", digit(b, 10), digit(b, 1), "="),
          digit(sum, 1) + digit(sum, 10) + digit(sum, 100)};
}

// The first sums are the test's, each once; the rows that follow hold none of them.
struct Task {
  std::vector<Problem> test, train;
};
Task make_task() {
  const RandomStream stream(7, RandomPurpose::kDemo, 0);
  Task task;
  std::set<std::string> tested;
  for (uint64_t draw = 0; task.train.size() < kTrainingRows; ++draw) {
    Problem p = problem(stream, draw);
    if (task.test.size() < kTestRows) {
      if (tested.insert(p.prompt).second) task.test.push_back(std::move(p));
    } else if (!tested.contains(p.prompt)) {
      task.train.push_back(std::move(p));
    }
  }
  return task;
}

// Rows for tuning, which reads prompt and completion, and for the reward, which reads `answer`.
void write_rows(const std::string& path, const std::vector<Problem>& problems) {
  std::string rows;
  for (const Problem& p : problems)
    rows +=
        dump_json({{"prompt", p.prompt}, {"completion", p.answer}, {"answer", p.answer}}) + "\n";
  write_file_atomic(path, rows);
}

// As people write it: the model says the last digit first.
std::string sum_as_written(const Problem& p, std::string answer) {
  std::reverse(answer.begin(), answer.end());
  const size_t digits = answer.find_first_not_of('0');
  if (digits != 0) answer = digits == std::string::npos ? "0" : answer.substr(digits);
  return p.prompt + answer;
}

// The share of sums that greedy decoding gets right, and what it says to the first.
std::pair<double, std::string> accuracy(const std::string& model_dir,
                                        const std::vector<Problem>& problems) {
  const auto model = models::load_model(model_dir);
  const auto tokenizer = find_tokenizer(model_dir);
  std::vector<std::vector<int32_t>> prompts;
  for (const Problem& p : problems) prompts.push_back(tokenizer->encode(p.prompt));
  generate::GenerationOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = kMaxNewTokens;
  double right = 0;
  std::string example;
  generate::generate(
      *model, prompts, 1, options,
      [&](generate::Completion c) {
        const Problem& p = problems[static_cast<size_t>(c.index)];
        right += c.text == p.answer;
        if (c.index == 0) example = sum_as_written(p, c.text);
      },
      tokenizer);
  return {right / static_cast<double>(problems.size()), example};
}

std::string percent(double share) {
  return temper::str(static_cast<int>(share * 1000 + 0.5) / 10.0, " %");
}

void make_model(const std::string& directory) {
  fs::create_directories(directory);
  write_file_atomic(directory + "/config.json", std::string(kModel) + "\n");
  write_file_atomic(directory + "/tokenizer.json", std::string(kTokenizer) + "\n");
  write_file_atomic(directory + "/tokenizer_config.json", "{\"eos_token\": \"<end>\"}\n");
  models::save_weights(*models::init_model(models::HfConfig::load(directory), 1), directory,
                       at::kFloat);
}

class Demo : public Command {
 public:
  void declare(Flags& f) override;
  int run() override;

 private:
  std::string output = "demo";
  int64_t sft_steps = 260, rl_steps = 1000;
};

void Demo::declare(Flags& f) {
  f.about(
      "Makes a task (sums), a tokenizer and a model of random weights; fine-tunes the model "
      "briefly\n"
      "on examples, then trains it by GRPO with a reward for right sums; shows its accuracy before "
      "and after each.\n"
      "example: temper demo --output demo");
  f.add("--output", output, "where everything goes; an earlier demo there is replaced");
  f.add("--sft-steps", sft_steps, "number of steps of the supervised warm-up", at_least(1));
  f.add("--rl-steps", rl_steps, "number of steps of reinforcement learning", at_least(1));
}

int Demo::run() {
  const std::string model = output + "/model", rows = output + "/sums.jsonl",
                    warm = output + "/warm-up", run = output + "/grpo";
  const std::string marker = output + "/made-by-temper-demo";
  check<ConfigError>(!fs::exists(output) || fs::exists(marker) ||
                         (fs::is_directory(output) && fs::is_empty(output)),
                     "--output ", output, ": holds something else; choose another");
  fs::create_directories(output);
  write_file_atomic(marker, "temper demo replaces what is here\n");
  for (const std::string& directory : {warm, run}) fs::remove_all(directory);
  make_model(model);
  const Task task = make_task();
  write_rows(rows, task.train);
  write_rows(output + "/test.jsonl", task.test);
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const train::RunHost host{std::cout, terminal, [] { return false; }};

  const auto [before, untrained] = accuracy(model, task.test);
  std::cout << "supervised warm-up on " << kTrainingRows << " sums" << std::endl;
  train::SftConfig sft;
  sft.output_dir = warm;
  sft.model.path = model;
  sft.data.train = {{.path = rows}};
  sft.train.max_steps = sft_steps;
  sft.train.batch_size = 128;
  sft.optimizer.learning_rate = 2e-3;
  sft.optimizer.warmup_steps = std::min<int64_t>(50, sft_steps);
  train::run_sft(sft, host);
  const auto [warmed, halfway] = accuracy(warm + "/final", task.test);
  std::cout << "accuracy " << percent(warmed)
            << "\nGRPO: reward 1 for a right sum, else 0; a sum is three digits in reverse order: "
               "\"23+22=\" -> \"540\" is right"
            << std::endl;
  rl::RlConfig grpo;
  grpo.output_dir = run;
  grpo.model.path = warm + "/final";
  grpo.data.train = {{.path = rows}};
  grpo.train.max_steps = rl_steps;
  grpo.train.micro_batch_tokens = 8192;
  rl::group_keys(*grpo.rl.algorithm).beta = 0;
  grpo.rl.prompts_per_rollout = 32;
  grpo.rl.group_size = 8;
  grpo.rollout.max_new_tokens = kMaxNewTokens;
  grpo.rewards = {{.name = "exact"}};
  grpo.optimizer.learning_rate = 4e-4;
  grpo.optimizer.warmup_steps = std::min<int64_t>(20, rl_steps);
  rl::run_rl(grpo, host);
  const auto [after, trained] = accuracy(run + "/final", task.test);
  std::cout << "\naccuracy on " << kTestRows << " held-out sums: random model " << percent(before)
            << ", after the warm-up " << percent(warmed) << ", after GRPO " << percent(after)
            << "\n"
            << "for example: " << untrained << "   " << halfway << "   " << trained
            << "\nmodel: " << run << "/final\nreport: " << run << "/report.html\n"
            << "try: temper generate --model " << run
            << "/final --prompt 49+33= --temperature 0 --max-new-tokens 6\n";
  return 0;
}

}  // namespace

std::unique_ptr<Command> demo_command() { return std::make_unique<Demo>(); }

}  // namespace temper::cli
