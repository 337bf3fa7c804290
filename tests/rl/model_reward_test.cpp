// A reward model as a reward.
#include "temper/rl/rollout/model_reward.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "temper/base/error.h"
#include "temper/base/file.h"
#include "temper/data/rows/preference_row.h"
#include "temper/data/rows/prompt_row.h"
#include "temper/models/adapters/adapter_files.h"
#include "temper/models/files/load.h"
#include "temper/rewards/closings.h"
#include "tests/golden.h"
#include "tests/preference/folder.h"

using namespace temper;

namespace {

std::string golden_model(const std::string& name) { return golden_path("models/" + name); }

// A tokenizer that has the end tokens of many families.
std::shared_ptr<const Tokenizer> tokenizer_of_families() {
  Json file = read_json_file(golden_path("tokenizers/qwen2.json")).at("tokenizer");
  int id = 0;
  for (const Json& token : file["added_tokens"]) id = std::max(id, token["id"].get<int>());
  for (const char* text : {"<|im_start|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "</s>",
                           "<|END_OF_TURN_TOKEN|>"}) {
    Json token = file["added_tokens"][0];
    token["id"] = ++id;
    token["content"] = text;
    file["added_tokens"].push_back(token);
  }
  return Tokenizer::parse(file.dump(), "families");
}

using Ids = std::vector<int32_t>;

rewards::Sample sample(Ids prompt, Ids completion) {
  rewards::Sample s;
  s.where = "rows.jsonl:1";
  s.prompt_tokens = std::move(prompt);
  s.completion_tokens = std::move(completion);
  return s;
}

float scalar_of(models::ScalarModel& model, const rewards::Sample& s) {
  const at::NoGradGuard no_grad;
  Ids all = s.prompt_tokens;
  all.insert(all.end(), s.completion_tokens.begin(), s.completion_tokens.end());
  const auto forest = std::make_shared<Forest>();
  forest->add_root(all);
  return model.values(model.forward({.forest = forest}), {forest->num_tokens() - 1}).item<float>();
}

float alone(const rewards::Sample& s) {
  static const auto model = models::load_scalar_model(golden_model("score"));
  return scalar_of(*model, s);
}

}  // namespace

TEST_CASE("completions are judged together as each alone, to the bit") {
  const std::vector<rewards::Sample> samples{
      sample({5, 6, 7}, {8, 9, 2}), sample({5, 6, 7}, {10}), sample({5, 6, 7}, {}),
      sample({11}, {12, 13}),       sample({}, {20, 21}),    sample({5, 6, 7}, {8, 9, 2})};
  rewards::RewardSection section;
  section.model = golden_model("score");
  CHECK(section.label() == "model");
  const auto reward = rewards::make_reward(section);
  CHECK_FALSE(reward->needs_text());
  const std::vector<rewards::Verdict> verdicts = reward->judge(samples);
  REQUIRE(verdicts.size() == samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    CHECK(verdicts[i].kind == rewards::Verdict::Kind::kValue);
    CHECK(static_cast<float>(verdicts[i].value) == alone(samples[i]));
  }
}

TEST_CASE("a model without a head or with other tokens is refused") {
  rewards::RewardSection section;
  section.model = golden_model("qwen3");
  CHECK_THROWS_WITH_AS(rewards::make_reward(section), doctest::Contains("no scalar head"),
                       ConfigError);
  section.model = golden_model("score");
  section.command = {"true"};
  section.name = "rm";
  CHECK(rewards::find_problem({&section, 1}).find("has a model and a command") !=
        std::string::npos);
  section.command.clear();
  rl::check_reward_models({&section, 1}, nullptr, 61);
  CHECK_THROWS_WITH_AS(rl::check_reward_models({&section, 1}, nullptr, 62),
                       doctest::Contains("rewards: rm: the reward model"), ConfigError);
  rewards::RewardSection missing;
  missing.name = "model";
  CHECK_THROWS_WITH_AS(rewards::make_reward(missing), doctest::Contains("expected `model`"),
                       ConfigError);
}

TEST_CASE("a reward model that QLoRA trained stands on the weights that it was trained on") {
  const tiny::Folder folder;
  pref::write_rows(folder / "rows.jsonl", pref::pairs(8));
  preference::PreferenceConfig c = pref::config(folder, "qwen3");
  c.adapter.method = models::AdapterSection::Method::kQlora;
  c.adapter.rank = 4;
  c.train.max_steps = 2;
  pref::run(&preference::run_reward, c);
  rewards::RewardSection section;
  section.model = c.output_dir + "/final";
  const rewards::Sample s = sample({5, 6, 7}, {8, 9, 2});
  const auto verdicts = rewards::make_reward(section)->judge({&s, 1});
  const auto on = [&](const models::Storage& storage) {
    const auto model = models::load_scalar_model(c.model.path, storage);
    models::load_adapter(*model, *section.model);
    return scalar_of(*model, s);
  };
  CHECK(static_cast<float>(verdicts.at(0).value) == on({.blocks = ops::WeightFormat::kNf4}));
  CHECK(on({}) != on({.blocks = ops::WeightFormat::kNf4}));
}

TEST_CASE("what stands behind a completion is read, and is no part of it") {
  rewards::Sample closed = sample({5, 6, 7}, {8, 9});
  closed.closing_tokens = {2, 3};
  rewards::RewardSection section;
  section.model = golden_model("score");
  const auto verdicts = rewards::make_reward(section)->judge({&closed, 1});
  CHECK(static_cast<float>(verdicts.at(0).value) == alone(sample({5, 6, 7}, {8, 9, 2, 3})));
}

TEST_CASE("under every template a reward model reads the tokens that its training read") {
  struct Family {
    const char *chat, *end, *behind;
  };
  const auto tokenizer = tokenizer_of_families();
  for (const auto& [name, end_text, behind] :
       {Family{"chatml", "<|im_end|>", "\n"}, Family{"qwen3", "<|im_end|>", "\n"},
        Family{"smollm3", "<|im_end|>", "\n"}, Family{"hermes", "<|im_end|>", "\n"},
        Family{"llama31", "<|eot_id|>", ""}, Family{"gemma2", "<end_of_turn>", "\n"},
        Family{"gemma3", "<end_of_turn>", "\n"}, Family{"mistral3", "</s>", ""},
        Family{"llama2", "</s>", "\n"}, Family{"zephyr", "</s>", "\n"},
        Family{"phi3", "<|end|>", "\n</s>"}, Family{"command_r", "<|END_OF_TURN_TOKEN|>", ""}}) {
    CAPTURE(std::string(name));
    data::PreferenceFormat format;
    format.tokenizer = tokenizer;
    format.chat = std::make_shared<const ChatTemplate>(
        ChatTemplate::parse(read_file(golden_path("templates/" + std::string(name) + ".jinja")),
                            name, Json{{"bos_token", ""}, {"eos_token", "</s>"}}));
    format.vocabulary = tokenizer->vocab_size();
    format.max_length = 10000;
    const auto said = [](const char* role, const char* content) {
      return Json::array({{{"role", role}, {"content", content}}});
    };
    const Json row = {{"prompt", said("user", "Hi")},
                      {"chosen", said("assistant", "Ho")},
                      {"rejected", said("assistant", "Hum")}};
    bool truncated = false;
    const auto pair = data::read_preference_row(format, row, "pairs.jsonl:1", &truncated);
    const auto prompt = data::read_prompt_row(format, row, "pairs.jsonl:1", &truncated);
    Ids trained;  // all of a side
    for (const bool of_prompt : {true, false}) {
      const data::TokenPath part = pair->path(data::Side::kChosen, of_prompt);
      trained.insert(trained.end(), part.tokens.begin(), part.tokens.end());
    }
    const int32_t end = tokenizer->id_of(end_text).value();
    const auto last = std::find(trained.begin() + std::ssize(prompt->tokens), trained.end(), end);
    REQUIRE(last != trained.end());
    const Ids sampled(trained.begin() + std::ssize(prompt->tokens), last + 1);

    rewards::RewardSection section;
    section.model = "rm";
    rewards::Closings closings({&section, 1}, tokenizer.get(), {end, 0});
    Ids read = prompt->tokens;
    const Ids closing = closings.after(sampled, prompt->chat.get());
    CHECK(tokenizer->decode(closing) == behind);
    for (const Ids& part : {sampled, closing}) read.insert(read.end(), part.begin(), part.end());
    CHECK(read == trained);
    // Where nothing ended, or nobody's template wrote the prompt, nothing is added.
    CHECK(closings.after(Ids(sampled.begin(), sampled.end() - 1), prompt->chat.get()).empty());
    CHECK(closings.after(sampled, nullptr).empty());
  }
}
