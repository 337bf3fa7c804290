// What a run warns of, by its numbers.
#include "temper/rl/observer.h"

#include <doctest/doctest.h>

using namespace temper;
using namespace temper::rl;

namespace {

class Heard : public train::Messages {
 public:
  void warn_once(const std::string& what, const std::string& message) override {
    warnings.emplace_back(what, message);
  }
  void note(const std::string&) override {}
  std::vector<std::pair<std::string, std::string>> warnings;
};

}  // namespace

TEST_CASE("a sampler that is far from the trainer is told, with the number") {
  Heard heard;
  Observer observer(heard, nullptr, 8);
  BatchStatistics about;
  about.groups = 1;
  about.reward_std = 1;
  observer.warn_of(about, 0, 0.05);
  CHECK(heard.warnings.empty());
  observer.warn_of(about, 0, 0.25);
  REQUIRE(heard.warnings.size() == 1);
  CHECK(heard.warnings[0].first == "mismatch");
  CHECK(heard.warnings[0].second.find("mismatch_kl is 0.25 nats per token") != std::string::npos);
  CHECK(heard.warnings[0].second.find("rollout.server") != std::string::npos);
}
