// A task, a tokenizer and a model made from nothing: letters are put in order. Small enough for two minutes on a laptop.
#include <ATen/ATen.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/base/random.h"
#include "temper/cli/work.h"
#include "temper/generate/engine.h"
#include "temper/models/load.h"
#include "temper/train/sft.h"

namespace temper::cli {
namespace {
namespace fs = std::filesystem;

constexpr int kLetters = 10;      // in a row
constexpr int kTestRows = 200;
constexpr int kTrainRows = 20000;

// Every character a token: the merges of byte-pair encoding are left out.
Json demo_tokenizer() {
  Json vocabulary = {{"<end>", 0}};
  int next = 1;
  for (const char* piece : {"Ġ", ">"}) vocabulary[piece] = next++;
  for (char c = 'a'; c <= 'z'; ++c) vocabulary[std::string(1, c)] = next++;
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json end = {{"id", 0}, {"content", "<end>"}, {"single_word", false}, {"lstrip", false}, {"rstrip", false}, {"normalized", false}, {"special", true}};
  return {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"added_tokens", {end}}, {"normalizer", nullptr},
          {"pre_tokenizer", byte_level}, {"post_processor", nullptr}, {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"dropout", nullptr}, {"unk_token", nullptr}, {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr}, {"fuse_unk", false}, {"byte_fallback", false}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
}

const Json kConfig = {{"architectures", {"Qwen3ForCausalLM"}}, {"model_type", "qwen3"}, {"hidden_size", 128}, {"intermediate_size", 384},
                      {"num_hidden_layers", 3}, {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"head_dim", 32}, {"hidden_act", "silu"},
                      {"rms_norm_eps", 1e-6}, {"rope_theta", 10000.0}, {"max_position_embeddings", 256}, {"vocab_size", 29},
                      {"tie_word_embeddings", true}, {"initializer_range", 0.02}, {"eos_token_id", 0}, {"attention_bias", false}};

struct Problem {
  std::string prompt, answer;
};

Problem problem(uint64_t index) {
  const RandomStream stream(7, RandomPurpose::kDemo, index);
  std::string letters;
  for (uint64_t i = 0; i < kLetters; ++i) letters += static_cast<char>('a' + stream.below(i, 26));
  std::string sorted = letters;
  std::sort(sorted.begin(), sorted.end());
  return {letters + " > ", sorted};
}

void write_rows(const std::string& path, uint64_t first, int count) {
  std::string rows;
  for (int i = 0; i < count; ++i) {
    const Problem p = problem(first + static_cast<uint64_t>(i));
    rows += dump_json({{"prompt", p.prompt}, {"completion", p.answer}}) + "\n";
  }
  write_file_atomic(path, rows);
}

// The share of test rows that greedy decoding answers in full.
double accuracy(const std::string& model_dir, uint64_t first, std::string* example) {
  const auto model = models::load_model(model_dir);
  const auto tokenizer = find_tokenizer(model_dir);
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < kTestRows; ++i) prompts.push_back(tokenizer->encode(problem(first + static_cast<uint64_t>(i)).prompt));
  generate::EngineOptions options;
  options.sampling.temperature = 0;
  options.max_new_tokens = kLetters + 2;
  int right = 0;
  generate::generate(*model, prompts, 1, options, [&](generate::Completion c) {
    const Problem p = problem(first + static_cast<uint64_t>(c.index));
    const std::string text = tokenizer->decode(c.tokens, true);
    right += text == p.answer;
    if (c.index == 0) *example = p.prompt + text;
  });
  return static_cast<double>(right) / kTestRows;
}

std::string percent(double share) { return temper::str(static_cast<int>(share * 1000 + 0.5) / 10.0, " %"); }

}  // namespace

int run_demo(const Arguments& arguments) {
  CLI::App app("Makes a task (letters are put in order), a tokenizer and a model of random weights, tunes the model, and shows its\n"
               "accuracy before and after.\nexample: temper demo --output demo", "demo");
  std::string output = "demo";
  int64_t steps = 1500;
  app.add_option("--output", output, "where everything goes; an earlier demo there is replaced");
  app.add_option("--steps", steps, "of training")->check(CLI::PositiveNumber);
  if (!parse_flags(app, arguments)) return 0;

  const std::string model_dir = output + "/model", run = output + "/run";
  check<ConfigError>(!fs::exists(output) || fs::exists(model_dir + "/config.json") || fs::is_empty(output), "--output ", output, ": holds something else; choose another");
  fs::remove_all(run);
  fs::create_directories(model_dir);
  write_file_atomic(model_dir + "/config.json", kConfig.dump(2) + "\n");
  write_file_atomic(model_dir + "/tokenizer.json", dump_json(demo_tokenizer()));
  write_file_atomic(model_dir + "/tokenizer_config.json", "{\"eos_token\": \"<end>\"}\n");
  models::save_weights(*models::init_model(models::HfConfig::load(model_dir), 1), model_dir, at::kFloat);
  write_rows(output + "/train.jsonl", 0, kTrainRows);
  write_rows(output + "/test.jsonl", kTrainRows, kTestRows);

  std::string example_before, example;
  const double before = accuracy(model_dir, kTrainRows, &example_before);
  const std::vector<std::string> config{"output_dir=" + run, "model.path=" + model_dir, "data.train=" + output + "/train.jsonl",
                                        "data.eval=" + output + "/test.jsonl", temper::str("train.max_steps=", steps), "train.batch_size=64",
                                        "train.eval_every=250", "optimizer.learning_rate=2e-3", "optimizer.warmup_steps=50"};
  train::run_sft(load_run_config(config, "sft"), {std::cout, ::isatty(STDOUT_FILENO) == 1, [] { return false; }});
  const double after = accuracy(run + "/final", kTrainRows, &example);
  std::cout << "\naccuracy on " << kTestRows << " rows that were not trained: " << percent(before) << " before, " << percent(after) << " after\n"
            << "for example: " << example << "\nmodel: " << run << "/final\nreport: " << run << "/report.html\n";
  return 0;
}

}  // namespace temper::cli
