// Lists of preference losses, as configs write them.
#include "temper/preference/losses.h"
#include "tests/preference/folder.h"

using namespace temper;

namespace {

std::string mistake(const std::vector<std::string>& more) {
  std::vector<std::string> all{"model.path=m", "output_dir=r", "data.train=x"};
  all.insert(all.end(), more.begin(), more.end());
  try {
    preference::PreferenceConfig config;
    train::read_run_config(config, all, "dpo");
    return {};
  } catch (const ConfigError& e) {
    return e.what();
  }
}

}  // namespace

TEST_CASE("losses are one name or a list with weights") {
  CHECK(mistake({"preference.loss=[{loss: sigmoid, weight: 0.8}, {loss: sft}]"}) == "");
  CHECK(mistake({"preference.loss=exo_pair", "preference.label_smoothing=0.001"}) == "");
  CHECK(mistake({"preference.loss=[]"}).find("a list of {loss, weight}") != std::string::npos);
  CHECK(mistake({"preference.loss=[{loss: sigmiod}]"}).find("did you mean `sigmoid`?") !=
        std::string::npos);
  CHECK(mistake({"preference.loss=[{loss: sft, weight: -1}]"}).find("expected number >= 0") !=
        std::string::npos);
  CHECK(mistake({"preference.loss=[{loss: sft}, {loss: sft}]"}).find("stands twice") !=
        std::string::npos);
  CHECK(mistake({"preference.loss=[{loss: kto}, {loss: sft}]"}).find("cannot be one of several") !=
        std::string::npos);
  CHECK(mistake({"preference.loss=exo_pair"}).find("expected above 0") != std::string::npos);
  preference::PreferenceConfig config;
  const std::vector<std::string> arguments{
      "model.path=m", "output_dir=r", "data.train=x",
      "preference.loss=[{loss: hinge, weight: 0.5}, {loss: sft}]"};
  train::read_run_config(config, arguments, "dpo");
  CHECK(config.preference.loss.text() == "0.5 hinge + sft");
}
