// Ten updates of every loss against those of TRL (tests/golden/make_preference_goldens.py).
#include "temper/preference/losses.h"
#include "tests/differences.h"
#include "tests/preference/folder.h"

using namespace temper;

namespace {

const Json& golden() {
  static const Json json = read_json_file(golden_path("preference.json"), 1 << 20);
  return json;
}

preference::PreferenceConfig config_of(const tiny::Folder& folder, const Json& run) {
  Json rows = golden()["rows"], single = Json::array();
  for (const Json& row : rows)
    for (const char* side : {"chosen_ids", "rejected_ids"})
      single.push_back({{"prompt_ids", row["prompt_ids"]},
                        {"completion_ids", row[side]},
                        {"label", std::string(side) == "chosen_ids"}});
  pref::write_rows(folder / "rows.jsonl", run["single"] ? single : rows);
  preference::PreferenceConfig c =
      pref::config(folder, run["verb"] == "reward" ? "score" : "qwen3");
  if (run["single"]) c.train.batch_size = 8;
  preference::PreferenceSection& p = c.preference;
  const Json& keys = run["preference"];
  if (keys.contains("loss") && keys["loss"].is_string()) p.loss = keys["loss"].get<std::string>();
  if (keys.contains("loss") && keys["loss"].is_array()) {
    p.loss.terms.clear();
    for (const Json& one : keys["loss"])
      p.loss.terms.push_back({one["loss"].get<std::string>(), one["weight"].get<double>()});
  }
  for (const auto& [name, value] : {std::pair{"beta", &p.beta},
                                    {"lambda", &p.lambda},
                                    {"label_smoothing", &p.label_smoothing},
                                    {"simpo_gamma", &p.simpo_gamma},
                                    {"desirable_weight", &p.desirable_weight},
                                    {"center_rewards_coefficient", &p.center_rewards_coefficient}})
    *value = keys.value(name, *value);
  if (keys.contains("reference")) p.reference = preference::PreferenceSection::Reference::kNone;
  if (keys.contains("train_on")) p.train_on = preference::PreferenceSection::TrainOn::kAll;
  return c;
}

pref::Verb verb_of(const Json& run) {
  if (run["verb"] == "orpo") return &preference::run_orpo;
  return run["verb"] == "reward" ? &preference::run_reward : &preference::run_dpo;
}

}  // namespace

TEST_CASE("every loss has a run of TRL's") {
  std::set<std::string> compared;
  for (const auto& [name, run] : golden()["runs"].items()) {
    const Json loss = run["preference"].value("loss", Json());
    if (loss.is_string()) compared.insert(loss.get<std::string>());
    for (const Json& term : loss.is_array() ? loss : Json::array())
      compared.insert(term["loss"].get<std::string>());
  }
  for (const std::string& name : preference::losses().names()) {
    CAPTURE(name);  // tests/golden/make_preference_goldens.py makes its runs
    CHECK(compared.contains(name));
  }
}

TEST_CASE("ten updates of every loss are TRL's") {
  for (const auto& [name, run] : golden()["runs"].items()) {
    CAPTURE(name);
    const tiny::Folder folder;
    const std::vector<MetricsRow> rows = pref::run(verb_of(run), config_of(folder, run));
    REQUIRE(rows.size() == run["steps"].size());
    for (size_t s = 0; s < rows.size(); ++s) {
      CAPTURE(s);
      for (const auto& [metric, value] : run["steps"][s].items()) {
        CAPTURE(metric);
        const double expected = value.get<double>();
        const std::optional<double> found = rows[s].number(metric);
        REQUIRE(found);
        Differences::add("preference " + name, *found, expected);
        CHECK(*found == doctest::Approx(expected).epsilon(5e-5).scale(1));
      }
    }
  }
}
