// The config of preferences, and what a loss reads of it.
#include "temper/base/file.h"
#include "temper/preference/losses.h"
#include "tests/preference/folder.h"

using namespace temper;

namespace {

std::string error_of(const char* verb, std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(),
                   {"output_dir=run", "model.path=model", "data.train=rows.jsonl"});
  preference::PreferenceConfig config;
  try {
    read_run_config(config, overrides, verb);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

// After a deliberate change: TEMPER_UPDATE_GOLDENS=1 build/tests/test_preference -tc="*schema*"
TEST_CASE("the schema of the config is the golden one") {
  const std::string path = golden_path("config_schema/dpo.txt");
  preference::PreferenceConfig config;
  if (std::getenv("TEMPER_UPDATE_GOLDENS")) write_file_atomic(path, describe_run_config(config));
  CHECK(describe_run_config(config) == read_file(path));
}

TEST_CASE("what does not fit together is said by its key") {
  const auto says = [](const std::string& found, const std::string& text) {
    CAPTURE(found);
    CHECK(found.find(text) != std::string::npos);
  };
  CHECK(error_of("dpo", {}) == "no error");
  says(error_of("dpo", {"preference.loss=sigmiod"}), "did you mean");
  says(error_of("dpo", {"preference.reference=model"}), "reference_model names no directory");
  says(error_of("dpo", {"preference.reference=adapter_off"}), "no adapter trains");
  CHECK(error_of("dpo", {"preference.reference=adapter_off", "adapter.method=lora"}) == "no error");
  says(error_of("dpo", {"preference.loss=simpo", "preference.reference=precomputed"}),
       "simpo has no reference");
  says(error_of("dpo", {"preference.loss=kto", "preference.reference=precomputed"}),
       "found precomputed");
  says(error_of("dpo", {"preference.loss=kto", "train.batch_size=1"}),
       "train.batch_size: found 1, expected at least 2");
  says(error_of("dpo", {"preference.loss=robust", "preference.label_smoothing=0.5"}),
       "less than 0.5");
  says(error_of("orpo", {"train.z_loss=0.1"}), "only sft's loss");
  says(error_of("reward", {"data.train_on=all"}), "completions are compared");
}

TEST_CASE("a metric that chooses the weights is one that the loss's evaluations have") {
  const auto has = [](const char* verb, const std::string& metric, const std::string& loss) {
    return error_of(verb, {"data.eval=pairs.jsonl", "train.keep_best.metric=eval/" + metric,
                           "preference.loss=" + loss}) == "no error";
  };
  for (const char* verb : {"dpo", "orpo", "reward"}) CHECK(has(verb, "accuracy", "sigmoid"));
  CHECK(has("dpo", "kl", "kto"));
  CHECK_FALSE(has("dpo", "kl", "sigmoid"));
  CHECK(has("orpo", "log_odds_ratio", "sigmoid"));
  CHECK_FALSE(has("dpo", "log_odds_ratio", "sigmoid"));
  CHECK_FALSE(has("reward", "logps/chosen", "sigmoid"));
}

TEST_CASE("losses at a difference of 0 and beyond float32's exponents") {
  preference::PreferenceSection s;
  const auto at = [&](const char* loss, double chosen, double rejected) {
    const auto pair = [](double x) { return at::full({1}, x, at::kDouble); };
    return preference::losses().find(loss).of({pair(chosen), pair(rejected)}, s)[0].item<double>();
  };
  CHECK(at("sigmoid", 3, 3) == doctest::Approx(std::log(2.0)));
  CHECK(at("hinge", 3, 3) == 1);
  CHECK(at("ipo", 3, 3) == doctest::Approx(25));
  CHECK(at("sigmoid", -1e6, 1e6) == doctest::Approx(2e5));
  CHECK(at("robust", 1e6, -1e6) == 0);
  s.label_smoothing = 0.25;
  CHECK(at("sigmoid", 20, 0) ==
        doctest::Approx(0.75 * std::log1p(std::exp(-2)) + 0.25 * std::log1p(std::exp(2))));
  CHECK(at("robust", 20, 0) ==
        doctest::Approx((0.75 * std::log1p(std::exp(-2)) - 0.25 * std::log1p(std::exp(2))) / 0.5));
}

TEST_CASE("the log odds ratio is exact near certainty, and its gradient finite at it") {
  const auto odds = [](double chosen, double rejected) {
    const at::Tensor x = at::full({1}, chosen, at::kDouble).set_requires_grad(true);
    const at::Tensor out = preference::log_odds_ratio(x, at::full({1}, rejected, at::kDouble));
    out.backward();
    CHECK(std::isfinite(x.grad()[0].item<double>()));
    return out[0].item<double>();
  };
  CHECK(odds(-1e-9, -1) ==
        doctest::Approx(std::log(1e9) - std::log(std::exp(-1) / (1 - std::exp(-1)))).epsilon(1e-6));
  CHECK(std::isfinite(odds(0, -1)));
}
