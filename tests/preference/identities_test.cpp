// What must hold whatever the numbers are.
#include "temper/base/file.h"
#include "tests/preference/folder.h"

using namespace temper;
using Reference = preference::PreferenceSection::Reference;

namespace {

// The step's numbers, without those of the clock.
std::vector<std::string> numbers(const std::vector<MetricsRow>& rows) {
  std::vector<std::string> out;
  for (const MetricsRow& row : rows) out.push_back(tiny::numbers(row));
  return out;
}

std::vector<double> column(const std::vector<MetricsRow>& rows, const std::string& name) {
  std::vector<double> out;
  for (const MetricsRow& row : rows) out.push_back(row.number(name).value());
  return out;
}

preference::PreferenceConfig short_config(const tiny::Folder& folder, const std::string& model) {
  pref::write_rows(folder / "rows.jsonl", pref::pairs(12));
  preference::PreferenceConfig c = pref::config(folder, model);
  c.train.max_steps = 4;
  return c;
}

preference::PreferenceConfig with_lora(preference::PreferenceConfig c) {
  c.adapter.method = models::AdapterSection::Method::kLora;
  c.adapter.rank = 4;
  return c;
}

}  // namespace

TEST_CASE("the loss at the reference is log 2, and rewards, margin and accuracy are 0") {
  const tiny::Folder folder;
  const MetricsRow first = pref::run(&preference::run_dpo, short_config(folder, "qwen3"))[0];
  CHECK(*first.number("loss") == static_cast<float>(std::log(2.0)));
  for (const char* name : {"reward_chosen", "reward_rejected", "margin", "accuracy"})
    CHECK(*first.number(name) == 0);
}

TEST_CASE("a run is refused whose pairs are all cut to equal sides, where its loss compares them") {
  const tiny::Folder folder;
  Json rows = Json::array();
  for (int i = 0; i < 6; ++i)
    rows.push_back(
        {{"prompt_ids", {3 + i, 4}}, {"chosen_ids", {5, 6, 7}}, {"rejected_ids", {5, 6, 8}}});
  pref::write_rows(folder / "rows.jsonl", rows);
  preference::PreferenceConfig c = pref::config(folder, "qwen3");
  c.train.max_steps = 2;
  c.data.max_length = 4;
  c.resume = "never";
  const auto refused = [&](pref::Verb verb) {
    CHECK_THROWS_WITH_AS(pref::run(verb, c),
                         doctest::Contains("rows so far trains a token; of the last ones: "
                                           "data.max_length 4 cuts chosen and rejected"),
                         DataError);
  };
  refused(&preference::run_dpo);
  refused(&preference::run_reward);
  c.preference.center_rewards_coefficient = 0.1;
  CHECK(pref::run(&preference::run_reward, c).size() == 2);
  CHECK(pref::run(&preference::run_orpo, c).size() == 2);  // trains on chosen's likelihood
  c.preference.loss = "kto";
  refused(&preference::run_dpo);
  c.preference.undesirable_weight = 2;
  CHECK(pref::run(&preference::run_dpo, c).size() == 2);
  rows.push_back({{"prompt_ids", {3}}, {"chosen_ids", {5}}, {"rejected_ids", {6}}});
  pref::write_rows(folder / "rows.jsonl", rows);
  c.preference.loss = "sigmoid";
  CHECK(pref::run(&preference::run_dpo, c).size() == 2);
}

TEST_CASE("a precomputed reference is a second model's to the bit, and a second run reads it" *
          doctest::test_suite("exact")) {
  for (const auto& [loss, lora] : {std::pair{"sigmoid", false}, {"ipo", true}, {"hinge", false}}) {
    CAPTURE(loss);
    const tiny::Folder folder, other;
    preference::PreferenceConfig c = short_config(folder, "qwen3"),
                                 same = short_config(other, "qwen3");
    for (auto* config : {&c, &same}) {
      config->preference.loss = loss;
      if (lora) *config = with_lora(*config);
      config->data.eval = {{.path = folder / "rows.jsonl", .limit = 5}};
      config->train.eval_every = 2;
    }
    same.preference.reference = Reference::kPrecomputed;
    const auto expected = numbers(pref::run(&preference::run_dpo, c));
    CHECK(numbers(pref::run(&preference::run_dpo, same)) == expected);
    const std::string file = same.output_dir + "/reference_logps.safetensors";
    REQUIRE(std::filesystem::exists(file));
    const auto written = std::filesystem::last_write_time(file);
    same.resume = "never";
    CHECK(numbers(pref::run(&preference::run_dpo, same)) == expected);
    CHECK(std::filesystem::last_write_time(file) == written);
    // Other rows: the file is not theirs.
    Json rows = pref::pairs(14);
    pref::write_rows(other / "rows.jsonl", rows);
    pref::run(&preference::run_dpo, same);
    CHECK(std::filesystem::last_write_time(file) != written);
  }
}

TEST_CASE("precomputed numbers are of the model with the tokens that it has now") {
  const tiny::Folder folder;
  preference::PreferenceConfig c = with_lora(short_config(folder, "qwen3"));
  c.preference.reference = Reference::kPrecomputed;
  pref::run(&preference::run_dpo, c);
  const std::string file = c.output_dir + "/reference_logps.safetensors";
  const std::string before = read_file(file);
  c.resume = "never";
  pref::run(&preference::run_dpo, c);
  CHECK(read_file(file) == before);
  c.model.backend = "native";  // any setting of the model
  pref::run(&preference::run_dpo, c);
  CHECK(read_file(file) != before);
}

TEST_CASE("numbers of other tokens are not taken for those of a row") {
  const tiny::Folder folder;
  preference::PreferenceConfig c = short_config(folder, "qwen3");
  c.preference.reference = Reference::kPrecomputed;
  pref::run(&preference::run_dpo, c);
  // As a file that was computed when the template wrote another date.
  const std::string file = c.output_dir + "/reference_logps.safetensors";
  TensorMap tensors = read_safetensors(file);
  at::Tensor hashes = models::to_tensor(tensors.at("0.tokens"), at::kLong).clone();
  hashes[5] += 1;
  tensors["0.tokens"] = models::to_view(hashes);
  write_safetensors(file, tensors);
  c.resume = "never";
  CHECK_THROWS_WITH_AS(pref::run(&preference::run_dpo, c),
                       doctest::Contains("rows.jsonl:6: its tokens or images are not those"),
                       DataError);
}

TEST_CASE("a fresh adapter's reference, its base and a second model are the same to the bit") {
  std::vector<std::vector<std::string>> found;
  for (const Reference reference : {Reference::kAuto, Reference::kAdapterOff, Reference::kModel}) {
    const tiny::Folder folder;
    preference::PreferenceConfig c = with_lora(short_config(folder, "llama"));
    c.preference.reference = reference;
    if (reference == Reference::kModel) c.preference.reference_model = c.model.path;
    found.push_back(numbers(pref::run(&preference::run_dpo, c)));
  }
  CHECK(found[0] == found[1]);
  CHECK(found[0] == found[2]);
}

TEST_CASE("any split of the step into passes gives the same losses" *
          doctest::test_suite("exact")) {
  const auto losses = [](pref::Verb verb, const char* model, const std::string& loss,
                         int64_t tokens) {
    const tiny::Folder folder;
    preference::PreferenceConfig c = short_config(folder, model);
    c.preference.loss = loss;
    if (loss == "exo_pair") c.preference.label_smoothing = 0.1;
    c.train.micro_batch_tokens = tokens;
    return column(pref::run(verb, c), "loss");
  };
  const auto same = [&](pref::Verb verb, const char* model, const std::string& loss) {
    CAPTURE(loss);
    const std::vector<double> whole = losses(verb, model, loss, 4096);
    for (const int64_t tokens : {1, 30}) {
      const std::vector<double> split = losses(verb, model, loss, tokens);
      CHECK(split[0] == doctest::Approx(whole[0]).epsilon(1e-12));
      for (size_t s = 0; s < whole.size(); ++s)
        CHECK(split[s] == doctest::Approx(whole[s]).epsilon(2e-5).scale(1));
    }
  };
  for (const std::string& loss : preference::losses().names())
    same(&preference::run_dpo, "qwen3", loss);
  same(&preference::run_orpo, "qwen3", "sigmoid");
  same(&preference::run_reward, "score", "sigmoid");
}

TEST_CASE("swapping the sides of every pair mirrors the rewards") {
  const auto first = [](bool swapped) {
    const tiny::Folder folder;
    Json rows = pref::pairs(4);
    for (Json& row : rows)
      if (swapped) std::swap(row["chosen_ids"], row["rejected_ids"]);
    pref::write_rows(folder / "rows.jsonl", rows);
    preference::PreferenceConfig c = pref::config(folder, "score");
    c.train.max_steps = 1;
    return pref::run(&preference::run_reward, c)[0];
  };
  const MetricsRow a = first(false), b = first(true);
  CHECK(*a.number("reward_chosen") == doctest::Approx(*b.number("reward_rejected")).epsilon(1e-12));
  CHECK(*a.number("margin") == doctest::Approx(-*b.number("margin")).epsilon(1e-12));
  CHECK(*a.number("tokens_computed") == *b.number("tokens_computed"));
  CHECK(*a.number("tokens_computed") < *a.number("tokens"));
}

TEST_CASE("a stopped run goes on to the same numbers") {
  const tiny::Folder folder, other;
  preference::PreferenceConfig whole = short_config(folder, "qwen3"),
                               parts = short_config(other, "qwen3");
  const auto expected = numbers(pref::run(&preference::run_dpo, whole));
  parts.train.save_every = 1;
  parts.train.max_steps = 2;
  pref::run(&preference::run_dpo, parts);
  parts.train.max_steps = 4;
  const auto found = numbers(pref::run(&preference::run_dpo, parts));
  CHECK(found == expected);
}

TEST_CASE("kto never estimates its divergence from one row alone") {
  const tiny::Folder folder;
  pref::write_rows(folder / "rows.jsonl", pref::pairs(9));
  preference::PreferenceConfig c = pref::config(folder, "qwen3");
  c.preference.loss = "kto";
  c.train.max_steps.reset();
  c.train.epochs = 2;
  c.data.eval = {{.path = folder / "rows.jsonl"}};
  const auto rows = pref::run(&preference::run_dpo, c);
  CHECK(rows.size() == 2 * 2 + 1);  // of 4 and 5 rows
  CHECK(rows.back().number("eval/rows") == 9);
  pref::write_rows(folder / "one.jsonl", pref::pairs(1));
  std::ostringstream console;
  for (auto* sources : {&c.data.train, &c.data.eval}) {
    preference::PreferenceConfig one = c;
    one.output_dir = folder / "one";
    (sources == &c.data.train ? one.data.train : one.data.eval) = {{.path = folder / "one.jsonl"}};
    CHECK_THROWS_WITH_AS(preference::run_dpo(one, {console}),
                         doctest::Contains("one.jsonl: found 1 row, expected at least 2: kto"),
                         DataError);
  }
}

TEST_CASE("a reward model goes on from its own directory") {
  const tiny::Folder folder;
  preference::PreferenceConfig c = short_config(folder, "llama");  // a fresh head
  c.preference.center_rewards_coefficient = 0;
  pref::run(&preference::run_reward, c);
  const Json saved = read_json_file(c.output_dir + "/final/config.json", 1 << 20);
  CHECK(saved["architectures"] == Json({"LlamaForSequenceClassification"}));
  CHECK(saved["id2label"].size() == 1);
  preference::PreferenceConfig next = c;
  next.model.path = c.output_dir + "/final";
  next.output_dir = folder / "next";
  c.train.max_steps = 5;
  c.output_dir = folder / "longer";
  const auto longer = pref::run(&preference::run_reward, c);
  next.train.max_steps = 1;
  // The fifth step of one run sees the rows of the second step, as the rows go around after three.
  next.data.train[0].path = folder / "second.jsonl";
  Json rows = pref::pairs(12), second = Json::array();
  for (size_t i = 4; i < 8; ++i) second.push_back(rows[i]);
  pref::write_rows(folder / "second.jsonl", second);
  CHECK(*pref::run(&preference::run_reward, next)[0].number("loss") == *longer[4].number("loss"));
}

TEST_CASE("a row's margin is what the rewards should differ by") {
  const tiny::Folder folder;
  Json rows = pref::pairs(1);
  rows[0]["margin"] = 1.5;
  pref::write_rows(folder / "rows.jsonl", rows);
  preference::PreferenceConfig c = pref::config(folder, "score");
  c.train.max_steps = c.train.batch_size = 1;
  const MetricsRow row = pref::run(&preference::run_reward, c)[0];
  const double x = *row.number("margin") - 1.5;
  CHECK(*row.number("loss") == doctest::Approx(std::log1p(std::exp(-x))).epsilon(1e-6));
}
