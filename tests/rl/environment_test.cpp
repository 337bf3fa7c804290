// Whole runs with an environment: the sampler is the trainer to the bit over turns and branches,
// nothing depends on timing, runs resume and replay.
#include "temper/env/environment.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "temper/base/file.h"
#include "temper/io/safetensors.h"
#include "temper/rl/episode.h"
#include "temper/rl/run.h"
#include "tests/train/tiny.h"

using namespace temper;
using tiny::Folder;

namespace {

std::atomic<int> slow_by{0};                   // milliseconds that some answers take
std::atomic<int> resets{0}, ends{0}, open{0};  // of episodes

// Goes on for 1 to 4 turns, answers with what depends on what was said, and likes the letter a.
class Talk : public env::Environment {
 public:
  Talk() { ++open; }
  ~Talk() override { --open; }
  env::Observation reset(const Json& row) override {
    ++resets;
    number_ = row["n"].get<int64_t>();
    env::Observation first;
    if (number_ % 2 == 1) first.messages.push_back({{"role", "user"}, {"content", "odd"}});
    return first;
  }
  env::Observation step(const env::Turn& turn) override {
    if (slow_by > 0 && (number_ + turns_) % 3 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(slow_by));
    check(!(number_ == 7 && turn.completion.find('q') != std::string::npos), "no q here");
    env::Observation next;
    for (const char c : turn.completion) next.reward += c == 'a' ? 0.25 : 0;
    next.done = ++turns_ > number_ % 4;
    ends += next.done;
    if (!next.done)
      next.messages.push_back(
          {{"role", "user"}, {"content", "go " + std::to_string(turn.completion.size())}});
    return next;
  }

 private:
  int64_t number_ = 0, turns_ = 0;
};

// Says U, which the tokenizer knows and the model does not: at once, or as an answer.
class Foreign : public env::Environment {
 public:
  env::Observation reset(const Json& row) override {
    at_once_ = row["n"].get<int64_t>() % 2 == 0;
    return at_once_ ? said() : env::Observation();
  }
  env::Observation step(const env::Turn&) override { return said(); }

 private:
  static env::Observation said() {
    env::Observation next;
    next.messages.push_back({{"role", "user"}, {"content", "U"}});
    return next;
  }
  bool at_once_ = false;
};

// Never begins.
class Broken : public env::Environment {
 public:
  env::Observation reset(const Json&) override { throw RunError("broken"); }
  env::Observation step(const env::Turn&) override { return {}; }
};

// Fails three times of four.
class Frail : public env::Environment {
 public:
  env::Observation reset(const Json&) override { return {}; }
  env::Observation step(const env::Turn& turn) override {
    size_t sum = 0;
    for (const char c : turn.completion) sum += static_cast<unsigned char>(c);
    check(sum % 4 == 0, "frail");
    env::Observation next;
    next.done = true;
    next.reward = static_cast<double>(sum % 16);
    return next;
  }
};

template <class T>
std::unique_ptr<env::Environment> make() {
  return std::make_unique<T>();
}

[[maybe_unused]] const bool environments_added = [] {
  env::environments().add({"foreign", make<Foreign>, "for these tests"});
  env::environments().add({"broken", make<Broken>, "for these tests"});
  env::environments().add({"frail", make<Frail>, "for these tests"});
  env::environments().add({"talk", make<Talk>, "for these tests"});
  return true;
}();

// Every character a token.
void make_model(const std::string& directory, const std::string& chat_template) {
  std::filesystem::create_directories(directory);
  Json vocabulary = {{"<|im_start|>", 0}, {"<pad>", 1}, {"<|im_end|>", 2}};
  const auto add = [&](const std::string& token) {
    const int id = static_cast<int>(vocabulary.size());
    vocabulary[token] = id;
  };
  for (char c = 'a'; c <= 'z'; ++c) add(std::string(1, c));
  for (char c = '0'; c <= '9'; ++c) add(std::string(1, c));
  add("\xC4\xA0");                                           // space
  add("\xC4\x8A");                                           // line end
  for (char c = 'A'; c <= 'U'; ++c) add(std::string(1, c));  // the model has no id of the last
  Json tokens = Json::array();
  for (const char* special : {"<|im_start|>", "<|im_end|>"})
    tokens.push_back({{"id", vocabulary[special]},
                      {"content", special},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", true}});
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", false}};
  const Json tokenizer = {{"version", "1.0"},
                          {"added_tokens", tokens},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", bytes},
                          {"post_processor", nullptr},
                          {"decoder", bytes},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"merges", Json::array()},
                            {"vocab", vocabulary}}}};
  write_file_atomic(directory + "/tokenizer.json", dump_json(tokenizer));
  write_file_atomic(directory + "/tokenizer_config.json",
                    dump_json({{"eos_token", "<|im_end|>"}, {"chat_template", chat_template}}));
  write_file_atomic(directory + "/config.json",
                    R"({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
    "tie_word_embeddings": true, "eos_token_id": 2})");
  models::save_weights(*tiny::model(), directory, at::kFloat);
}

const char* const kPlain =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
// Of earlier turns only what stands behind the last b; and the last question comes first.
const char* const kRewriting =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('b')[-1] }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const char* const kRewritingPrompt =
    "{% for m in messages %}<|im_start|>{% if messages | length > 3 and loop.first %}A{% endif %}"
    "{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

struct Run {
  std::string output;
  std::vector<std::string> arguments;
  train::RunOutcome outcome;
  bool ppo = false;

  Run(const Folder& in, const std::string& name, const std::string& chat_template = kPlain,
      const std::vector<std::string>& more = {})
      : output(in / name),
        arguments{"output_dir=" + output,
                  "model.path=" + (in / "model"),
                  "data.train=" + (in / "rows.jsonl"),
                  "rl={group_size: 3, prompts_per_rollout: 4}",
                  "rollout={max_new_tokens: 60, temperature: 0.9, stop: [c, d, e, f]}",
                  "environment={name: talk, max_turns: 3}",
                  "train={max_steps: 3, micro_batch_tokens: 128}",
                  "optimizer={learning_rate: 1.0e-2, schedule: constant}",
                  "metrics.sinks=[jsonl]"} {
    if (!std::filesystem::exists(in / "model")) make_model(in / "model", chat_template);
    std::string rows;
    for (int n = 0; n < 12; ++n)
      rows += dump_json({{"prompt", {{{"role", "user"}, {"content", str("say ", n)}}}}, {"n", n}}) +
              "\n";
    write_file_atomic(in / "rows.jsonl", rows);
    arguments.insert(arguments.end(), more.begin(), more.end());
  }
  Run& go(size_t stop_after = 0) {
    std::ostringstream console;
    const std::string metrics = output + "/metrics.jsonl";
    const train::RunHost host{console, false, [&] {
                                return stop_after > 0 && std::filesystem::exists(metrics) &&
                                       read_metrics_file(metrics).size() >= stop_after;
                              }};
    rl::RlConfig config;
    rl::PpoConfig with_critic;
    if (ppo) {
      read_run_config(with_critic, arguments, "ppo");
      outcome = rl::run_ppo(with_critic, host);
    } else {
      read_run_config(config, arguments, "grpo");
      outcome = rl::run_rl(config, host);
    }
    return *this;
  }
  std::string file(const std::string& name) const { return read_file(output + "/" + name); }
  std::vector<Json> rollouts(int64_t step) const {
    std::vector<Json> out;
    std::istringstream lines(file(str("rollouts/step-", step, ".jsonl")));
    for (std::string line; std::getline(lines, line);) out.push_back(parse_json(line, "rollouts"));
    return out;
  }
  std::vector<MetricsRow> rows() const { return read_metrics_file(output + "/metrics.jsonl"); }
};

void check_exact(const Run& run) {
  for (const MetricsRow& row : run.rows())
    if (row.number("sampler_trainer_max_abs_diff"))
      CHECK(row.number("sampler_trainer_max_abs_diff") == 0);
}

}  // namespace

TEST_CASE("masks, turns and log-probabilities of episodes; each is reset and ended once") {
  resets = ends = 0;
  const Folder folder;
  const Run run = Run(folder, "run").go();
  check_exact(run);
  CHECK(open == 0);
  const auto tokenizer = Tokenizer::load_directory(folder / "model");
  double turns = 0, sampled = 0;
  int64_t most_turns = 0, count = 0;
  for (const Json& row : run.rollouts(1)) {
    const auto tokens = row["completion_tokens"].get<std::vector<int32_t>>();
    const auto mask = row["completion_mask"].get<std::vector<int>>();
    REQUIRE(mask.size() == tokens.size());
    REQUIRE(row["logprobs"].size() == tokens.size());
    CHECK(tokens.size() <= 60);
    int64_t begun = 0;
    for (size_t t = 0; t < tokens.size(); ++t) {
      CHECK((row["logprobs"][t] == 0.0) == (mask[t] == 0));
      begun += mask[t] == 1 && (t == 0 || mask[t - 1] == 0);
      sampled += mask[t];
    }
    CHECK(row["turns"] == begun);
    CHECK(row["rewards"]["environment"] == row["reward"]);
    CHECK_FALSE(row.contains("branches"));
    // The whole is what the template writes, but for the end tokens that were not sampled.
    const auto prompt = row["prompt_tokens"].get<std::vector<int32_t>>();
    const std::string start = tokenizer->decode(prompt), text = tokenizer->decode(tokens);
    CHECK(start.ends_with("<|im_start|>assistant\n"));
    CHECK(text.find("<|im_end|><|im_end|>") == std::string::npos);
    for (size_t at = 0; (at = text.find("<|im_start|>user\n", at)) != std::string::npos; ++at)
      CHECK(text.substr(at).find("<|im_end|>\n<|im_start|>assistant\n") != std::string::npos);
    turns += row["turns"].get<double>();
    most_turns = std::max(most_turns, begun);
    ++count;
  }
  CHECK(count == 12);
  CHECK(most_turns == 3);
  const MetricsRow first = run.rows().front();
  CHECK(first.number("turns_mean").value() == doctest::Approx(turns / 12));
  CHECK(first.number("completion_length_mean").value() == doctest::Approx(sampled / 12));
  CHECK(first.number("environment_timeouts") == 0);
  CHECK(resets == 36);
}

TEST_CASE("timing, the batch's and the cache's size change no bit") {
  const Folder folder;
  const Run plain = Run(folder, "plain").go();
  slow_by = 3;
  const Run slow = Run(folder, "slow").go();
  slow_by = 0;
  const Run small = Run(folder, "small", kPlain, {"rollout.cache_bytes=300000"}).go();
  for (const Run* other : {&slow, &small}) {
    CHECK(other->file("rollouts/step-3.jsonl") == plain.file("rollouts/step-3.jsonl"));
    CHECK(other->file("final/model.safetensors") == plain.file("final/model.safetensors"));
  }
}

TEST_CASE("a template that rewrites what was said makes branches, as exact as lines") {
  for (const auto& [chat_template, name] :
       {std::pair(kRewriting, "turns"), std::pair(kRewritingPrompt, "prompt")}) {
    CAPTURE(name);
    const Folder folder;
    const Run run = Run(folder, "run", chat_template, {"rollout.max_new_tokens=300"}).go();
    check_exact(run);
    int64_t branches = 0, in_prompt = 0;
    std::string all;
    for (const int64_t step : {1, 2, 3})
      for (const Json& row : run.rollouts(step)) {
        for (const Json& branch : row.value("branches", Json::array())) {
          ++branches;
          in_prompt += branch[1] < 0;
        }
        all += dump_json(row) + "\n";
      }
    CHECK(branches > 0);
    CHECK((in_prompt > 0) == (chat_template == kRewritingPrompt));
    // Training on the file is the run.
    write_file_atomic(folder / "all.jsonl", all);
    const Run replay = Run(folder, "replay", chat_template,
                           {"rl.replay=" + (folder / "all.jsonl"), "data.train=[]",
                            "train.max_steps=null", "rollout.max_new_tokens=300"})
                           .go();
    CHECK(replay.outcome.steps == 3);
    CHECK(replay.file("final/model.safetensors") == run.file("final/model.safetensors"));
    CHECK(replay.rows().back().number("turns_mean") == run.rows().back().number("turns_mean"));
  }
}

TEST_CASE("a run with an environment that stops anywhere goes on to the same bits") {
  for (const char* chat_template : {kPlain, kRewriting, kRewritingPrompt}) {
    const Folder folder;
    const std::vector<std::string> keys{"rl.minibatches=2", "rl.iterations=2", "rl.beta=0.02",
                                        "train.max_steps=6", "rollout.max_new_tokens=200"};
    const Run whole = Run(folder, "whole", chat_template, keys).go();
    check_exact(whole);
    Run cut(folder, "cut", chat_template, keys);
    for (const size_t stop : {1, 3, 5}) CHECK(cut.go(stop).outcome.interrupted);
    cut.go();
    CHECK(cut.file("final/model.safetensors") == whole.file("final/model.safetensors"));
    CHECK(tiny::logged(cut.output) == tiny::logged(whole.output));
    CHECK(cut.file("rollouts/step-5.jsonl") == whole.file("rollouts/step-5.jsonl"));
  }
}

TEST_CASE("an episode of one turn is a completion") {
  const Folder folder;
  const Run turns =
      Run(folder, "turns", kPlain, {"environment.max_turns=1", "train.max_steps=1"}).go();
  // Rows whose reset adds nothing have the prompt that they have without an environment.
  const Run plain = Run(folder, "plain", kPlain,
                        {"environment={name: ''}", "rewards=[{name: length}]", "train.max_steps=1"})
                        .go();
  int compared = 0;
  for (size_t i = 0; i < 12; ++i) {
    const Json a = turns.rollouts(1)[i], b = plain.rollouts(1)[i];
    if (a["prompt_tokens"] != b["prompt_tokens"]) continue;
    CHECK(a["completion_tokens"] == b["completion_tokens"]);
    CHECK(a["logprobs"] == b["logprobs"]);
    CHECK(a["text"] == b["text"]);
    CHECK(a["finish_reason"] == b["finish_reason"]);
    ++compared;
  }
  CHECK(compared > 0);
}

TEST_CASE("ppo, and rewards beside the environment's") {
  const Folder folder;
  Run run(folder, "run", kRewriting,
          {"rl={prompts_per_rollout: 8, group_size: 1}", "rewards=[{name: length, weight: 0.5}]"});
  run.ppo = true;
  run.go();
  check_exact(run);
  for (const Json& row : run.rollouts(2))
    CHECK(row["reward"].get<double>() ==
          doctest::Approx(row["rewards"]["environment"].get<double>() +
                          0.5 * row["rewards"]["length"].get<double>()));
}

TEST_CASE("what an environment throws is a verdict") {
  const Folder folder;
  std::vector<std::string> keys{"data.shuffle=false", "rl.prompts_per_rollout=12",
                                "rl.group_size=8", "rollout.stop=[q]", "train.max_steps=1"};
  const auto with = [&](const char* verdict) {
    std::vector<std::string> all = keys;
    all.push_back(std::string("environment.on_failure=") + verdict);
    return Run(folder, verdict, kPlain, all);
  };
  // A stop text is cut from what the environment hears.
  CHECK(with("stop").go().rows().front().number("environment_crashes") == 0);
  for (std::string& key : keys)
    if (key.starts_with("rollout")) key = "rollout.max_new_tokens=40";
  const Run zero = with("zero").go();
  const double failed = zero.rows().front().number("environment_crashes").value();
  CHECK(failed > 0);
  CHECK(zero.rollouts(1).size() == 96);
  for (const Json& row : zero.rollouts(1))
    if (row["group"] == 7 && row["text"].get<std::string>().find('q') != std::string::npos)
      CHECK(row["reward"] == 0.0);
  const Run drop = with("drop").go();
  CHECK(drop.rows().front().number("completions_dropped") == failed);
  CHECK(static_cast<double>(drop.rollouts(1).size()) == 96 - failed);
  std::filesystem::remove_all(folder / "stop");
  CHECK_THROWS_WITH_AS(with("stop").go(), doctest::Contains("no q here"), RunError);
}

TEST_CASE("words that are not the model's cost their episodes alone") {
  const Folder folder;
  const std::vector<std::string> keys{"environment.name=foreign", "train.max_steps=2"};
  const Run run = Run(folder, "run", kPlain, keys).go();
  CHECK(run.outcome.steps == 2);
  CHECK(run.rows().front().number("environment_malformed").value() > 0);
  for (const Json& row : run.rollouts(1)) CHECK(row["reward"] == 0.0);
  check_exact(run);
}

TEST_CASE("a run ends where all episodes of three rollouts in a row fail") {
  const Folder folder;
  for (const char* verdict : {"zero", "drop"}) {
    Run run(folder, verdict, kPlain,
            {"environment.name=broken", str("environment.on_failure=", verdict)});
    CHECK_THROWS_WITH_AS(
        run.go(),
        doctest::Contains("the environment failed in all episodes of 3 rollouts in a row (the "
                          "first failure: broken"),
        RunError);
  }
  CHECK(read_metrics_file((folder / "zero") + "/metrics.jsonl").size() == 2);
}

TEST_CASE("an environment that fails often, but not always, does not end the run") {
  const Folder folder;
  for (const char* verdict : {"zero", "drop"}) {
    const Run run = Run(folder, verdict, kPlain,
                        {"environment.name=frail", str("environment.on_failure=", verdict),
                         "rl={prompts_per_rollout: 12, group_size: 8}"})
                        .go();
    CHECK(run.outcome.steps == 3);
    CHECK(run.rows().back().number("environment_crashes").value() > 144);  // of 288
  }
}

TEST_CASE("the least number of tokens is a completion's, not a turn's") {
  const Folder folder;
  const Run run = Run(folder, "run", kPlain, {"rollout.min_new_tokens=40"}).go();
  CHECK(run.outcome.steps == 3);
  for (const Json& row : run.rollouts(1))
    if (row["turns"] == 1) CHECK(row["completion_tokens"].size() >= 40);
}

TEST_CASE("an end token that the config names ends a turn as the model's own does") {
  const Folder folder;
  const Run own = Run(folder, "own").go();
  const Run named =
      Run(folder, "named", kPlain, {"rollout.ignore_eos=true", "rollout.stop_token_ids=[2]"}).go();
  for (int64_t step = 1; step <= 3; ++step) CHECK(own.rollouts(step) == named.rollouts(step));
}
